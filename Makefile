# shelld. `make help` lists the targets.

GO ?= go
PREFIX ?= $(if $(filter 0,$(shell id -u)),/usr/local,$(HOME)/.local)
DESTDIR ?=
VERSION ?= $(or $(shell git describe --tags --always --dirty 2>/dev/null),devel)

BIN := bin
LIBEXEC := libexec/shelld
BUILD_FLAGS := -trimpath -buildvcs=false
LDFLAGS := -s -w -X main.version=$(VERSION)
TOOL := $(GO) tool -modfile=contrib/tools/go.mod
MODULES := contrib/tools packaging/bundle/containerd packaging/bundle/runc

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## show this list
	@awk 'function show(line, part) { \
			if (line ~ /^##@ /) printf "\n%s\n", substr(line, 5); \
			if (line ~ /^[a-z-]+:.*## / && split(line, part, /:.*## /)) printf "  make %-15s %s\n", part[1], part[2] } \
		/^include / { while ((getline line < $$2) > 0) show(line) } { show($$0) }' $(firstword $(MAKEFILE_LIST))

##@ Build

include packaging/bundle/bundle.mk

# Its own line each, not dependencies: what is missing is told before the build.
.PHONY: build
build: ## build bin/ and libexec/shelld/, bundle included
	@GO='$(GO)' packaging/prereq.sh --check build
	@$(MAKE) bundle shelld shellctl shelld-init

.PHONY: bundle
bundle: $(BUNDLE_BINARIES) ## build only containerd, its shim and runc into libexec/shelld/
	@:

# Our own programs always go through `go build`, whose cache knows what changed.
.PHONY: shelld shellctl shelld-init
shelld shellctl:
	@mkdir -p $(BIN)
	$(GO) build $(BUILD_FLAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/$@ ./cmd/$@

# The guest runs inside sandboxes on whatever C library is there: static.
shelld-init:
	@mkdir -p $(LIBEXEC)
	CGO_ENABLED=0 $(GO) build $(BUILD_FLAGS) -ldflags '$(LDFLAGS)' -o $(LIBEXEC)/$@ ./cmd/$@

##@ Check

TEST_ENV := SHELLD_BUNDLE=$(CURDIR)/$(LIBEXEC) SHELLD_BIN=$(CURDIR)/$(BIN)
# Root can run every test, so one that skips is a fault.
ifeq ($(shell id -u),0)
TEST_ENV += SHELLD_REQUIRE=1
endif
GO_TEST := $(TEST_ENV) $(GO) test -p 2 -timeout 20m
PKG ?= ./...
FUZZTIME ?= 30s
COUNT ?= 5

# Its own line each, not dependencies: the packages come before the build.
.PHONY: test
test: ## build, then run all tests; run it as root for those of root mode
	@GO='$(GO)' packaging/prereq.sh
	@$(MAKE) build
	$(GO_TEST) -race -count=1 $(TESTFLAGS) $(PKG)

.PHONY: race
race: build ## run the tests COUNT=5 times in random order under the race detector
	$(GO_TEST) -race -count=$(COUNT) -shuffle=on $(PKG)

.PHONY: bench
bench: build ## compare shelld with its references in one run: a table, and dist/bench.json
	$(GO) run ./contrib/bench -bin $(BIN) $(BENCHFLAGS)

.PHONY: gobench
gobench: build ## run the Go benchmarks of PKG
	$(GO_TEST) -p 1 -run '^$$' -bench . -benchmem $(PKG)

.PHONY: fuzz
fuzz: build ## run each fuzz test for FUZZTIME=30s
	@for pkg in $$($(GO) list $(PKG)); do \
		for name in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "fuzz $$pkg $$name"; \
			$(TEST_ENV) $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

include packaging/vm/vm.mk

.PHONY: lint
lint: ## check style and the package map with the pinned golangci-lint
	$(TOOL) golangci-lint run ./...

.PHONY: format
format: ## format all Go files
	$(TOOL) golangci-lint fmt ./...

.PHONY: generate
generate: ## make generated files again
	$(GO) generate ./...

.PHONY: generate-check
generate-check: ## fail when generated files are not up to date
	@.ci/unchanged $(MAKE) generate

.PHONY: tidy-check
tidy-check: ## fail when a go.mod or go.sum is not tidy
	@status=0; for dir in . $(MODULES); do \
		echo "go mod tidy -diff in $$dir"; $(GO) -C $$dir mod tidy -diff || status=1; \
	done; exit $$status

.PHONY: ci
ci: ## run everything that continuous integration runs
	@.ci/run

##@ Use

.PHONY: demo
demo: ## build, start a private daemon and show real commands in sandboxes
	@GO='$(GO)' packaging/prereq.sh
	@$(MAKE) build >&2
	@packaging/demo.sh || [ $$? = 141 ] # of | head, for one

include packaging/install.mk

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BIN) libexec dist coverage.out
