# shelld. `make help` lists the targets.

GO ?= go
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
DESTDIR ?=
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),devel)

BIN := bin
LIBEXEC := libexec/shelld
BUILD_FLAGS := -trimpath -buildvcs=false
LDFLAGS := -s -w -X main.version=$(VERSION)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

include packaging/bundle/bundle.mk

##@ Build

.PHONY: build
build: bundle shelld shellctl shelld-init ## build bin/ and libexec/shelld/, bundle included

.PHONY: bundle
bundle: $(BUNDLE_BINARIES) ## build only containerd, its shim and runc into libexec/shelld/

# Our own programs always go through `go build`, whose cache knows what changed.
.PHONY: shelld shellctl shelld-init
shelld shellctl:
	@mkdir -p $(BIN)
	$(GO) build $(BUILD_FLAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/$@ ./cmd/$@

# The guest runs inside sandboxes on whatever C library is there: static.
shelld-init:
	@mkdir -p $(LIBEXEC)
	CGO_ENABLED=0 $(GO) build $(BUILD_FLAGS) -ldflags '$(LDFLAGS)' -o $(LIBEXEC)/$@ ./cmd/$@
