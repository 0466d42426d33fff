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
	roles := map[string]func() int{"open": roleOpen, "delegated": roleDelegated, "clone": roleClone}
	if role, ok := roles[os.Getenv(roleEnv)]; ok {
		os.Exit(role()) //nolint:forbidigo // this is a main
	}
	if err := sweep(); err != nil {
		fmt.Fprintln(os.Stderr, "sweep:", err)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
	m.Run()
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
func budget(tb testing.TB) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(tb.Context()), patience, errors.New("test ran out of patience"))
	tb.Cleanup(cancel)
	return ctx
}

func openTree(tb testing.TB, root, name string) *Tree {
	tb.Helper()
	tree, err := Open(budget(tb), Options{Name: name, MountRoot: root, Logger: slog.New(slog.NewTextHandler(tb.Output(), nil))})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := tree.Close(); err != nil {
			tb.Error(err)
		}
	})
	return tree
}

// newTree returns a tree of its own for the test, which is gone after it.
func newTree(tb testing.TB, root string) *Tree {
	tb.Helper()
	tree := openTree(tb, root, newName())
	if tree.Mode() == None {
		tb.Skip(tree.Reason())
	}
	tb.Cleanup(func() {
		if err := tree.RemoveAll(budget(tb)); err != nil {
			tb.Error(err)
		}
		for _, h := range tree.all {
			if _, err := os.Stat(filepath.Join(h.dir, tree.root.rel)); err == nil {
				tb.Errorf("%s%s is left", h.dir, tree.root.rel)
			}
		}
	})
	return tree
}

// eachMode runs the test with v1 and v2 as far as the machine has them.
func eachMode(t *testing.T, test func(t *testing.T, tree *Tree)) {
	t.Helper()
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

func (g *guest) tell(tb testing.TB, line string) {
	tb.Helper()
	if _, err := fmt.Fprintln(g.in, line); err != nil {
		tb.Fatal(err)
	}
}

// newSandbox makes a sandbox as the runtime would, with a guest, and takes it
// over.
func newSandbox(tb testing.TB, tree *Tree, key string) (*Sandbox, *guest) {
	tb.Helper()
	g := newGuest(tb, tree, key)
	s, err := tree.Sandbox(budget(tb), key, g.pid())
	if err != nil {
		tb.Fatal(err)
	}
	return s, g
}

func newGuest(tb testing.TB, tree *Tree, key string) *guest {
	tb.Helper()
	box := tree.root.child(key)
	if err := box.create(); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", enter(box)+`while read -r line; do eval "$line"; done`)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	startIn(tb, cmd, box)
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
func startIn(tb testing.TB, cmd *exec.Cmd, g group) {
	tb.Helper()
	files, err := g.open()
	if err != nil {
		tb.Fatal(err)
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
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	waitFor(tb, "the command is inside", func() bool {
		pids, err := g.pids()
		if err != nil {
			tb.Fatal(err)
		}
		return len(pids) > 0
	})
}

// spawn starts a shell script in the run as an ordinary user.
func spawn(tb testing.TB, r *Run, script string) *exec.Cmd {
	tb.Helper()
	cmd := exec.Command("sh", "-c", enter(r.group)+script)
	cmd.Stderr = tb.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	startIn(tb, cmd, r.group)
	return cmd
}

func takeRun(tb testing.TB, s *Sandbox) *Run {
	tb.Helper()
	r, err := s.Run()
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func waitFor(tb testing.TB, what string, done func() bool) {
	tb.Helper()
	if err := until(budget(tb), func() (bool, error) { return done(), nil }); err != nil {
		tb.Fatalf("%s: %v", what, err)
	}
}

func pidsOf(tb testing.TB, r *Run) []int {
	tb.Helper()
	pids, err := r.PIDs()
	if err != nil {
		tb.Fatal(err)
	}
	return pids
}

func alive(pid int) bool { return startTime(pid) != "" }
