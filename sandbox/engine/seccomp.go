package engine

import (
	"slices"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// seccompProfile is containerd's default profile as it is for a process
// without any capability, which is what commands are; the guest has some at
// first and must do with the same profile. It adds umount2, by which the guest
// detaches its socket's directory and which commands have no right to use, and
// clone3 when asked for: that cannot be filtered by its flags, but new user
// namespaces are off by sysctl and all others need capabilities.
func seccompProfile(clone3 bool) *specs.LinuxSeccomp {
	bare := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}, Linux: &specs.Linux{}}
	profile := seccomp.DefaultProfile(bare)
	allowed := []string{"umount2"}
	if clone3 {
		allowed = append(allowed, "clone3")
		// The profile answers ENOSYS to clone3, which goes before.
		for i := range profile.Syscalls {
			s := &profile.Syscalls[i]
			s.Names = slices.DeleteFunc(s.Names, func(name string) bool { return name == "clone3" })
		}
		profile.Syscalls = slices.DeleteFunc(profile.Syscalls, func(s specs.LinuxSyscall) bool { return len(s.Names) == 0 })
	}
	profile.Syscalls = append(profile.Syscalls, specs.LinuxSyscall{Names: allowed, Action: specs.ActAllow})
	return profile
}
