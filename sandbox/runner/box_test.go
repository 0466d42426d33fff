package runner

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/guest"
)

// TestEndAfterResult: what a command has left running ends with End, whether
// it holds the command's streams or not.
func TestEndAfterResult(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		b := r.open(t)
		for _, c := range []struct {
			name, text string
			left       int
			closed     bool
		}{
			{"holds the streams", "sleep 1000 & setsid sleep 1000 & echo hi", 2, false},
			{"holds nothing", "setsid sleep 1000 >/dev/null 2>&1 & echo hi", 1, true},
			{"nothing left", "echo hi", 0, true},
		} {
			bystander := begin(t, b, command("sleep 1000"))
			run := begin(t, b, command(c.text))
			await(t, "result", run.Done())
			result := run.Result()
			if result.Reason != sandbox.ReasonExit || result.Stdout != "hi\n" || len(result.Background) != c.left {
				t.Errorf("%s: %+v", c.name, result)
			}
			if result.Duration >= drainBudget {
				t.Errorf("%s: the command is said to have taken %s", c.name, result.Duration)
			}
			if c.closed {
				await(t, "closed", run.Closed())
			}
			run.End(sandbox.ReasonCanceled)
			run.End(sandbox.ReasonCanceled)
			await(t, "closed after end", run.Closed())
			eventually(t, c.name+": only the bystander is left", func() bool { return len(r.names()) == 1 })
			if got := run.Result(); got.Reason != sandbox.ReasonExit {
				t.Errorf("%s: the result has become %s", c.name, got.Reason)
			}
			bystander.End(sandbox.ReasonCanceled)
			await(t, "result of the bystander", bystander.Done())
			await(t, "streams of the bystander", bystander.Closed())
		}
		if b.Err() != nil {
			t.Error(b.Err())
		}
	})
}

// TestStreamsThatOthersHold: streams of a command that was killed end although
// another command has got hold of them.
func TestStreamsThatOthersHold(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		b := r.open(t)
		for _, wait := range []string{"", "; wait"} { // ended by itself, and not
			run := begin(t, b, command("sleep 1000 & echo $!"+wait))
			stdout := run.Output(sandbox.Stdout)
			eventually(t, "the first command writes", func() bool { return stdout.Produced() > 0 })
			var pid strings.Builder
			if err := errors.Join(stdout.Read(t.Context(), &pid, 0, stdout.Produced(), false), stdout.Close()); err != nil {
				t.Fatal(err)
			}
			if wait == "" {
				await(t, "result", run.Done())
			}
			holder := begin(t, b, command(fmt.Sprintf("exec 3>/proc/%s/fd/1 && echo held && exec sleep 1000", strings.TrimSpace(pid.String()))))
			held := holder.Output(sandbox.Stdout)
			eventually(t, "the second command has the pipe", func() bool { return held.Produced() > 0 })
			if err := held.Close(); err != nil {
				t.Error(err)
			}
			run.End(sandbox.ReasonCanceled)
			await(t, "result", run.Done())
			await(t, "closed", run.Closed())
			select {
			case <-holder.Done():
				t.Errorf("the other command has ended: %+v", holder.Result())
			default:
			}
			holder.End(sandbox.ReasonCanceled)
			await(t, "closed", holder.Closed())
		}
	})
}

// TestAbandonedStart: a command whose start nobody waited for does not stay.
func TestAbandonedStart(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		b := r.open(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("client gone")
		cancel(gone)
		for range 30 {
			started, err := b.Start(ctx, command("sleep 1000 & setsid sleep 1000"))
			if err == nil { // the answer was that fast
				started.End(sandbox.ReasonCanceled)
				started.Close()
			} else if !errors.Is(err, gone) {
				t.Fatalf("start: %v", err)
			}
		}
		// What the guest is told now it does after those starts.
		last := begin(t, b, command("true"))
		await(t, "result of the last", last.Done())
		eventually(t, "all is killed", func() bool { return len(r.names()) == 0 })
		if b.Err() != nil {
			t.Error(b.Err())
		}
		// A newer connection tells what the guest remembers.
		await(t, "closed", last.Closed())
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all runs are forgotten", func() bool {
			again := r.open(t)
			return len(again.client.Runs()) == 0 && again.Close() == nil
		})
	})
}

// TestStoppedGuest: a process 1 that does not answer is given up.
func TestStoppedGuest(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		b := r.open(t)
		running := begin(t, b, command("sleep 1000"))
		if err := syscall.Kill(r.instance.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Start(t.Context(), command("true")); !errors.Is(err, sandbox.ErrBroken) {
			t.Errorf("start: %v", err)
		}
		await(t, "the box fails", b.Done())
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		await(t, "result", running.Done())
		if got := running.Result(); got.Reason != sandbox.ReasonLost {
			t.Errorf("the running command ended as %+v", got)
		}
		if _, err := New(r.opts).Open(t.Context(), r.instance, sandbox.Spec{}); !errors.Is(err, sandbox.ErrBroken) {
			t.Errorf("open: %v", err)
		}
	})
}

// TestStoppedGuestAtDeadline: the end of a command is noticed to be missing.
func TestStoppedGuestAtDeadline(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		b := r.open(t)
		cmd := command("sleep 1000")
		cmd.Timeout = 100 * time.Millisecond
		run := begin(t, b, cmd)
		if err := syscall.Kill(r.instance.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		await(t, "the box fails", b.Done())
		await(t, "result", run.Done())
		if got := run.Result(); got.Reason == sandbox.ReasonExit {
			t.Errorf("the command ended as %+v", got)
		}
	})
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	r := newRig(t, "anchored")
	for _, c := range []struct {
		err    error
		broken bool
	}{
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, true},
		{&sandbox.Error{Class: sandbox.ErrNotFound, Code: sandbox.CodeNotFound, Cause: os.NewSyscallError("connect", syscall.ENOENT)}, true},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}, false},
		{context.DeadlineExceeded, false},
	} {
		opts := r.opts
		opts.OpenGuest = func(context.Context, sandbox.ID) (*net.UnixConn, error) { return nil, c.err }
		_, err := New(opts).Open(t.Context(), r.instance, sandbox.Spec{})
		if errors.Is(err, sandbox.ErrBroken) != c.broken || c.broken && errors.Is(err, sandbox.ErrNotFound) || err == nil {
			t.Errorf("%v: %v", c.err, err)
		}
	}
	if err := syscall.Kill(r.instance.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guest is gone", func() bool { return syscall.Kill(r.instance.PID, 0) != nil })
	if _, err := New(r.opts).Open(t.Context(), r.instance, sandbox.Spec{}); !errors.Is(err, sandbox.ErrBroken) {
		t.Errorf("of a dead guest: %v", err)
	}
}

// TestForeignRuns: a guest that is not to be trusted any more can name only
// runs that it was told of.
func TestForeignRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, "anchored")
	foreign := sandbox.NewCallID()
	for _, id := range []string{
		"x", string(foreign) + ".0",
		r.opts.Spools.ids.name(sandbox.NewID(), foreign, 0),
	} {
		opts := r.opts
		opts.OpenGuest = func(context.Context, sandbox.ID) (*net.UnixConn, error) { return lyingGuest(t, id) }
		if _, err := New(opts).Open(t.Context(), r.instance, sandbox.Spec{}); !errors.Is(err, sandbox.ErrBroken) || !errors.Is(err, guest.ErrViolation) {
			t.Errorf("run %q: %v", id, err)
		}
	}
}

// lyingGuest is a guest that says it has a run of the given id.
func lyingGuest(t *testing.T, id string) (*net.UnixConn, error) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ends := make([]net.Conn, 0, 2)
	for _, fd := range fds {
		file := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(file)
		if err := errors.Join(err, file.Close()); err != nil {
			return nil, err
		}
		ends = append(ends, conn)
	}
	const hello, ready = 65, 66
	frame := func(kind byte, message any) []byte {
		text, err := json.Marshal(message)
		if err != nil {
			t.Error(err)
		}
		return append(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), kind, 0), text...)
	}
	said := frame(hello, map[string]any{"version": guest.Version, "runs": []map[string]any{{"id": id, "pid": 2}}})
	if _, err := ends[0].Write(append(said, frame(ready, struct{}{})...)); err != nil {
		return nil, err
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, ends[0])
	}()
	t.Cleanup(func() {
		_ = ends[0].Close()
		<-drained
	})
	return ends[1].(*net.UnixConn), nil
}

// TestResume: background output of an earlier daemon's command goes on.
func TestResume(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		b := r.open(t)
		dir, err := os.MkdirTemp("", "runner-test-") // the test's root is the guest's
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		gate := filepath.Join(dir, "gate")
		cmd := command("(until [ -e " + gate + " ]; do sleep 0.02; done; echo more) & echo first")
		first := begin(t, b, cmd)
		await(t, "result", first.Done())
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		await(t, "closed", first.Closed())
		again := r.open(t)
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the output goes on", func() bool {
			data, err := os.ReadFile(filepath.Join(r.opts.Spools.dir, spoolPath(cmd.Call, 0, sandbox.Stdout)))
			return err == nil && string(data) == "first\nmore\n"
		})
		if again.Err() != nil {
			t.Error(again.Err())
		}
	})
}

// TestLargeCommands: the largest that is permitted runs, whatever its
// characters; a larger one is the caller's fault.
func TestLargeCommands(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, r *rig) {
		b := r.open(t)
		const size = 1_000_000
		head, foot := "printf %s '", "' | wc -c"
		run := begin(t, b, command(head+strings.Repeat("\x01", size-len(head)-len(foot))+foot))
		await(t, "result", run.Done())
		if got, want := run.Result().Stdout, fmt.Sprintln(size-len(head)-len(foot)); got != want {
			t.Errorf("the command has written %q, want %q", got, want)
		}
		cmd := command("true")
		cmd.Env = map[string]string{"LARGE": strings.Repeat("\x01", 3<<20)}
		if _, err := b.Start(t.Context(), cmd); !errors.Is(err, sandbox.ErrTooLarge) {
			t.Errorf("too large a message: %v", err)
		}
		cmd.Env = map[string]string{"LARGE": strings.Repeat("a", 3<<20)}
		if _, err := b.Start(t.Context(), cmd); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("too large an environment: %v", err)
		}
		if b.Err() != nil {
			t.Error(b.Err())
		}
	})
}
