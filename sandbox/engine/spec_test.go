package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/shelld/shelld/sandbox/engine/hostimage"
	"github.com/shelld/shelld/sandbox/engine/rundir"
)

func testSpec(change func(*specInput)) *specs.Spec {
	in := specInput{
		dirs:  Dirs{Root: "/r", Run: "/u", Libexec: "/l"},
		key:   "0123456789abcdef",
		image: &hostimage.Image{Mounts: []hostimage.Mount{{Source: "/usr", Target: "/usr"}}},
		slot:  rootPool(nil, 0).slot(0),
		mode:  ModeRoot,
	}
	change(&in)
	return buildSpec(in)
}

func TestSpecMounts(t *testing.T) {
	t.Parallel()
	spec := testSpec(func(*specInput) {})
	sources := map[string]string{}
	for _, m := range spec.Mounts {
		if m.Type != "bind" {
			continue
		}
		sources[m.Destination] = m.Source
		if !slices.Contains(m.Options, "rnosuid") && !slices.Contains(m.Options, "nosuid") {
			t.Errorf("mount %+v allows set-user-id programs", m)
		}
		if m.Destination != hostimage.GuestDir && !slices.Contains(m.Options, "rro") && !slices.Contains(m.Options, "ro") {
			t.Errorf("mount %+v is writable", m)
		}
	}
	want := map[string]string{"/usr": "/usr", "/.shelld/init": "/l/shelld-init", "/.shelld/run": "/u/sb/0123456789abcdef"}
	if len(sources) != len(want) {
		t.Errorf("binds = %v; want %v", sources, want)
	}
	for target, source := range want {
		if sources[target] != source {
			t.Errorf("%s comes from %q; want %q", target, sources[target], source)
		}
	}
	if spec.Linux.RootfsPropagation != "private" {
		t.Errorf("propagation = %q", spec.Linux.RootfsPropagation)
	}
}

func TestSpecProcess(t *testing.T) {
	t.Parallel()
	spec := testSpec(func(*specInput) {})
	p := spec.Process
	if !p.NoNewPrivileges || p.Terminal || p.User.UID != 0 || p.Cwd != "/" {
		t.Errorf("process = %+v", p)
	}
	if len(p.Capabilities.Inheritable) != 0 || len(p.Capabilities.Ambient) != 0 {
		t.Errorf("capabilities = %+v; want none that children inherit", p.Capabilities)
	}
	if len(p.Rlimits) != 1 || p.Rlimits[0] != (specs.POSIXRlimit{Type: "RLIMIT_CORE", Soft: 1, Hard: 1}) {
		t.Errorf("limits = %+v", p.Rlimits)
	}
	if spec.Linux.Sysctl["user.max_user_namespaces"] != "0" {
		t.Errorf("sysctl = %v", spec.Linux.Sysctl)
	}
	for _, ns := range []specs.LinuxNamespaceType{specs.UserNamespace, specs.PIDNamespace, specs.MountNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.NetworkNamespace, specs.CgroupNamespace} {
		if !slices.Contains(spec.Linux.Namespaces, specs.LinuxNamespace{Type: ns}) {
			t.Errorf("namespaces = %v; %s is missing", spec.Linux.Namespaces, ns)
		}
	}
}

func TestSpecCgroup(t *testing.T) {
	t.Parallel()
	if l := testSpec(func(*specInput) {}).Linux; l.CgroupsPath != "" || l.Resources != nil {
		t.Errorf("without a cgroup: path %q, resources %+v", l.CgroupsPath, l.Resources)
	}
	l := testSpec(func(in *specInput) { in.cgroupPath = "/a/b" }).Linux
	if l.CgroupsPath != "/a/b" || l.Resources == nil || len(l.Resources.Devices) != 1 || l.Resources.Devices[0].Allow {
		t.Errorf("with a cgroup: path %q, resources %+v", l.CgroupsPath, l.Resources)
	}
}

func TestSeccompProfile(t *testing.T) {
	t.Parallel()
	allowed := func(profile *specs.LinuxSeccomp, name string) bool {
		return slices.ContainsFunc(profile.Syscalls, func(s specs.LinuxSyscall) bool {
			return s.Action == specs.ActAllow && len(s.Args) == 0 && slices.Contains(s.Names, name)
		})
	}
	plain, with := seccompProfile(false), seccompProfile(true)
	if plain.DefaultAction != specs.ActErrno {
		t.Errorf("default action = %s", plain.DefaultAction)
	}
	for _, name := range []string{"mount", "setns", "unshare", "bpf", "pivot_root", "ptrace_", "kexec_load", "init_module", "open_by_handle_at", "chroot", "reboot", "io_uring_setup", "userfaultfd", "fsopen", "move_mount"} {
		if allowed(plain, name) || allowed(with, name) {
			t.Errorf("%s is allowed", name)
		}
	}
	for _, name := range []string{"read", "execve", "umount2", "capset", "prctl", "setuid"} {
		if !allowed(plain, name) || !allowed(with, name) {
			t.Errorf("%s is not allowed", name)
		}
	}
	if allowed(plain, "clone3") || !allowed(with, "clone3") {
		t.Error("clone3 does not follow the option")
	}
	for _, s := range with.Syscalls {
		if s.Action != specs.ActAllow && slices.Contains(s.Names, "clone3") {
			t.Errorf("a rule against clone3 is left: %+v", s)
		}
	}
	if _, err := json.Marshal(with); err != nil {
		t.Error(err)
	}
}

func TestRenderConfig(t *testing.T) {
	t.Parallel()
	dirs := Dirs{Root: "/var/lib/shelld", Run: "/run/shelld", Libexec: "/l"}
	data, err := renderConfig(dirs)
	if err != nil {
		t.Fatal(err)
	}
	var got containerdConfig
	if _, err := toml.Decode(string(data), &got); err != nil {
		t.Fatal(err)
	}
	if got.Version != 4 || got.Root != "/var/lib/shelld/containerd" || !strings.HasPrefix(got.State, privateRun+"/") {
		t.Errorf("configuration:\n%s", data)
	}
	for plugin, address := range map[string]string{
		"io.containerd.server.v1.grpc": "/run/shelld/containerd.sock", "io.containerd.server.v1.ttrpc": "/run/shelld/containerd.sock.ttrpc",
		"io.containerd.server.v1.debug": "", "io.containerd.server.v1.metrics": "",
	} {
		if got.Plugins[plugin]["address"] != address {
			t.Errorf("address of %s = %v; want %q", plugin, got.Plugins[plugin]["address"], address)
		}
	}
}

func TestDirsValidate(t *testing.T) {
	t.Parallel()
	good := Dirs{Root: "/a", Run: "/b", Libexec: "/c"}
	if err := good.validate(); err != nil {
		t.Errorf("%+v: %v", good, err)
	}
	for _, bad := range []Dirs{
		{Root: "a", Run: "/b", Libexec: "/c"},
		{Root: "/a", Run: "/b/../c", Libexec: "/c"},
		{Root: "/a", Run: "/b", Libexec: ""},
		{Root: "/a", Run: "/a", Libexec: "/c"},
		{Root: "/a", Run: "/" + strings.Repeat("x", rundir.MaxLength), Libexec: "/c"},
	} {
		if err := bad.validate(); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	longest := Dirs{Root: "/a", Run: "/" + strings.Repeat("x", rundir.MaxLength-1), Libexec: "/c"}
	if err := longest.validate(); err != nil {
		t.Error(err)
	}
}
