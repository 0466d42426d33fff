package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/guest"
	"github.com/shelld/shelld/sandbox/limit"
)

// patience is how long tests wait for what is to happen.
const patience = 30 * time.Second

// programs has the built guest for all tests.
var programs struct {
	once sync.Once
	dir  string
}

func TestMain(m *testing.M) {
	code := m.Run()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir)
	}
	os.Exit(code) //nolint:forbidigo // a main function
}

// buildInit builds shelld-init once.
func buildInit(t *testing.T) string {
	t.Helper()
	programs.once.Do(func() {
		dir, err := os.MkdirTemp("", "runner-test-bin-")
		if err != nil {
			t.Fatal(err)
		}
		programs.dir = dir
		cmd := exec.Command("go", "build", "-o", dir, "../../cmd/shelld-init")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build shelld-init: %v\n%s", err, out)
		}
	})
	return filepath.Join(programs.dir, "shelld-init")
}

// rig is a guest as process 1 of a pid namespace, and what opens it.
type rig struct {
	opts     Options
	instance sandbox.Instance
	socket   string
}

// eachMode runs a test with the cgroups of this machine and without any.
func eachMode(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for _, mode := range []string{"cgroups", "anchored"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, mode))
		})
	}
}

func newRig(t *testing.T, mode string) *rig {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make namespaces")
	}
	ctx, log := t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil))
	id := sandbox.NewID()
	treeOpts := limit.Options{Name: "shelld-runner-test-" + id.Key(), Logger: log}
	if mode == "anchored" {
		treeOpts.MountRoot = t.TempDir()
	}
	tree, err := limit.Open(ctx, treeOpts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("cgroups not removed"))
		defer cancel()
		if err := errors.Join(tree.RemoveAll(ctx), tree.Close()); err != nil {
			t.Error(err)
		}
	})
	if mode == "cgroups" && tree.Mode() == limit.None {
		t.Skip(tree.Reason())
	}
	spools, err := OpenSpools(filepath.Join(t.TempDir(), "spool"), 1<<20, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{instance: sandbox.Instance{ID: id, Running: true}}
	r.start(t, cgroupDirs(tree, id))
	r.opts = Options{Tree: tree, Spools: spools, Pids: 512, Log: log, OpenGuest: func(context.Context, sandbox.ID) (*net.UnixConn, error) {
		return net.DialUnix("unix", nil, &net.UnixAddr{Name: r.socket, Net: "unix"})
	}}
	return r
}

// cgroupDirs are the directories that a runtime would make for the sandbox.
func cgroupDirs(tree *limit.Tree, id sandbox.ID) []string {
	const root = "/sys/fs/cgroup"
	path := tree.SandboxPath(id.Key())
	switch tree.Mode() {
	case limit.V2:
		return []string{root + path}
	case limit.V1:
		var dirs []string
		for _, controller := range []string{"memory", "pids", "cpu", "freezer"} {
			if _, err := os.Stat(filepath.Join(root, controller)); err == nil {
				dirs = append(dirs, filepath.Join(root, controller, path))
			}
		}
		return dirs
	case limit.None:
	}
	return nil
}

// start starts the guest in the cgroups.
func (r *rig) start(t *testing.T, cgroups []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "runner-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const script = `dir=$1 init=$2; shift 2
		for cgroup; do mkdir -p "$cgroup" && echo $$ >"$cgroup/cgroup.procs" || exit 1; done
		exec unshare --pid --fork --kill-child --mount --net --mount-proc sh -c 'mount --bind "$1" "$1" && exec "$0" --dir "$1"' "$init" "$dir"`
	cmd := exec.Command("sh", append([]string{"-c", script, "sh", dir, buildInit(t)}, cgroups...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if said.Len() > 0 {
			t.Logf("process 1 said: %s", said.String())
		}
	})
	r.socket = filepath.Join(dir, guest.SocketName)
	eventually(t, "the guest listens", func() bool {
		conn, err := net.Dial("unix", r.socket)
		return err == nil && conn.Close() == nil
	})
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", cmd.Process.Pid, cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	if r.instance.PID, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
		t.Fatal(err)
	}
}

// open opens the box, which is closed at the end of the test.
func (r *rig) open(t *testing.T) *box {
	t.Helper()
	b, err := New(r.opts).Open(t.Context(), r.instance, sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b.(*box)
}

// names lists what runs below the guest, but for anchors and zombies.
func (r *rig) names() (names []string) {
	for todo := []int{r.instance.PID}; len(todo) > 0; todo = todo[1:] {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", todo[0]))
		for _, task := range tasks {
			text, _ := os.ReadFile(task)
			for field := range strings.FieldsSeq(string(text)) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					continue
				}
				todo = append(todo, pid)
				line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
				if len(line) > 0 && !bytes.Contains(line, []byte(guest.AnchorArg)) {
					names = append(names, strings.ReplaceAll(string(line), "\x00", " "))
				}
			}
		}
	}
	return names
}

// command is one with plenty of time.
func command(text string) sandbox.Command {
	return sandbox.Command{Call: sandbox.NewCallID(), Text: text, Dir: "/", Timeout: time.Minute, MaxOutput: 1 << 20}
}

// begin starts a command, whose streams are let go at the end of the test.
func begin(t *testing.T, b *box, cmd sandbox.Command) *run {
	t.Helper()
	started, err := b.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(started.Close)
	return started.(*run)
}

func await(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: nothing in %s", what, patience)
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %s", what, patience)
		}
		<-tick.C
	}
}
