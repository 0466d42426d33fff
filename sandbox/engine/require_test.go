package engine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shelld/shelld/sandbox"
)

// goodHost is a host that meets all requirements.
func goodHost(t *testing.T) (Host, Dirs) {
	t.Helper()
	dir := t.TempDir()
	h := Host{
		Proc: filepath.Join(dir, "proc"), Etc: filepath.Join(dir, "etc"),
		Release: "6.1.0-13-amd64", User: "ann", UID: 1000, GID: 1000,
		LookPath: func(name string) (string, error) { return "/usr/bin/" + name, nil },
	}
	write(t, h.Etc, "subuid", "bob:100000:65536\nann:165536:65536\n")
	write(t, h.Etc, "subgid", "bob:100000:65536\n1000:165536:65536\n")
	write(t, h.Proc, "sys/user/max_user_namespaces", "63000\n")
	dirs := Dirs{Root: filepath.Join(dir, "root"), Run: filepath.Join(dir, "run"), Libexec: filepath.Join(dir, "libexec")}
	for _, name := range []string{binContainerd, binShim, binRunc, binInit} {
		write(t, dirs.Libexec, name, "")
		if err := os.Chmod(filepath.Join(dirs.Libexec, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h, dirs
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func without(name string) func(string) (string, error) {
	return func(asked string) (string, error) {
		if asked == name {
			return "", exec.ErrNotFound
		}
		return "/usr/bin/" + asked, nil
	}
}

func TestRequire(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(t *testing.T, h *Host, dirs *Dirs)
		// root and rootless are parts of the message; "" means no refusal.
		root, rootless string
	}{
		{name: "good", change: func(*testing.T, *Host, *Dirs) {}},
		{
			name:   "old kernel",
			change: func(_ *testing.T, h *Host, _ *Dirs) { h.Release = "5.10.0-28-amd64" },
			root:   "5.14 or later", rootless: "5.14 or later",
		},
		{name: "kernel just new enough", change: func(_ *testing.T, h *Host, _ *Dirs) { h.Release = "5.14" }},
		{
			name: "missing runc",
			change: func(t *testing.T, _ *Host, dirs *Dirs) {
				t.Helper()
				if err := os.Remove(filepath.Join(dirs.Libexec, binRunc)); err != nil {
					t.Fatal(err)
				}
			},
			root: "make build", rootless: "make build",
		},
		{
			name: "shim not executable",
			change: func(t *testing.T, _ *Host, dirs *Dirs) {
				t.Helper()
				if err := os.Chmod(filepath.Join(dirs.Libexec, binShim), 0o644); err != nil {
					t.Fatal(err)
				}
			},
			root: "not executable", rootless: "not executable",
		},
		{
			name:     "no newuidmap",
			change:   func(_ *testing.T, h *Host, _ *Dirs) { h.LookPath = without("newuidmap") },
			rootless: "sudo apt install uidmap",
		},
		{
			name:   "no nsenter",
			change: func(_ *testing.T, h *Host, _ *Dirs) { h.LookPath = without("nsenter") },
			root:   "util-linux", rootless: "util-linux",
		},
		{
			name: "no user namespaces",
			change: func(t *testing.T, h *Host, _ *Dirs) {
				t.Helper()
				write(t, h.Proc, "sys/user/max_user_namespaces", "0\n")
			},
			rootless: "sudo sysctl -w user.max_user_namespaces=65536",
		},
		{
			name: "no unprivileged user namespaces",
			change: func(t *testing.T, h *Host, _ *Dirs) {
				t.Helper()
				write(t, h.Proc, "sys/kernel/unprivileged_userns_clone", "0\n")
			},
			rootless: "sudo sysctl -w kernel.unprivileged_userns_clone=1",
		},
		{
			name: "apparmor without profile",
			change: func(t *testing.T, h *Host, _ *Dirs) {
				t.Helper()
				write(t, h.Proc, "sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
				write(t, h.Proc, "self/attr/apparmor/current", "unconfined\n")
			},
			rootless: "AppArmor",
		},
		{
			name: "apparmor with profile",
			change: func(t *testing.T, h *Host, _ *Dirs) {
				t.Helper()
				write(t, h.Proc, "sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
				write(t, h.Proc, "self/attr/apparmor/current", "shelld (unconfined)\n")
			},
		},
		{
			name: "no subordinate user ids",
			change: func(t *testing.T, h *Host, _ *Dirs) {
				t.Helper()
				write(t, h.Etc, "subuid", "bob:100000:65536\n")
			},
			rootless: "sudo usermod --add-subuids 231072-296607 --add-subgids 231072-296607 ann",
		},
		{
			name: "no file of subordinate group ids",
			change: func(t *testing.T, h *Host, _ *Dirs) {
				t.Helper()
				if err := os.Remove(filepath.Join(h.Etc, "subgid")); err != nil {
					t.Fatal(err)
				}
			},
			rootless: "0 subordinate group ids",
		},
		{
			name: "too few subordinate ids",
			change: func(t *testing.T, h *Host, _ *Dirs) {
				t.Helper()
				write(t, h.Etc, "subuid", "ann:100000:100\n")
			},
			rootless: "100 subordinate user ids",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, dirs := goodHost(t)
			test.change(t, &h, &dirs)
			for mode, want := range map[Mode]string{ModeRoot: test.root, ModeRootless: test.rootless} {
				checkRefusal(t, mode, Require(h, dirs, mode), want)
			}
		})
	}
}

func checkRefusal(t *testing.T, mode Mode, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Errorf("%s: refused: %v", mode, err)
		}
		return
	}
	var refusal *sandbox.Error
	if !errors.As(err, &refusal) || refusal.Code != sandbox.CodeNotReady || !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("%s: %v; want a refusal with code not_ready", mode, err)
		return
	}
	if !strings.Contains(refusal.Message, want) {
		t.Errorf("%s: message %q lacks %q", mode, refusal.Message, want)
	}
}

func TestMapArgs(t *testing.T) {
	t.Parallel()
	got := strings.Join(mapArgs(1000, []subRange{{start: 100000, count: 65536}, {start: 500000, count: 10}}), " ")
	if want := "0 1000 1 1 100000 65536 65537 500000 10"; got != want {
		t.Errorf("arguments = %q; want %q", got, want)
	}
}

func TestReadSubIDsSkipsWhatIsNoRange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "subuid", "# comment\nann:1:2\nann:x:2\nann:1\n\nann:4294967295:2\nann:5:0\nann:7:8\n")
	got, err := readSubIDs(filepath.Join(dir, "subuid"))
	if err != nil || len(got) != 2 || got[0].start != 1 || got[1].start != 7 {
		t.Errorf("ranges = %v, %v", got, err)
	}
}
