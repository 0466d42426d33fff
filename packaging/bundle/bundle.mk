# The bundle: the programs of other projects that shelld runs, built from the
# Go modules pinned beside this file. Each has a module of its own, so that it
# is built with the dependency versions its authors tested. A binary is built
# again when its go.mod, its go.sum or this file changes.

BUNDLE := packaging/bundle
BUNDLE_BINARIES := $(addprefix $(LIBEXEC)/,containerd containerd-shim-runc-v2 runc)

CONTAINERD_MODULE := github.com/containerd/containerd/v2
CONTAINERD_TAGS := no_cri no_btrfs no_devmapper no_zfs no_aufs
RUNC_MODULE := github.com/opencontainers/runc
RUNC_TAGS := seccomp urfave_cli_no_docs

# $(call pinned,MODULE,FOLDER) is the pinned version of a module, for a recipe.
pinned = $$($(GO) -C $(BUNDLE)/$(2) list -mod=readonly -m -f '{{.Version}}' $(1))

$(LIBEXEC)/containerd $(LIBEXEC)/containerd-shim-runc-v2: \
		$(BUNDLE)/containerd/go.mod $(BUNDLE)/containerd/go.sum $(BUNDLE)/bundle.mk
	@mkdir -p $(@D)
	version=$(call pinned,$(CONTAINERD_MODULE),containerd) && \
	CGO_ENABLED=0 $(GO) -C $(BUNDLE)/containerd build $(BUILD_FLAGS) -tags '$(CONTAINERD_TAGS)' \
		-ldflags "-s -w -X $(CONTAINERD_MODULE)/version.Version=$$version" \
		-o $(CURDIR)/$@ $(CONTAINERD_MODULE)/cmd/$(@F)
	@touch $@

$(LIBEXEC)/runc: $(BUNDLE)/runc/go.mod $(BUNDLE)/runc/go.sum $(BUNDLE)/bundle.mk
	@mkdir -p $(@D)
	@GO='$(GO)' packaging/prereq.sh --check build
	CGO_ENABLED=1 $(GO) -C $(BUNDLE)/runc build $(BUILD_FLAGS) -tags '$(RUNC_TAGS)' \
		-ldflags '-s -w' -o $(CURDIR)/$@ $(RUNC_MODULE)
	@touch $@
