package engine

import (
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/shelld/shelld/sandbox/engine/hostimage"
)

// specInput is what the OCI specification of a sandbox depends on.
type specInput struct {
	dirs       Dirs
	key        string
	image      *hostimage.Image
	slot       idSlot
	cgroupPath string
	clone3     bool
	mode       Mode
}

// buildSpec is the whole OCI specification of a sandbox. It is written out
// here instead of derived from containerd's default, so that nothing that
// decides on containment changes with a new version of a library.
func buildSpec(in specInput) *specs.Spec {
	return &specs.Spec{
		Version:  specs.Version,
		Hostname: hostimage.Hostname,
		Root:     &specs.Root{Path: "rootfs"},
		Process:  buildProcess(),
		Mounts:   buildMounts(in),
		Linux:    buildLinux(in),
	}
}

// guestCapabilities are those of PID 1. It keeps the first four, to start
// commands as another user and to end them; the others it drops once the
// network is set up and its socket's directory is detached. Commands get none.
func guestCapabilities() []string {
	return []string{
		"CAP_SETUID", "CAP_SETGID", "CAP_KILL", "CAP_SETPCAP",
		"CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_SYS_ADMIN",
	}
}

func buildProcess() *specs.Process {
	caps := guestCapabilities()
	return &specs.Process{
		Args:            []string{hostimage.GuestBinary, "--dir", hostimage.GuestDir},
		Env:             []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Cwd:             "/",
		NoNewPrivileges: true,
		Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Permitted: caps, Effective: caps},
		// A limit of 1 is the one that also keeps the kernel from starting a
		// core handler on the host (core(5)).
		Rlimits: []specs.POSIXRlimit{{Type: "RLIMIT_CORE", Soft: 1, Hard: 1}},
	}
}

func buildMounts(in specInput) []specs.Mount {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "nodev", "mode=1777", "size=64m"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
	}
	for _, m := range in.image.Mounts {
		mounts = append(mounts, specs.Mount{
			Destination: m.Target, Type: "bind", Source: m.Source,
			Options: []string{"rbind", "rro", "rnosuid", "rnodev", "rprivate"},
		})
	}
	return append(mounts,
		specs.Mount{
			Destination: hostimage.GuestBinary, Type: "bind", Source: in.dirs.binary(binInit),
			Options: []string{"bind", "ro", "nosuid", "nodev", "private"},
		},
		specs.Mount{
			Destination: hostimage.GuestDir, Type: "bind", Source: in.dirs.guestDir(in.key),
			Options: []string{"bind", "nosuid", "nodev", "noexec", "private"},
		},
	)
}

func buildLinux(in specInput) *specs.Linux {
	l := &specs.Linux{
		Namespaces: []specs.LinuxNamespace{
			{Type: specs.UserNamespace},
			{Type: specs.PIDNamespace},
			{Type: specs.MountNamespace},
			{Type: specs.IPCNamespace},
			{Type: specs.UTSNamespace},
			{Type: specs.NetworkNamespace},
			{Type: specs.CgroupNamespace},
		},
		UIDMappings: specMap(in.slot.uids),
		GIDMappings: specMap(in.slot.gids),
		// Stops user namespaces in the sandbox even where seccomp cannot.
		Sysctl:            map[string]string{"user.max_user_namespaces": "0"},
		Seccomp:           seccompProfile(in.clone3),
		RootfsPropagation: "private",
		MaskedPaths: []string{
			"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
			"/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
			"/sys/devices/virtual/powercap", "/sys/firmware",
		},
		ReadonlyPaths: []string{
			"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
		},
		CgroupsPath: in.cgroupPath,
	}
	if in.cgroupPath != "" && in.mode == ModeRoot {
		// The runtime then allows just the devices that it makes in /dev.
		l.Resources = &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}}
	}
	return l
}

func specMap(ranges []idRange) []specs.LinuxIDMapping {
	var m []specs.LinuxIDMapping
	for _, r := range ranges {
		m = append(m, specs.LinuxIDMapping{ContainerID: r.Inside, HostID: r.Outside, Size: r.Count})
	}
	return m
}
