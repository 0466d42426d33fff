package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/shelld/shelld/rpc"
)

// TestBadConfiguration: every fault is named with file and line, and nothing
// is started or made.
func TestBadConfiguration(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		for name, tt := range map[string]struct {
			text string
			says []string
		}{
			"unknown key":     {"version = 1\n[limits]\ntimeuot = \"1s\"\n", []string{"config.toml:3: limits.timeuot", "limits.timeout"}},
			"wrong type":      {"version = 1\n[limits]\nmax_containers = \"many\"\n", []string{"config.toml:3: limits.max_containers"}},
			"unknown section": {"version = 1\n[limit]\nx = 1\n", []string{"config.toml:3: limit.x", "[limits]"}},
			"no version":      {"[limits]\n", []string{"config.toml: version"}},
			"no TOML":         {"version = 1\nlimits\n", []string{"config.toml:2"}},
			"two faults":      {"version = 1\n[limits]\ntimeout = 3\nmax_runs = 0\n", []string{"config.toml:3: limits.timeout", "limits.max_runs"}},
		} {
			t.Run(name, func(t *testing.T) {
				i := newInstance(t, m)
				i.config = tt.text
				says(t, i.failsToStart(t), tt.says...)
				for path := range tree(t, i.dir) {
					if path != "." && path != "config.toml" && path != "shelld.log" {
						t.Errorf("%s was made", path)
					}
				}
			})
		}
	})
}

// TestNotReady: what the machine lacks is said, with the way out of it, while
// the daemon stays up.
func TestNotReady(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		mode  mode
		setUp func(*testing.T, *instance)
		says  []string
	}{
		{name: "a folder without the bundle", mode: asRoot, setUp: withoutBundle, says: []string{"is missing or not executable", "make build"}},
		{name: "a folder without the bundle, rootless", mode: rootless, setUp: withoutBundle, says: []string{"is missing or not executable", "make build"}},
		{name: "a user without subordinate ids", mode: rootless, setUp: func(t *testing.T, i *instance) {
			if os.Geteuid() != 0 {
				notHere(t, "only root can be another user")
			}
			i.owner = &syscall.Credential{Uid: 54321, Gid: 54321}
			if err := i.chown(i.dir); err != nil {
				t.Fatal(err)
			}
		}, says: []string{"user 54321 has 0 subordinate user ids", "sudo usermod --add-subuids"}},
		{name: "a host path that cannot be", mode: asRoot, setUp: func(t *testing.T, i *instance) {
			link := filepath.Join("/opt", filepath.Base(i.dir))
			plantedAt(t, link)
			if err := os.Symlink(i.dir, link); err != nil {
				t.Fatal(err)
			}
			i.config += fmt.Sprintf("[image]\nhost_paths = [%q]\n", link)
		}, says: []string{"host path not usable", "would show"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			i := newInstance(t, tt.mode)
			tt.setUp(t, i)
			if err := i.spawn(); err != nil {
				t.Fatal(err)
			}
			var message string
			eventually(t, "the reason is known", patience, func() bool {
				if i.ready() == nil {
					t.Fatal("it is ready")
				}
				if !i.running() {
					t.Fatalf("the daemon has ended:\n%s", i.logs())
				}
				status, answer, err := i.send(t.Context(), http.MethodGet, "/readyz", nil)
				message = string(answer)
				return err == nil && status == http.StatusServiceUnavailable && !strings.Contains(message, "is starting")
			})
			status, code, _, message := refused(t, i, http.MethodGet, "/readyz", nil)
			if status != http.StatusServiceUnavailable || code != "not_ready" {
				t.Errorf("/readyz: %d %s", status, code)
			}
			says(t, message, tt.says...)
			if info := get[rpc.Info](t, i, "/v1/info"); info.Ready || deref(info.NotReady) != message {
				t.Errorf("info says %v, %q", info.Ready, deref(info.NotReady))
			}
			for path, body := range map[string]object{"/v1/containers": {"name": "x"}, "/v1/shell_calls": {"action": object{"commands": []string{"true"}}}} {
				if status, code, _, got := refused(t, i, http.MethodPost, path, body); status != http.StatusServiceUnavailable || code != "not_ready" || got != message {
					t.Errorf("%s: %d %s %s", path, status, code, got)
				}
			}
			if status, _, err := i.send(t.Context(), http.MethodGet, "/healthz", nil); err != nil || status != http.StatusOK {
				t.Errorf("/healthz: %d %v", status, err)
			}
		})
	}
}

func withoutBundle(t *testing.T, i *instance) {
	t.Helper()
	i.libexec = filepath.Join(i.dir, "empty")
	if err := os.Mkdir(i.libexec, 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestBecomesReady: a daemon that lacked something starts to work when it is
// there, without a restart.
func TestBecomesReady(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := newInstance(t, m)
		i.libexec = filepath.Join(i.dir, "libexec")
		if err := i.spawn(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it says what is missing", patience, func() bool {
			status, answer, err := i.send(t.Context(), http.MethodGet, "/readyz", nil)
			return err == nil && status == http.StatusServiceUnavailable && strings.Contains(string(answer), "make build")
		})
		if err := os.Symlink(bundleDir, i.libexec); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is ready", patience, func() bool { return i.ready() == nil })
		if got := sh(t, i, create(t, i), "echo works"); got != "works\n" {
			t.Errorf("got %q", got)
		}
	})
}

// TestUnenforceable: without the user's consent nothing runs whose limits are
// not enforced, and with it the container says so.
func TestUnenforceable(t *testing.T) {
	t.Parallel()
	rootless.need(t)
	i := newInstance(t, rootless)
	i.config = configRoot
	i.start(t)
	info := get[rpc.Info](t, i, "/v1/info")
	if info.Cgroup.Version != 0 {
		notHere(t, "this machine enforces limits for ordinary users")
	}
	if deref(info.Cgroup.Reason) == "" {
		t.Error("info does not say why")
	}
	resp, err := i.open(t.Context(), http.MethodPost, "/v1/containers", object{"name": "x"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("create: %d %v", resp.StatusCode, resp.Header)
	}
	if _, code, _, message := refused(t, i, http.MethodPost, "/v1/shell_calls", object{"action": object{"commands": []string{"true"}}}); code != "limits_unenforceable" || !strings.Contains(message, "allow_unenforced") {
		t.Errorf("call: %s %s", code, message)
	}
	if left := processesOf(filepath.Join(i.run, "sb")); len(left) != 0 {
		t.Errorf("something was started: %v", left)
	}
	allowed, err := sharedInstance(rootless)
	if err != nil {
		t.Fatal(err)
	}
	c := get[rpc.Container](t, allowed, "/v1/containers/"+create(t, allowed))
	if c.Limits.Memory.Enforced || c.Limits.Pids.Enforced {
		t.Errorf("limits %+v", c.Limits)
	}
}
