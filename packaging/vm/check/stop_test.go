//go:build vm

package check

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shelld/shelld/rpc"
)

// processes lists the processes whose command line begins with the program of
// that name and the given arguments.
func processes(t *testing.T, program string, args ...string) []int {
	t.Helper()
	var pids []int
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue // it has ended
		}
		words := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if filepath.Base(words[0]) != program || len(words) <= len(args) || !slices.Equal(words[1:1+len(args)], args) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// nothingLeft makes sure that no process, scope or cgroup of ours is there.
func nothingLeft(t *testing.T) {
	t.Helper()
	for _, program := range []string{"shelld", "containerd", "containerd-shim-runc-v2", "shelld-init", "runc"} {
		await(t, program+" is gone", func() bool { return len(processes(t, program)) == 0 })
	}
	if left := processes(t, "sleep"); len(left) > 0 {
		t.Errorf("commands live on: %v", left)
	}
	await(t, "the scope is gone", func() bool { return len(scopes(t)) == 0 })
	left, err := filepath.Glob("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/shelld*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range left {
		if !strings.HasSuffix(dir, "/"+socketUnit) {
			t.Errorf("%s is left", dir)
		}
	}
	if mounts := read(t, "/proc/self/mountinfo"); strings.Contains(mounts, "shelld/") {
		t.Errorf("mounts are left:\n%s", mounts)
	}
}

func TestShutdownWithSandboxesLeavesNothing(t *testing.T) {
	newKeeper(t)
	must(t, http.MethodPost, "/v1/shutdown", rpc.Shutdown{Sandboxes: true}, nil)
	await(t, "the units have stopped", func() bool {
		return property(t, daemonUnit, "ActiveState") == "inactive" && property(t, engineUnit, "ActiveState") == "inactive"
	})
	nothingLeft(t)
	// The next request starts all of it again.
	newBox(t, "256m").answers(t)
}

func TestShutdownKeepsSandboxes(t *testing.T) {
	k := newKeeper(t)
	must(t, http.MethodPost, "/v1/shutdown", rpc.Shutdown{}, nil)
	await(t, "the daemon has stopped", func() bool { return property(t, daemonUnit, "ActiveState") == "inactive" })
	k.kept(t)
}
