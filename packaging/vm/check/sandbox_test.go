//go:build vm

package check

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

// box is a sandbox under test.
type box struct {
	rpc.Container
}

// newBox makes a sandbox that is gone after the test.
func newBox(t *testing.T, memory string) *box {
	t.Helper()
	ready(t)
	b := &box{}
	patiently(t, http.MethodPost, "/v1/containers", rpc.ContainerCreate{Name: t.Name(), MemoryLimit: &memory}, &b.Container)
	t.Cleanup(func() { patiently(t, http.MethodDelete, "/v1/containers/"+b.ID, nil, nil) })
	return b
}

// patiently is must, with the patience of an SDK while the engine comes back.
func patiently(t *testing.T, method, path string, in, out any) {
	t.Helper()
	await(t, method+" "+path, func() bool {
		status, err := request(t, method, path, in, out)
		if err != nil && status != http.StatusServiceUnavailable && status != http.StatusNotFound {
			t.Fatalf("%s %s: %d %v", method, path, status, err)
		}
		if status == http.StatusServiceUnavailable {
			t.Logf("%s %s: %v", method, path, err)
		}
		return status != http.StatusServiceUnavailable
	})
}

// call runs one command.
func (b *box) call(t *testing.T, timeoutMS int64, command string) (rpc.OutputChunk, rpc.ShellResult) {
	t.Helper()
	var call rpc.ShellCall
	must(t, http.MethodPost, "/v1/shell_calls", rpc.ShellCallCreate{
		Action:      &rpc.ShellAction{Commands: []string{command}, TimeoutMS: &timeoutMS},
		Environment: &rpc.Environment{Type: "container_reference", ContainerID: b.ID},
	}, &call)
	if call.Output == nil || len(call.Output.Output) != 1 || len(call.Results) != 1 {
		t.Fatalf("shell call without one result: %+v", call)
	}
	return call.Output.Output[0], call.Results[0]
}

// output runs a command that has to succeed and returns what it printed.
func (b *box) output(t *testing.T, command string) string {
	t.Helper()
	out, result := b.call(t, patience.Milliseconds(), command)
	if result.Reason != "exit" || result.ExitCode == nil || *result.ExitCode != 0 {
		t.Fatalf("%s: %s %s\n%s%s", command, result.Reason, code(result), out.Stdout, out.Stderr)
	}
	return out.Stdout
}

// answers makes sure that the sandbox still does what it is for.
func (b *box) answers(t *testing.T) {
	t.Helper()
	if out := b.output(t, "echo still here"); out != "still here\n" {
		t.Errorf("the sandbox answers %q", out)
	}
}

func code(r rpc.ShellResult) string {
	if r.ExitCode == nil {
		return "without exit code"
	}
	return strconv.Itoa(*r.ExitCode)
}

// cgroup is the folder of the sandbox's cgroup.
func (b *box) cgroup(t *testing.T) string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(scopeDir(t), "shelld-*", sandbox.ID(b.ID).Key()))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("cgroups of %s: %v %v", b.ID, dirs, err)
	}
	return dirs[0]
}

// guest is process 1 of the sandbox as the host sees it.
func (b *box) guest(t *testing.T) int {
	t.Helper()
	pid, err := strconv.Atoi(read(t, filepath.Join(b.cgroup(t), "init", "cgroup.procs")))
	if err != nil {
		t.Fatalf("guest of %s: %v", b.ID, err)
	}
	return pid
}

// populated reports whether any command's process lives.
func (b *box) populated(t *testing.T) bool {
	t.Helper()
	return counter(t, filepath.Join(b.cgroup(t), "runs", "cgroup.events"), "populated") != 0
}

// read returns a file's text without white space around it.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// counter is a number out of a file of "name number" lines.
func counter(t *testing.T, path, name string) int {
	t.Helper()
	for line := range strings.Lines(read(t, path)) {
		if number, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("%s has no %s", path, name)
	return 0
}

// scopes lists the units in which sandboxes live.
func scopes(t *testing.T) []string {
	t.Helper()
	var names []string
	for line := range strings.Lines(systemctl(t, "list-units", "--all", "--plain", "--no-legend", "--full", "shelld-sandboxes*.scope")) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	return names
}

// scopeDir is the folder of the cgroup of the one scope of sandboxes.
func scopeDir(t *testing.T) string {
	t.Helper()
	dirs, err := filepath.Glob("/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/shelld-sandboxes*.scope")
	if err != nil || len(dirs) != 1 {
		t.Fatalf("scopes of sandboxes: %v %v", dirs, err)
	}
	return dirs[0]
}
