package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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

	"golang.org/x/sys/unix"
)

var buildOnce sync.Once

// patience is how long tests wait for what is to happen.
const patience = 20 * time.Second

// idBase is where the ids of a test sandbox's user namespace begin.
const idBase = 1 << 20

// A box is process 1 in namespaces of its own, as near to a real sandbox as
// goes without a container runtime.
type box struct {
	dir     string
	program string // empty: this test binary
	cmd     *exec.Cmd
	log     *bytes.Buffer
	// cgroups are removed when process 1 is gone.
	cgroups []string
	// pipes is how many ends of pipes process 1 had at first.
	pipes int
}

// newBox starts shelld-init as process 1.
func newBox(tb testing.TB) *box {
	tb.Helper()
	return startBox(tb, roleInit, &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS |
			unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: idBase, Size: 1 << 16}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: idBase, Size: 1 << 16}},
		Credential:  &syscall.Credential{Uid: 0, Gid: 0},
		Pdeathsig:   unix.SIGKILL,
		// A real sandbox gives its guest these and no more.
		GidMappingsEnableSetgroups: true,
	}, buildInit(tb))
}

// newServerBox starts the server of this test binary as process 1, so that
// the race detector watches it. It does without what needs AllThreadsSyscall.
func newServerBox(tb testing.TB) *box {
	tb.Helper()
	return startBox(tb, roleServer, &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
	}, "")
}

func startBox(tb testing.TB, role string, attr *syscall.SysProcAttr, program string) *box {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("needs root to make namespaces with id maps")
	}
	dir, err := os.MkdirTemp("", "guest-test-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	if program != "" {
		if err := os.Chown(dir, idBase, idBase); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o770); err != nil {
		tb.Fatal(err)
	}
	b := &box{dir: dir, program: program, cmd: exec.Command("/proc/self/exe"), log: &bytes.Buffer{}}
	b.cmd.Args = []string{"guest.test"}
	b.cmd.Env = []string{roleVar + "=" + role, dirVar + "=" + dir, programVar + "=" + program}
	b.cmd.Stderr = b.log
	b.cmd.SysProcAttr = attr
	if err := b.cmd.Start(); err != nil {
		tb.Fatalf("start process 1: %v", err)
	}
	tb.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
		for _, root := range b.cgroups {
			removeCgroup(tb, root)
		}
		if tb.Failed() || b.log.Len() > 0 {
			tb.Logf("process 1 said: %s", b.log)
		}
		if bytes.Contains(b.log.Bytes(), []byte("DATA RACE")) {
			tb.Error("data race in process 1")
		}
	})
	return b
}

// dial connects to the guest.
func (b *box) dial(tb testing.TB) *net.UnixConn {
	tb.Helper()
	path := filepath.Join(b.dir, SocketName)
	var conn *net.UnixConn
	eventually(tb, "guest to listen", func() bool {
		var err error
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		return err == nil
	})
	return conn
}

// connect makes a client that is not set up.
func (b *box) connect(tb testing.TB) *Client {
	tb.Helper()
	c, err := NewClient(b.dial(tb))
	if err != nil {
		tb.Fatalf("connect: %v", err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// A runner starts commands in a box the way its mode wants it.
type runner struct {
	*Client
	cgroups *cgroups
}

func (b *box) runner(tb testing.TB, mode Mode) *runner {
	tb.Helper()
	c := b.connect(tb)
	b.pipes = b.countPipes()
	r := &runner{Client: c, cgroups: b.newCgroups(tb, mode)}
	if err := c.Setup(tb.Context(), Setup{Mode: mode, Home: r.cgroups.home}); err != nil {
		tb.Fatal(err)
	}
	return r
}

// command is a shell command in its own run cgroup.
func (r *runner) command(tb testing.TB, id, text string) StartRequest {
	tb.Helper()
	return StartRequest{
		ID: id, Argv: []string{"/bin/sh", "-c", text}, Env: []string{"PATH=/usr/bin:/bin", "NAME=välue"},
		Dir: "/", UID: 1000, GID: 1000, Cgroup: r.cgroups.run(tb, id),
	}
}

// result is what became of a command.
type result struct {
	stdout, stderr string
	exit           Exit
	process        *Process
}

// run runs a shell command to its end.
func (r *runner) run(tb testing.TB, id, text string) result {
	tb.Helper()
	p, err := r.Start(tb.Context(), r.command(tb, id, text))
	if err != nil {
		tb.Fatal(err)
	}
	return r.finish(tb, p)
}

// finish reads a process to its end and forgets it.
func (r *runner) finish(tb testing.TB, p *Process) result {
	tb.Helper()
	res, err := collect(p)
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.Forget(p.ID); err != nil {
		tb.Fatal(err)
	}
	return res
}

func collect(p *Process) (result, error) {
	res := result{process: p}
	deadline := time.Now().Add(patience)
	var stderr []byte
	var readErr error
	var reading sync.WaitGroup
	reading.Go(func() {
		readErr = p.Stderr.SetReadDeadline(deadline)
		if readErr == nil {
			stderr, readErr = io.ReadAll(p.Stderr)
		}
	})
	stdout, err := []byte(nil), p.Stdout.SetReadDeadline(deadline)
	if err == nil {
		stdout, err = io.ReadAll(p.Stdout)
	}
	reading.Wait()
	res.stdout, res.stderr = string(stdout), string(stderr)
	if err := errors.Join(err, readErr); err != nil {
		return res, fmt.Errorf("read output: %w", err)
	}
	select {
	case <-p.Done():
	case <-time.After(patience):
		return res, errors.New("no exit")
	}
	if res.exit, err = p.Exit(); err != nil {
		return res, err
	}
	return res, p.Close()
}

// eventually waits for a condition.
func eventually(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("patience ran out"))
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			tb.Fatalf("still waiting for %s: %v", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// cgroups are those of one box: a home for its guest and one for each run.
type cgroups struct {
	mode  Mode
	roots []string
	home  []*os.File
}

const cgroupPrefix = "shelld-guest-test-"

// newCgroups makes real cgroups for the mode and moves process 1 home.
func (b *box) newCgroups(tb testing.TB, mode Mode) *cgroups {
	tb.Helper()
	pid := b.cmd.Process.Pid
	c := &cgroups{mode: mode}
	switch mode {
	case Anchored:
		return c
	case CgroupV1:
		for _, controller := range []string{"memory", "pids", "cpu", "freezer"} {
			c.roots = append(c.roots, filepath.Join("/sys/fs/cgroup", controller))
		}
	case CgroupV2:
		c.roots = []string{"/sys/fs/cgroup"}
		if _, err := os.Stat("/sys/fs/cgroup/unified"); err == nil {
			c.roots[0] = "/sys/fs/cgroup/unified"
		}
	}
	name := cgroupPrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.Itoa(pid)
	for i, root := range c.roots {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
			tb.Skipf("no cgroup hierarchy for mode %s: %v", mode, err)
		}
		removeStale(root)
		c.roots[i] = filepath.Join(root, name)
		home := filepath.Join(c.roots[i], "home")
		if err := os.MkdirAll(home, 0o755); err != nil {
			tb.Fatal(err)
		}
		b.cgroups = append(b.cgroups, c.roots[i])
		if err := os.WriteFile(filepath.Join(home, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			tb.Fatal(err)
		}
		if mode == CgroupV2 {
			c.chmodProcs(tb, c.roots[i])
			continue
		}
		c.home = append(c.home, openFile(tb, filepath.Join(home, "tasks"), os.O_WRONLY))
	}
	return c
}

// run makes the cgroups of a run and opens them.
func (c *cgroups) run(tb testing.TB, id string) []*os.File {
	tb.Helper()
	var files []*os.File
	for _, root := range c.roots {
		dir := filepath.Join(root, id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
		if c.mode == CgroupV2 {
			c.chmodProcs(tb, dir)
			files = append(files, openFile(tb, dir, unix.O_PATH|unix.O_DIRECTORY))
		} else {
			files = append(files, openFile(tb, filepath.Join(dir, "tasks"), os.O_WRONLY))
		}
	}
	return files
}

// chmodProcs lets the guest, which does not own the cgroup, clone into it.
func (c *cgroups) chmodProcs(tb testing.TB, dir string) {
	tb.Helper()
	if err := os.Chmod(filepath.Join(dir, "cgroup.procs"), 0o666); err != nil {
		tb.Fatal(err)
	}
}

func openFile(tb testing.TB, path string, flags int) *os.File {
	tb.Helper()
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = f.Close() })
	return f
}

// removeCgroup removes a tree of cgroups when the processes in it are gone.
func removeCgroup(tb testing.TB, root string) {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := tryRemove(root)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			tb.Errorf("remove cgroup: %v", err)
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

func tryRemove(root string) error {
	children, _ := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	for _, file := range children {
		if err := unix.Rmdir(filepath.Dir(file)); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("rmdir %s: %w", file, err)
		}
	}
	if err := unix.Rmdir(root); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("rmdir %s: %w", root, err)
	}
	return nil
}

// removeStale removes what a test that was killed has left.
func removeStale(root string) {
	left, _ := filepath.Glob(filepath.Join(root, cgroupPrefix+"*"))
	for _, dir := range left {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(unix.Kill(n, 0), unix.ESRCH) {
			_ = tryRemove(dir)
		}
	}
}
