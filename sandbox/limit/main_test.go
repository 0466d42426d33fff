package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	testPrefix = "shelld-limit-test"
	// roleEnv makes the test binary something else than a test.
	roleEnv = "SHELLD_LIMIT_TEST_ROLE"
	// patience bounds every wait of the tests.
	patience = 60 * time.Second
	nobody   = 65534
)

// mountRoots are where the tests look for cgroups: as installed, and the
// controller-less v2 hierarchy that hybrid machines have beside v1.
var mountRoots = []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
	case "open":
		os.Exit(roleOpen())
	case "delegated":
		os.Exit(roleDelegated())
	case "clone":
		os.Exit(roleClone())
	}
	if err := sweep(); err != nil {
		fmt.Fprintln(os.Stderr, "sweep:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// sweep removes what killed earlier test processes left behind. Names of test
// trees tell which process made them.
func sweep() error {
	var errs []error
	for _, root := range mountRoots {
		hs, err := mounted(root)
		if err != nil {
			return err
		}
		names := make(map[string]bool)
		for _, h := range hs {
			found, err := subdirs(h.dir)
			if err != nil {
				return err
			}
			for _, name := range found {
				names[name] = true
			}
		}
		for name := range names {
			maker, ok := strings.CutPrefix(name, testPrefix+"-")
			if !ok || makerLives(maker) {
				continue
			}
			ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("leftovers do not go"))
			tree, err := Open(ctx, Options{Name: name, MountRoot: root, Logger: slog.New(slog.DiscardHandler)})
			if err == nil {
				err = errors.Join(tree.RemoveAll(ctx), tree.Close())
			}
			cancel()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// makerLives reports whether "pid-start-n" names a live process.
func makerLives(maker string) bool {
	pid, rest, _ := strings.Cut(maker, "-")
	start, _, _ := strings.Cut(rest, "-")
	n, err := strconv.Atoi(pid)
	return err != nil || startTime(n) == start
}

// startTime is field 22 of /proc/<pid>/stat, empty for no such process.
func startTime(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

var treeCount atomic.Int64

func newName() string {
	return fmt.Sprintf("%s-%d-%s-%d", testPrefix, os.Getpid(), startTime(os.Getpid()), treeCount.Add(1))
}

// budget returns a context that ends before the test would hang.
func budget(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), patience, errors.New("test ran out of patience"))
	t.Cleanup(cancel)
	return ctx
}

func openTree(t testing.TB, root, name string) *Tree {
	t.Helper()
	tree, err := Open(budget(t), Options{Name: name, MountRoot: root, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

// newTree returns a tree of its own for the test, which is gone after it.
func newTree(t testing.TB, root string) *Tree {
	t.Helper()
	tree := openTree(t, root, newName())
	if tree.Mode() == None {
		t.Skip(tree.Reason())
	}
	t.Cleanup(func() {
		if err := tree.RemoveAll(budget(t)); err != nil {
			t.Error(err)
		}
		for _, h := range tree.all {
			if _, err := os.Stat(filepath.Join(h.dir, tree.root.rel)); err == nil {
				t.Errorf("%s%s is left", h.dir, tree.root.rel)
			}
		}
	})
	return tree
}

// eachMode runs the test with v1 and v2 as far as the machine has them.
func eachMode(t *testing.T, test func(t *testing.T, tree *Tree)) {
	t.Parallel()
	for _, root := range mountRoots {
		t.Run(strings.Trim(strings.ReplaceAll(root, "/", "."), "."), func(t *testing.T) {
			t.Parallel()
			tree := newTree(t, root)
			t.Log("mode", tree.Mode(), tree.Reason())
			test(t, tree)
		})
	}
}

// guest stands for PID 1 of a sandbox: a shell that does what it is told.
type guest struct {
	cmd *exec.Cmd
	in  interface{ Write([]byte) (int, error) }
}

func (g *guest) pid() int { return g.cmd.Process.Pid }

func (g *guest) tell(t testing.TB, line string) {
	t.Helper()
	if _, err := fmt.Fprintln(g.in, line); err != nil {
		t.Fatal(err)
	}
}

// newSandbox makes a sandbox as the runtime would, with a guest, and takes it
// over.
func newSandbox(t testing.TB, tree *Tree, key string) (*Sandbox, *guest) {
	t.Helper()
	g := newGuest(t, tree, key)
	s, err := tree.Sandbox(budget(t), key, g.pid())
	if err != nil {
		t.Fatal(err)
	}
	return s, g
}

func newGuest(t testing.TB, tree *Tree, key string) *guest {
	t.Helper()
	box := tree.root.child(key)
	if err := box.create(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", enter(box)+`while read -r line; do eval "$line"; done`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	startIn(t, cmd, box)
	return &guest{cmd: cmd, in: in}
}

// enter is what a shell must do first to be in a v1 cgroup; on v2 it starts
// there.
func enter(g group) string {
	if g.v2() {
		return ""
	}
	var b strings.Builder
	for i := range g.hs {
		fmt.Fprintf(&b, "echo 0 >&%d && exec %d>&- || exit 99; ", 3+i, 3+i)
	}
	return b.String()
}

// startIn starts the command with the cgroup's files, and returns when it is
// inside.
func startIn(t testing.TB, cmd *exec.Cmd, g group) {
	t.Helper()
	files, err := g.open()
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(files)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if g.v2() {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(files[0].Fd())
	} else {
		cmd.ExtraFiles = files
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	waitFor(t, "the command is inside", func() bool {
		pids, err := g.pids()
		if err != nil {
			t.Fatal(err)
		}
		return len(pids) > 0
	})
}

// spawn starts a shell script in the run as an ordinary user.
func spawn(t testing.TB, r *Run, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", enter(r.group)+script)
	cmd.Stderr = t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	startIn(t, cmd, r.group)
	return cmd
}

func takeRun(t testing.TB, s *Sandbox) *Run {
	t.Helper()
	r, err := s.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	if err := until(budget(t), func() (bool, error) { return done(), nil }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func pidsOf(t testing.TB, r *Run) []int {
	t.Helper()
	pids, err := r.PIDs()
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

func alive(pid int) bool { return startTime(pid) != "" }
