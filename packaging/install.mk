# make install and make uninstall. The layout under PREFIX is what shelld
# expects: it finds ../libexec/shelld beside its own folder.

INSTALL ?= install

# Not every shell expands the ~ of PREFIX=~/.local, and no program does.
at_home = $(patsubst %/,%,$(patsubst ~/%,$(HOME)/%,$(1)))
override PREFIX := $(call at_home,$(PREFIX))
override DESTDIR := $(if $(DESTDIR),$(abspath $(call at_home,$(DESTDIR))))
# For recipes: units name programs by PREFIX.
check_prefix = $(if $(filter-out /%,$(firstword $(PREFIX)))$(word 2,$(PREFIX)),$(error \
	PREFIX='$(PREFIX)' must be one absolute path))

ROOT := $(DESTDIR)$(PREFIX)
SHARE := $(ROOT)/share
# systemd looks for a user's own units under share, for everyone's under lib.
UNITS := $(ROOT)/$(if $(filter $(HOME)/.local,$(PREFIX)),share,lib)/systemd/user

PROGRAMS := shelld shellctl
HELPERS := containerd containerd-shim-runc-v2 runc shelld-init
UNIT_FILES := shelld.socket shelld.service shelld-engine.service
DOCUMENTS := $(filter $(wildcard *),LICENSE README.md ARCHITECTURE.md SECURITY.md CHANGELOG.md)

COMPLETION_BASH := $(SHARE)/bash-completion/completions/shellctl
COMPLETION_ZSH := $(SHARE)/zsh/site-functions/_shellctl
COMPLETION_FISH := $(SHARE)/fish/vendor_completions.d/shellctl.fish

INSTALLED := $(addprefix $(ROOT)/bin/,$(PROGRAMS)) $(addprefix $(ROOT)/$(LIBEXEC)/,$(HELPERS)) \
	$(addprefix $(UNITS)/,$(UNIT_FILES)) $(addprefix $(SHARE)/doc/shelld/,$(DOCUMENTS)) \
	$(COMPLETION_BASH) $(COMPLETION_ZSH) $(COMPLETION_FISH)

FOLDERS := $(patsubst %/,%,$(sort $(dir $(INSTALLED))))

# Does not build, so that `sudo make install` needs no Go in root's PATH.
.PHONY: install
install: ## copy the build to PREFIX (/usr/local, or ~/.local), below DESTDIR if set
	@:$(check_prefix)
	@for file in $(addprefix $(BIN)/,$(PROGRAMS)) $(addprefix $(LIBEXEC)/,$(HELPERS)); do \
		[ -x $$file ] || { echo "$$file is missing: run \`make build\` first" >&2; exit 1; }; done
	$(INSTALL) -d $(FOLDERS)
	$(INSTALL) -m 755 $(addprefix $(BIN)/,$(PROGRAMS)) $(ROOT)/bin/
	$(INSTALL) -m 755 $(addprefix $(LIBEXEC)/,$(HELPERS)) $(ROOT)/$(LIBEXEC)/
	@for unit in $(UNIT_FILES); do \
		sed 's|@bindir@|$(PREFIX)/bin|' packaging/systemd/$$unit >$(UNITS)/$$unit && chmod 644 $(UNITS)/$$unit || exit 1; done
	$(BIN)/shellctl completion bash >$(COMPLETION_BASH)
	$(BIN)/shellctl completion zsh >$(COMPLETION_ZSH)
	$(BIN)/shellctl completion fish >$(COMPLETION_FISH)
	chmod 644 $(COMPLETION_BASH) $(COMPLETION_ZSH) $(COMPLETION_FISH)
	$(if $(DOCUMENTS),$(INSTALL) -m 644 $(DOCUMENTS) $(SHARE)/doc/shelld/)
	@$(if $(DESTDIR),:,printf '%s\n' 'Installed to $(PREFIX). With systemd, start it as yourself:' \
		'  systemctl --user daemon-reload' '  systemctl --user enable --now shelld.socket' 'Without: run shelld.')

# Every PREFIX has these, so that they stay, unless they are for a package.
KEPT := $(if $(DESTDIR),$(DESTDIR),$(ROOT) $(ROOT)/bin $(ROOT)/lib $(SHARE))

.PHONY: uninstall
uninstall: ## remove what make install put there, with the same PREFIX and DESTDIR
	@:$(check_prefix)
	rm -f $(INSTALLED)
	@for folder in $(FOLDERS); do \
		until case ' $(KEPT) ' in *" $$folder "*) : ;; *) ! rmdir "$$folder" 2>/dev/null ;; esac; do \
			folder=$${folder%/*}; \
		done; done
