package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// each runs a test in every kind of box and mode. The anchored mode needs the
// real program, which becomes the anchor.
func each(t *testing.T, test func(t *testing.T, b *box, r *runner)) {
	t.Helper()
	for _, k := range []struct {
		name string
		box  func(testing.TB) *box
		mode Mode
	}{
		{"init/v2", newBox, CgroupV2},
		{"init/v1", newBox, CgroupV1},
		{"init/anchored", newBox, Anchored},
		{"server/v2", newServerBox, CgroupV2},
		{"server/v1", newServerBox, CgroupV1},
	} {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			b := k.box(t)
			test(t, b, b.runner(t, k.mode))
		})
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *box, r *runner) {
		for i, c := range []struct {
			text           string
			code           int
			signal         syscall.Signal
			stdout, stderr string
		}{
			{text: "true"},
			{text: "exit 3", code: 3},
			{text: "exit 300", code: 44},
			{text: "kill -TERM $$", signal: syscall.SIGTERM},
			{text: "kill -KILL $$", signal: syscall.SIGKILL},
			{text: "echo out; echo err >&2; exit 1", code: 1, stdout: "out\n", stderr: "err\n"},
			{text: "cat; echo end", stdout: "end\n"},
			{text: "readlink /proc/self/fd/0", stdout: "/dev/null\n"},
			{text: "pwd; echo $NAME; id -u; id -g; id -G", stdout: "/\nvälue\n1000\n1000\n1000\n"},
			{text: "echo a >/dev/stdout; echo b >/dev/stderr", stdout: "a\n", stderr: "b\n"},
			{text: "ls /proc/self/fd | wc -l", stdout: "4\n"}, // 0-2 and that of ls
			{text: "grep -hE '^Sig(Ign|Blk)|^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | sort -u -k 2 | grep -vc 0000000000000000", code: 1, stdout: "0\n"},
			{text: "read -r pid name state ppid group session rest </proc/self/stat; [ $pid = $session ]"},
		} {
			got := r.run(t, fmt.Sprint("run", i), c.text)
			want := syscall.WaitStatus(c.code<<8 | int(c.signal))
			if got.exit.Status&^0x80 != want || got.stdout != c.stdout || got.stderr != c.stderr {
				t.Errorf("%q: got status %#x, stdout %q, stderr %q; want %#x, %q, %q",
					c.text, got.exit.Status, got.stdout, got.stderr, want, c.stdout, c.stderr)
			}
		}
	})
}

func TestProcessorTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *box, r *runner) {
		got := r.run(t, "busy", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
		if got.exit.UserTime < 5*time.Millisecond || got.exit.UserTime > patience {
			t.Errorf("user time of a busy command: %v", got.exit.UserTime)
		}
	})
}

func TestStdin(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *box, r *runner) {
		req := r.command(t, "in", "cat; echo end")
		req.Stdin = true
		p, err := r.Start(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p.Stdin, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if err := p.Stdin.Close(); err != nil {
			t.Fatal(err)
		}
		p.Stdin = nil
		if got := r.finish(t, p); got.stdout != "hello\nend\n" {
			t.Errorf("got %q", got.stdout)
		}
	})
}

func TestStartErrors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		private := filepath.Join(b.dir, "private")
		if err := os.Mkdir(private, 0o700); err != nil {
			t.Fatal(err)
		}
		for i, c := range []struct {
			name, program, dir string
			stage              Stage
			errno              syscall.Errno
		}{
			{"no dir", "/bin/sh", "/nowhere", StageDir, syscall.ENOENT},
			{"dir is file", "/bin/sh", "/etc/passwd", StageDir, syscall.ENOTDIR},
			{"dir not permitted", "/bin/sh", "/root", StageDir, syscall.EACCES},
			{"dir below not permitted", "/bin/sh", private, StageDir, syscall.EACCES},
			{"no program", "/bin/nothing", "/", StageExec, syscall.ENOENT},
			{"program not executable", "/etc/passwd", "/", StageExec, syscall.EACCES},
			{"both", "/bin/nothing", "/nowhere", StageDir, syscall.ENOENT},
		} {
			req := r.command(t, fmt.Sprint("bad", i), "true")
			req.Argv[0], req.Dir = c.program, c.dir
			_, err := r.Start(t.Context(), req)
			var fail *StartError
			if !errors.As(err, &fail) || fail.Stage != c.stage || fail.Errno != c.errno {
				t.Errorf("%s: got %v, want %s: %v", c.name, err, c.stage, c.errno)
			}
		}
		if got := r.run(t, "good", "echo fine"); got.stdout != "fine\n" {
			t.Errorf("after failures: got %q", got.stdout)
		}
		_, err := r.Start(t.Context(), StartRequest{ID: "x", Argv: []string{"/bin/sh", "a\x00b"}})
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("NUL in argument: got %v", err)
		}
	})
}

func TestRepeatedID(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *box, r *runner) {
		p, err := r.Start(t.Context(), r.command(t, "same", "true"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Start(t.Context(), r.command(t, "same", "true")); !errors.Is(err, syscall.EEXIST) {
			t.Errorf("got %v, want EEXIST", err)
		}
		r.finish(t, p)
		if got := r.run(t, "same", "echo again"); got.stdout != "again\n" {
			t.Errorf("after forget: got %q", got.stdout)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		const n = 200
		var all sync.WaitGroup
		for i := range n {
			req := r.command(t, fmt.Sprint("many", i), fmt.Sprintf("echo %d; exit %d", i, i%7))
			all.Go(func() {
				p, err := r.Start(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := collect(p)
				if err != nil || got.stdout != fmt.Sprintln(i) || got.exit.Status.ExitStatus() != i%7 {
					t.Errorf("run %d: got %q, status %#x, error %v", i, got.stdout, got.exit.Status, err)
				}
				if err := r.Forget(p.ID); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		b.quiet(t)
		if err := r.Ping(t.Context()); err != nil { // all that was sent before is read
			t.Error(err)
		}
		if left := b.connect(t).Runs(); len(left) != 0 {
			t.Errorf("%d runs left", len(left))
		}
	})
}

// quiet waits until process 1 has no children, living or dead, and no pipes
// that it had not at first.
func (b *box) quiet(tb testing.TB) {
	tb.Helper()
	eventually(tb, "no children of process 1", func() bool { return len(childrenOf(b.cmd.Process.Pid)) == 0 })
	eventually(tb, "pipes to be closed", func() bool { return b.countPipes() == b.pipes })
}

func (b *box) countPipes() (n int) {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", b.cmd.Process.Pid))
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}

// childrenOf lists children, zombies as well.
func childrenOf(pid int) (children []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		id, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if stat := readStat(id); len(stat) > 3 && stat[3] == strconv.Itoa(pid) {
			children = append(children, id)
		}
	}
	return children
}

// readStat returns the fields of /proc/pid/stat; none when it is gone.
func readStat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	fields := []string{strconv.Itoa(pid), string(b[open : end+1])}
	return append(fields, strings.Fields(string(b[end+1:]))...)
}

func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		got := r.run(t, "orphans", "for i in 1 2 3 4 5; do (setsid sh -c 'true' &) ; done; echo done")
		if got.stdout != "done\n" {
			t.Errorf("got %q", got.stdout)
		}
		b.quiet(t)
	})
}

func TestRunIsInItsCgroup(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		if r.cgroups.mode == Anchored {
			return // there is none
		}
		p, err := r.Start(t.Context(), r.command(t, "placed", "sleep 1000 & wait"))
		if err != nil {
			t.Fatal(err)
		}
		for _, root := range r.cgroups.roots {
			home, run := filepath.Join(root, "home"), filepath.Join(root, "placed")
			eventually(t, "two processes in "+run, func() bool { return len(pids(t, run)) == 2 })
			if got := pids(t, home); len(got) != 1 || got[0] != b.cmd.Process.Pid {
				t.Errorf("%s: got %v, want the guest", home, got)
			}
			if r.cgroups.mode == CgroupV1 { // the one that started it comes home after its answer
				eventually(t, "all threads at home in "+home, func() bool {
					return len(lines(t, filepath.Join(home, "tasks"))) == threads(t, b.cmd.Process.Pid)
				})
			}
		}
		for _, pid := range pids(t, filepath.Join(r.cgroups.roots[0], "placed")) {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		if got := r.finish(t, p); got.exit.Status.Signal() != syscall.SIGKILL {
			t.Errorf("status %#x", got.exit.Status)
		}
		b.quiet(t)
	})
}

func TestVanishedCgroup(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		if r.cgroups.mode == Anchored {
			return // there is none
		}
		req := r.command(t, "vanished", "true")
		for _, root := range r.cgroups.roots {
			if err := unix.Rmdir(filepath.Join(root, "vanished")); err != nil {
				t.Fatal(err)
			}
		}
		_, err := r.Start(t.Context(), req)
		var fail *StartError
		if !errors.As(err, &fail) || fail.Stage != StageCgroup {
			t.Errorf("got %v", err)
		}
		if got := r.run(t, "after", "echo fine"); got.stdout != "fine\n" {
			t.Errorf("got %q", got.stdout)
		}
		b.quiet(t)
	})
}

func pids(tb testing.TB, dir string) (all []int) {
	tb.Helper()
	for _, line := range lines(tb, filepath.Join(dir, "cgroup.procs")) {
		pid, err := strconv.Atoi(line)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, pid)
	}
	return all
}

func lines(tb testing.TB, path string) []string {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Fields(string(b))
}

func threads(tb testing.TB, pid int) int {
	tb.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		tb.Fatal(err)
	}
	return len(list)
}
