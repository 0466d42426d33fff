package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a sandbox is made of, seen from its PID 1.
func TestEngineSandboxIsContained(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	instance := create(t, e)
	pid := instance.PID

	t.Run("credentials", func(t *testing.T) {
		status := readProc(t, pid, "status")
		for _, line := range []string{"NoNewPrivs:\t1\n", "Seccomp:\t2\n", "CapAmb:\t0000000000000000\n"} {
			if !strings.Contains(status, line) {
				t.Errorf("status lacks %q:\n%s", line, status)
			}
		}
		// SETUID SETGID KILL SETPCAP NET_BIND_SERVICE NET_ADMIN SYS_ADMIN at
		// most; the guest drops some once it is set up.
		const most = 1<<7 | 1<<6 | 1<<5 | 1<<8 | 1<<10 | 1<<12 | 1<<21
		for _, name := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd"} {
			if caps := capability(t, status, name); caps&^most != 0 {
				t.Errorf("%s = %x; want nothing but %x", name, caps, most)
			}
		}
	})
	t.Run("ids", func(t *testing.T) {
		m, err := readIDMap(fmt.Sprintf("/proc/%d/uid_map", pid))
		if err != nil {
			t.Fatal(err)
		}
		if hostMode() == ModeRoot {
			if len(m) != 1 || m[0].Count != idBlock || m[0].Outside < idBase {
				t.Errorf("uid map = %v; want a block above %d", m, idBase)
			}
			return
		}
		if len(m) != 2 || m[0].Inside != 0 || m[1].Inside != 1000 || m[0].Count != 1 || m[1].Count != 1 {
			t.Errorf("uid map = %v; want 0 and 1000", m)
		}
		for _, r := range m {
			if int(r.Outside) == os.Getuid() {
				t.Errorf("uid map = %v holds our own id", m)
			}
		}
	})
	t.Run("namespaces", func(t *testing.T) {
		for _, name := range []string{"user", "mnt", "pid", "ipc", "uts", "net", "cgroup"} {
			inside, err1 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
			own, err2 := os.Readlink("/proc/self/ns/" + name)
			holder, err3 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", holderOf(t, e).PID, name))
			if err1 != nil || err2 != nil || err3 != nil {
				t.Fatal(err1, err2, err3)
			}
			if inside == own || inside == holder {
				t.Errorf("namespace %s is shared with the host", name)
			}
		}
	})
	t.Run("network", func(t *testing.T) {
		lines := strings.Split(strings.TrimSpace(readProc(t, pid, "net/dev")), "\n")
		if len(lines) != 3 || !strings.HasPrefix(strings.TrimSpace(lines[2]), "lo:") {
			t.Errorf("interfaces:\n%s\nwant lo only", strings.Join(lines, "\n"))
		}
	})
	t.Run("limits", func(t *testing.T) {
		if fields := strings.Fields(lineOf(t, readProc(t, pid, "limits"), "Max core file size")); !slices.Equal(fields[4:6], []string{"1", "1"}) {
			t.Errorf("core limit = %v; want 1 and 1", fields)
		}
	})
	t.Run("files", func(t *testing.T) {
		root := fmt.Sprintf("/proc/%d/root", pid)
		wantNames(t, root, []string{".shelld", "bin", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"})
		wantNames(t, root+"/home", []string{"sandbox"})
		wantNames(t, root+"/root", nil)
		wantNames(t, root+"/run", []string{"lock"})
		wantNames(t, root+"/opt", nil)
		for _, private := range []string{"etc/shadow", "etc/gshadow", "etc/ssh", "etc/ssl/private", "etc/sudoers", "etc/machine-id", "etc/npmrc", "etc/pip.conf", "etc/hostname.host", "var/lib/dpkg"} {
			if _, err := os.Lstat(filepath.Join(root, private)); !os.IsNotExist(err) {
				t.Errorf("/%s is visible: %v", private, err)
			}
		}
		if data, err := os.ReadFile(root + "/etc/passwd"); err != nil || strings.Count(string(data), "\n") != 3 {
			t.Errorf("passwd = %q, %v", data, err)
		}
	})
	t.Run("mounts", func(t *testing.T) {
		eventually(t, "the guest has detached its socket's directory", func() bool {
			return !strings.Contains(readProc(t, pid, "mountinfo"), instance.ID.Key())
		})
		for line := range strings.Lines(readProc(t, pid, "mountinfo")) {
			fields := strings.Fields(line)
			target, options := fields[4], strings.Split(fields[5], ",")
			if strings.HasPrefix(target, "/usr") || strings.HasPrefix(target, "/etc/") {
				for _, want := range []string{"ro", "nosuid", "nodev"} {
					if !slices.Contains(options, want) {
						t.Errorf("mount %s is not %s: %s", target, want, line)
					}
				}
			}
			if strings.HasPrefix(target, "/sys/fs/cgroup") {
				t.Errorf("a cgroup file system is mounted: %s", line)
			}
			if strings.Contains(line, "shared:") || strings.Contains(line, "master:") {
				t.Errorf("mount %s is tied to the host's: %s", target, line)
			}
		}
	})
}

// wantNames fails the test when the directory holds anything else.
func wantNames(t *testing.T, dir string, allowed []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !slices.Contains(allowed, entry.Name()) {
			t.Errorf("%s holds %s", dir, entry.Name())
		}
	}
}

func lineOf(t *testing.T, text, prefix string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			return line
		}
	}
	t.Fatalf("no line starts with %q in:\n%s", prefix, text)
	return ""
}

func capability(t *testing.T, status, name string) uint64 {
	t.Helper()
	var caps uint64
	if _, err := fmt.Sscanf(lineOf(t, status, name+":"), name+":\t%x", &caps); err != nil {
		t.Fatal(err)
	}
	return caps
}
