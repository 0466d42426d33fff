# make test-vm: our software on a desktop-like machine, which is Debian with
# systemd, cgroup v2 and an ordinary user, in User-Mode Linux. That is a kernel
# that runs as a process: it needs neither root nor virtualization.

VM := packaging/vm
VM_DIST := dist/vm
VM_TIMEOUT ?= 600
VM_CHECKS ?= .

$(VM_DIST)/debian.img: $(VM)/image.sh $(shell find $(VM)/root -type f) $(wildcard /usr/bin/linux.uml)
	@$(VM)/image.sh $@

.PHONY: test-vm
test-vm: ## run our software on a machine with systemd and cgroup v2; VM_CHECKS=REGEXP chooses
	@packaging/prereq.sh vm
	@$(MAKE) build
	@$(MAKE) $(VM_DIST)/debian.img
	@$(VM)/run.sh $(VM_DIST) $(VM_TIMEOUT) '$(VM_CHECKS)'
