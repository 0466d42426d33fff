package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/shelld/shelld/sandbox"
)

func TestArrangement(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, g := newSandbox(t, tree, "box")
		if got, want := tree.SandboxPath("box"), tree.root.rel+"/box"; got != want {
			t.Errorf("SandboxPath = %q, want %q", got, want)
		}
		home := s.group
		if tree.Mode() == V2 {
			home = home.child(initName)
			if pids, err := s.group.pids(); len(pids) > 0 || err != nil {
				t.Errorf("the sandbox's own cgroup holds %v, %v", pids, err)
			}
		}
		if pids, err := home.pids(); !slices.Equal(pids, []int{g.pid()}) || err != nil {
			t.Errorf("the guest's cgroup holds %v, %v", pids, err)
		}
		for _, h := range s.group.hs {
			if _, err := os.Stat(filepath.Join(h.dir, s.runs.rel)); err != nil {
				t.Error(err)
			}
		}
		files, err := s.OpenHome()
		if err != nil {
			t.Fatal(err)
		}
		closeAll(files)
		if want := map[Mode]int{V1: len(s.group.hs), V2: 0}[tree.Mode()]; len(files) != want {
			t.Errorf("%d home files, want %d", len(files), want)
		}
		again, err := tree.Sandbox(budget(t), "box", g.pid())
		if again != s || err != nil {
			t.Errorf("second Sandbox = %p, %v; want %p", again, err, s)
		}
		if keys, err := tree.List(); !slices.Equal(keys, []string{"box"}) || err != nil {
			t.Errorf("List = %v, %v", keys, err)
		}
	})
}

func TestSandboxRefuses(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		if _, err := tree.Sandbox(budget(t), "none", os.Getpid()); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("no cgroup: %v", err)
		}
		newGuest(t, tree, "box")
		if _, err := tree.Sandbox(budget(t), "box", os.Getpid()); !errors.Is(err, sandbox.ErrConflict) {
			t.Errorf("foreign process: %v", err)
		}
		for _, key := range []string{"", ".", "..", "a/b", "../x"} {
			if _, err := tree.Sandbox(budget(t), key, os.Getpid()); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("Sandbox(%q): %v", key, err)
			}
			if err := tree.Remove(budget(t), key); !errors.Is(err, sandbox.ErrInvalid) {
				t.Errorf("Remove(%q): %v", key, err)
			}
		}
	})
}

func TestRemoveKillsSandbox(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, g := newSandbox(t, tree, "box")
		r := takeRun(t, s)
		cmd := spawn(t, r, "setsid sleep 1000 & sleep 1000")
		_, other := newSandbox(t, tree, "other")
		if err := tree.Remove(budget(t), "box"); err != nil {
			t.Fatal(err)
		}
		if alive(g.pid()) || alive(cmd.Process.Pid) || len(pidsOf(t, r)) > 0 {
			t.Error("something of the sandbox lives")
		}
		if keys, err := tree.List(); !slices.Equal(keys, []string{"other"}) || err != nil {
			t.Errorf("List = %v, %v", keys, err)
		}
		if !alive(other.pid()) {
			t.Error("another sandbox's guest was killed")
		}
		if _, err := s.Run(); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("Run of a removed sandbox: %v", err)
		}
		if err := tree.Remove(budget(t), "box"); err != nil {
			t.Errorf("second Remove: %v", err)
		}
	})
}

// The guest owns no cgroup: what shelld passes to it must be enough.
func TestGuestClonesIntoRun(t *testing.T) {
	t.Parallel()
	tree := newTreeV2(t)
	box := tree.root.child("box")
	if err := box.create(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{roleEnv + "=clone", "PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Stdout = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	startIn(t, cmd, box)
	s, err := tree.Sandbox(budget(t), "box", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	r := takeRun(t, s)
	// A real guest gets the descriptor; this one may open it read-only.
	fmt.Fprintln(in, r.group.dir())
	waitFor(t, "the clone is in the run", func() bool { return len(pidsOf(t, r)) == 1 })
	if err := r.Kill(budget(t)); err != nil {
		t.Error(err)
	}
}

// roleClone is a guest without rights that starts a command in the cgroup
// whose directory it is told.
func roleClone() int {
	var dir string
	if _, err := fmt.Scanln(&dir); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	f, err := os.Open(dir)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	return 0
}

func TestNoneForOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root to become somebody else")
	}
	for _, root := range mountRoots {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{roleEnv + "=open", "ROOT=" + root}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", root, err, out)
		}
		t.Logf("%s: %s", root, out)
	}
}

// roleOpen succeeds when the tree is of mode None, says why, and does nothing
// without harm.
func roleOpen() int {
	ctx := context.Background()
	tree, err := Open(ctx, Options{Name: testPrefix + "-none", MountRoot: os.Getenv("ROOT"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, tree.Reason())
	_, errSandbox := tree.Sandbox(ctx, "box", os.Getpid())
	keys, errList := tree.List()
	report, errLimits := tree.SetLimits(Limits{Pids: 3})
	switch {
	case tree.Mode() != None, tree.Reason() == "", tree.SandboxPath("box") != "",
		!errors.Is(errSandbox, sandbox.ErrUnavailable), len(keys) > 0,
		report.Pids != Applied{Value: 3}:
		fmt.Fprintln(os.Stdout, tree.Mode(), tree.SandboxPath("box"), errSandbox, keys, report)
		return 1
	}
	if err := errors.Join(errList, errLimits, tree.Remove(ctx, "box"), tree.RemoveAll(ctx), tree.Close()); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	return 0
}
