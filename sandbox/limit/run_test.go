package limit

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/sandbox"
)

// stocked waits until the stock of the sandbox is full and returns its size.
func stocked(tb testing.TB, s *Sandbox) int {
	tb.Helper()
	n := 0
	waitFor(tb, "the stock is full", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n = len(s.ready)
		return n >= s.want
	})
	return n
}

func TestStock(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, _ := newSandbox(t, tree, "box")
		if n := stocked(t, s); n != stockMin {
			t.Errorf("first stock = %d, want %d", n, stockMin)
		}
		names := make(map[string]bool)
		var runs []*Run
		for range 3 * stockMax {
			r := takeRun(t, s)
			if !r.group.exists() || names[r.name] {
				t.Fatalf("run %s is missing or not new", r.name)
			}
			names[r.name] = true
			runs = append(runs, r)
		}
		for _, r := range runs {
			if err := r.Release(); err != nil {
				t.Error(err)
			}
			if r.group.exists() {
				t.Errorf("released run %s is still there", r.name)
			}
		}
		if n := stocked(t, s); n <= stockMin || n > stockMax {
			t.Errorf("stock after a burst = %d, want more than %d and at most %d", n, stockMin, stockMax)
		}
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Run(); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("Run after Close: %v", err)
		}
	})
}

func TestRemoveWhileBusy(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, _ := newSandbox(t, tree, "box")
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				r, err := s.Run()
				if err != nil {
					if !errors.Is(err, sandbox.ErrUnavailable) {
						t.Errorf("Run: %v", err)
					}
					return
				}
				if err := r.Release(); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		}()
		stocked(t, s)
		if err := tree.Remove(budget(t), "box"); err != nil {
			t.Error(err)
		}
		<-done
		if keys, err := tree.List(); len(keys) > 0 || err != nil {
			t.Errorf("List = %v, %v", keys, err)
		}
	})
}

func TestReleaseWithLeftovers(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, _ := newSandbox(t, tree, "box")
		r := takeRun(t, s)
		spawn(t, r, "setsid sleep 1000 & exit 0")
		waitFor(t, "the shell has ended", func() bool { return len(pidsOf(t, r)) == 1 })
		if err := r.Release(); err != nil {
			t.Fatal(err)
		}
		if !r.group.exists() {
			t.Fatal("a cgroup with a process in it was removed")
		}
		if err := r.Kill(budget(t)); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the cgroup is removed", func() bool { return !r.group.exists() })
		waitFor(t, "the run is forgotten", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.left) == 0
		})
	})
}

// TestDiscard: what comes into a run late is killed, or cannot come in.
func TestDiscard(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, _ := newSandbox(t, tree, "box")
		r := takeRun(t, s)
		files, err := r.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer closeAll(files)
		cmd := spawn(t, r, "setsid sleep 1000 & exec sleep 1000")
		if err := r.Discard(budget(t)); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the processes are gone", func() bool { return !alive(cmd.Process.Pid) })
		if r.group.exists() {
			t.Error("the cgroup is still there")
		}
		if tree.Mode() == V1 {
			if _, err := files[0].WriteString("0"); !errors.Is(err, unix.ENODEV) {
				t.Errorf("entering what was discarded: %v", err)
			}
		} else {
			late := exec.Command("true")
			late.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(files[0].Fd())}
			if err := late.Run(); err == nil {
				t.Error("a command was started in what was discarded")
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.taken)+len(s.left) != 0 {
			t.Errorf("%d taken, %d left", len(s.taken), len(s.left))
		}
	})
}

// On v1 the guest may be in the middle of a start.
func TestDiscardWithGuestInside(t *testing.T) {
	t.Parallel()
	tree := newTree(t, mountRoots[0])
	if tree.Mode() != V1 {
		t.Skip("only on v1 is the guest ever inside a run")
	}
	s, g := newSandbox(t, tree, "box")
	r := takeRun(t, s)
	move := func(to group) {
		for _, h := range to.hs {
			g.tell(t, "echo 0 > "+filepath.Join(h.dir, to.rel, "tasks"))
		}
	}
	move(r.group)
	waitFor(t, "the guest is inside", func() bool {
		populated, err := r.group.populated()
		return populated && err == nil
	})
	gone := make(chan error, 1)
	go func() { gone <- r.Discard(budget(t)) }()
	g.tell(t, "sleep 1000 &")
	move(s.group)
	if err := <-gone; err != nil {
		t.Error(err)
	}
	if r.group.exists() || !alive(g.pid()) {
		t.Error("the cgroup is there, or the guest is not")
	}
}

func TestAdopt(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, g := newSandbox(t, tree, "box")
		stocked(t, s)
		busy, ended := takeRun(t, s), takeRun(t, s)
		spawn(t, busy, "exec sleep 1000")
		if err := tree.Close(); err != nil {
			t.Fatal(err)
		}

		next := openTree(t, mountRootOf(tree), filepath.Base(tree.root.rel))
		s, err := next.Sandbox(budget(t), "box", g.pid())
		if err != nil {
			t.Fatal(err)
		}
		stocked(t, s)
		fresh := takeRun(t, s)
		adopted, err := s.Adopt()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range adopted {
			names = append(names, r.name)
		}
		if want := []string{busy.name}; !slices.Equal(names, want) {
			t.Errorf("adopted %v, want %v", names, want)
		}
		if ended.group.exists() {
			t.Error("an empty run is still there")
		}
		if !fresh.group.exists() {
			t.Error("a run of the new process was removed")
		}
		left, err := s.runs.children()
		s.mu.Lock()
		ready := len(s.ready)
		s.mu.Unlock()
		if got, want := len(left), len(adopted)+1+ready; got != want || err != nil {
			t.Errorf("%d run cgroups, %v; want %d", got, err, want)
		}
		for _, r := range adopted {
			if err := errors.Join(r.Kill(budget(t)), r.Release()); err != nil {
				t.Error(err)
			}
		}
		if again, err := s.Adopt(); len(again) > 0 || err != nil {
			t.Errorf("second Adopt = %v, %v", again, err)
		}
	})
}

func mountRootOf(tree *Tree) string {
	if tree.Mode() == V1 {
		return mountRoots[0]
	}
	return tree.root.hs[0].dir
}
