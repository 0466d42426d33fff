package engine

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestRotatingFileStaysSmall(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	log, err := openRotating(path, 100)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := io.WriteString(log, strings.Repeat("x", 30)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	for _, name := range []string{path, path + ".1"} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 || info.Size() > 100 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if files := glob(t, path+"*"); len(files) != 2 {
		t.Errorf("files = %v", files)
	}
}

func TestSupervisorRestarts(t *testing.T) {
	t.Parallel()
	s := &supervisor{path: "/bin/sleep", args: []string{"1000"}, output: io.Discard, logger: slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var group sync.WaitGroup
	group.Go(func() {
		if err := s.run(ctx); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		var pid int
		eventually(t, "the program runs", func() bool { pid = s.process(); return pid != 0 && !gone(pid) })
		kill9(t, pid)
	}
	var last int
	eventually(t, "the program runs", func() bool { last = s.process(); return last != 0 && !gone(last) })
	cancel(errors.New("done"))
	group.Wait()
	if !gone(last) {
		t.Errorf("process %d is alive", last)
	}
}

// Only a process of our own user with our socket on its command line looks
// like a shim of ours.
func TestShimCandidates(t *testing.T) {
	t.Parallel()
	const socket = "/u/containerd.sock"
	script := "exec -a " + binShim + " sleep 1000"
	ours := fake(t, script+" -address /u/containerd.sock", 0)
	cases := map[string]struct {
		pid  int
		want bool
	}{
		"ours": {ours, true}, "other engine's": {fake(t, script+" -address /x/containerd.sock", 0), false},
		"other program": {fake(t, "exec sleep 1000", 0), false}, "gone": {1 << 22, false},
	}
	if os.Geteuid() == 0 {
		cases["other user's"] = struct {
			pid  int
			want bool
		}{fake(t, script+" -address /u/containerd.sock", 65534), false}
	}
	s := shims{address: socket, mode: ModeRoot}
	for name, c := range cases {
		if got := s.looksRight(c.pid); got != c.want {
			t.Errorf("%s: %v; want %v (%s)", name, got, c.want, cmdline(c.pid))
		}
	}
	found, err := s.candidates()
	if err != nil || len(found) != 1 || found[0] != ours {
		t.Errorf("candidates = %v, %v; want %d", found, err, ours)
	}
}

// fake runs a bash script that becomes a sleep, whose extra arguments bash
// keeps on the command line, until the test ends.
func fake(t *testing.T, script string, uid uint32) int {
	t.Helper()
	before, args, _ := strings.Cut(script, "sleep 1000")
	// sleep refuses words, so a shell that waits plays the program.
	script = before + "bash -c 'read -r _' bash" + args
	cmd := exec.Command("bash", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if uid != 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(stdin.Close(), ignoreExit(cmd.Wait())); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "process "+strconv.Itoa(cmd.Process.Pid)+" runs its program", func() bool {
		return strings.Contains(cmdline(cmd.Process.Pid), "read -r _") && !strings.Contains(cmdline(cmd.Process.Pid), "exec")
	})
	return cmd.Process.Pid
}

func TestLastLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for text, want := range map[string]string{
		"": "it left no message", " \n\n": "it left no message", "one": "one", "one\n": "one",
		"time=x level=INFO msg=\"joining\"\nshelld: no space left\n\n": "shelld: no space left",
	} {
		write(t, dir, "output", text)
		if got := lastLine(filepath.Join(dir, "output"), filepath.Join(dir, "none")); got != want {
			t.Errorf("last line of %q = %q; want %q", text, got, want)
		}
		write(t, dir, "log", "first\nlast\n")
		if got := lastLine(filepath.Join(dir, "none"), filepath.Join(dir, "log")); got != "last" {
			t.Errorf("last line of the log = %q", got)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	var b backoff
	for _, want := range []time.Duration{restartMin, 2 * restartMin, 4 * restartMin} {
		if got := b.next(time.Millisecond); got != want {
			t.Errorf("pause = %v; want %v", got, want)
		}
	}
	for range 20 {
		b.next(0)
	}
	if got := b.next(0); got != restartMax {
		t.Errorf("pause = %v; want %v at most", got, restartMax)
	}
	if got := b.next(restartCalm + 1); got != restartMin {
		t.Errorf("pause after a calm time = %v; want %v", got, restartMin)
	}
}
