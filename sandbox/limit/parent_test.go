package limit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestParent(t *testing.T) {
	t.Parallel()
	tree := newTreeV2(t)
	root := tree.root.hs[0].dir
	box := tree.root.child("box")
	if err := box.create(); err != nil {
		t.Fatal(err)
	}
	open := func(parent string) *Tree {
		inner, err := Open(budget(t), Options{Name: "inner", Parent: parent, MountRoot: root, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := inner.Close(); err != nil {
			t.Error(err)
		}
		return inner
	}
	if inner := open(box.rel); inner.Mode() != V2 || inner.SandboxPath("x") != box.rel+"/inner/x" {
		t.Errorf("with a parent: %v, %q", inner.Mode(), inner.SandboxPath("x"))
	}
	if inner := open(box.rel + "/missing"); inner.Mode() != None || !strings.Contains(inner.Reason(), "no such file") {
		t.Errorf("with a missing parent: %v, %q", inner.Mode(), inner.Reason())
	}
}

func newTreeV2(t *testing.T) *Tree {
	t.Helper()
	for _, root := range mountRoots {
		if tree := newTree(t, root); tree.Mode() == V2 {
			return tree
		}
	}
	t.Skip("no v2 hierarchy")
	return nil
}

// An ordinary user arranges and kills in a cgroup that was given to it.
func TestDelegated(t *testing.T) {
	t.Parallel()
	tree := newTreeV2(t)
	given := tree.root.child("given")
	leaf := given.child("leaf")
	for _, g := range []group{given, leaf} {
		if err := g.create(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
			if err := os.Chown(filepath.Join(g.dir(), name), nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
	}
	// With a parent it works below that, without one below its own cgroup.
	for _, parent := range []string{given.rel, ""} {
		files, err := leaf.open()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{roleEnv + "=delegated", "ROOT=" + tree.root.hs[0].dir, "PARENT=" + parent, "PATH=/usr/bin:/bin"}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
			UseCgroupFD: true, CgroupFD: int(files[0].Fd()),
		}
		out, err := cmd.CombinedOutput()
		closeAll(files)
		if err != nil {
			t.Errorf("parent %q: %v: %s", parent, err, out)
		}
		t.Logf("parent %q: %s", parent, out)
	}
}

// roleDelegated is a shelld of an ordinary user with one sandbox and one run.
func roleDelegated() int {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("test ran out of patience"))
	defer cancel()
	tree, err := Open(ctx, Options{Name: "mine", Parent: os.Getenv("PARENT"), MountRoot: os.Getenv("ROOT"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	fmt.Fprintln(os.Stdout, tree.Mode(), tree.SandboxPath("box"), tree.Reason())
	if tree.Mode() != V2 {
		return 1
	}
	box := tree.root.child("box")
	if err := box.create(); err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	guest, err := sleepIn(box)
	if err != nil {
		fmt.Fprintln(os.Stdout, "guest:", err)
		return 1
	}
	s, err := tree.Sandbox(ctx, "box", guest.Process.Pid)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	r, err := s.Run()
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	command, err := sleepIn(r.group)
	if err != nil {
		fmt.Fprintln(os.Stdout, "command:", err)
		return 1
	}
	if pids, err := r.PIDs(); len(pids) != 1 || err != nil {
		fmt.Fprintln(os.Stdout, "run holds", pids, err)
		return 1
	}
	err = errors.Join(r.Kill(ctx), tree.RemoveAll(ctx), tree.Close())
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return 1
	}
	// Both were killed, else these would not return.
	_, _ = command.Process.Wait()
	_, _ = guest.Process.Wait()
	return 0
}

func sleepIn(g group) (*exec.Cmd, error) {
	files, err := g.open()
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(files[0].Fd())}
	return cmd, cmd.Start()
}
