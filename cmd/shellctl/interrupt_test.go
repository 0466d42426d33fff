package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/client/clienttest"
)

// process is a shellctl of its own, served by a stand-in.
type process struct {
	*exec.Cmd
	server         *clienttest.Server
	stdout, stderr bytes.Buffer
}

func shellctl(ctx context.Context, t *testing.T, args ...string) *process {
	t.Helper()
	server, err := clienttest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(ctx, self), server: server}
	p.Args = append([]string{"shellctl"}, args...)
	p.Env = append(os.Environ(), "SHELLD_SOCKET="+server.Socket, "GORACE="+raceOptions)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	return p
}

func (p *process) code(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode() // -1: killed by a signal
	default:
		return -2
	}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errPatience)
	t.Cleanup(cancel)
	return ctx
}

// C23: a signal cancels the call, what was printed stays, nothing is left.
func TestSignals(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			p := shellctl(ctx, t, "exec", "-c", "echo begun; sleep 60")
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"stdout begun", "request GET /v1/shell_calls/*/commands/0/stdout?follow=true"} {
				if err := p.server.Await(ctx, what); err != nil {
					t.Fatal(err)
				}
			}
			_ = p.Process.Signal(sig)
			begun := time.Now()
			if got := p.code(p.Wait()); got != want {
				t.Errorf("exit code %d, want %d; stderr: %s", got, want, &p.stderr)
			}
			if took := time.Since(begun); took > 3*time.Second {
				t.Errorf("it took %s to end", took)
			}
			if p.stdout.String() != "begun\n" || p.stderr.Len() > 0 {
				t.Errorf("stdout %q, stderr %q, want only the command's output", &p.stdout, &p.stderr)
			}
			for _, what := range []string{"request POST /v1/shell_calls/*/cancel", "call canceled", "container deleted"} {
				if err := p.server.Await(ctx, what); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// C23: SIGKILL leaves no chance to say anything; the connection's end does.
func TestKilled(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := shellctl(ctx, t, "exec", "-c", "echo begun; sleep 60")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.server.Await(ctx, "stdout begun"); err != nil {
		t.Fatal(err)
	}
	_ = p.Process.Kill()
	_ = p.Wait()
	if err := p.server.Await(ctx, "call canceled"); err != nil {
		t.Error(err)
	}
}

// Neither a call that is not announced yet nor a daemon that does not cancel
// keeps Ctrl-C from working.
func TestInterruptOfTheUnwilling(t *testing.T) {
	t.Parallel()
	for command, await := range map[string]string{
		clienttest.Unannounced: "request POST /v1/shell_calls",
		clienttest.Stubborn:    "request GET /v1/shell_calls/*/commands/0/stdout?follow=true",
	} {
		for signals, longest := range map[int]time.Duration{1: 4 * time.Second, 2: 1500 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s/%d", command, signals), func(t *testing.T) {
				t.Parallel()
				ctx := testContext(t)
				p := shellctl(ctx, t, "exec", "-c", command)
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				if err := p.server.Await(ctx, await); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				_ = p.Process.Signal(syscall.SIGINT)
				if signals == 2 && command == clienttest.Stubborn {
					// The first has arrived when it has had an effect.
					if err := p.server.Await(ctx, "request POST /v1/shell_calls/*/cancel"); err != nil {
						t.Fatal(err)
					}
					_ = p.Process.Signal(syscall.SIGINT)
				}
				if got := p.code(p.Wait()); got != 130 {
					t.Errorf("exit code %d, want 130; stderr: %s", got, &p.stderr)
				}
				if took := time.Since(begun); took > longest {
					t.Errorf("it took %s to end, want at most %s", took, longest)
				}
			})
		}
	}
}

// A reader that has enough ends exec, and its command, as it ends cat.
func TestBrokenPipe(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := shellctl(ctx, t, "exec", "--", "yes")
	p.Stdout = nil
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	_ = out.Close()
	if got := p.code(p.Wait()); got != 141 || p.stderr.Len() > 0 {
		t.Errorf("exit code %d, stderr %q, want a quiet 141", got, &p.stderr)
	}
	if err := p.server.Await(ctx, "call canceled"); err != nil {
		t.Error(err)
	}
}

// C04: stdin is not read unless asked for, be it open or closed.
func TestStdinIsLeftAlone(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := shellctl(ctx, t, "exec", "--", "echo", "hi")
	in, err := p.StdinPipe() // stays open
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := p.Run(); err != nil || p.stdout.String() != "hi\n" {
		t.Errorf("stdout %q, %v, want hi; stderr: %s", &p.stdout, err, &p.stderr)
	}
}

// With -i a command may end before its input does, and may get more of it than
// any buffer holds.
func TestStdinForwarded(t *testing.T) {
	t.Parallel()
	t.Run("command ends first", func(t *testing.T) {
		t.Parallel()
		p := shellctl(testContext(t), t, "exec", "-i", "--", "head", "-c", "3")
		in, err := p.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if _, err := io.WriteString(in, "abcdef"); err != nil {
			t.Fatal(err)
		}
		if got := p.code(p.Run()); got != 0 || p.stdout.String() != "abc" || p.stderr.Len() > 0 {
			t.Errorf("code %d, stdout %q, stderr %q, want 0, abc and nothing", got, &p.stdout, &p.stderr)
		}
	})
	t.Run("every byte", func(t *testing.T) {
		t.Parallel()
		p := shellctl(testContext(t), t, "exec", "-i", "--", "cat")
		sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
		p.Stdin = bytes.NewReader(sent)
		if got := p.code(p.Run()); got != 0 || !bytes.Equal(p.stdout.Bytes(), sent) {
			t.Errorf("code %d, %d bytes came back, want the same %d; stderr: %s", got, p.stdout.Len(), len(sent), &p.stderr)
		}
	})
}

// What a command wrote is complete and in order however slow the reader is, and
// both streams are.
func TestOutputIsComplete(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := shellctl(ctx, t, "exec", "-c", "seq 1 200000; seq 1 50000 >&2; exit 7")
	if got := p.code(p.Run()); got != 7 {
		t.Errorf("exit code %d, want 7", got)
	}
	for name, stream := range map[string]struct {
		got  string
		last int
	}{"stdout": {p.stdout.String(), 200000}, "stderr": {p.stderr.String(), 50000}} {
		var want strings.Builder
		for i := range stream.last {
			fmt.Fprintln(&want, i+1)
		}
		if stream.got != want.String() {
			t.Errorf("%s has %d bytes and is not what the command wrote, %d", name, len(stream.got), want.Len())
		}
	}
}

// C01: a background process that holds the streams does not hold up exec.
func TestBackgroundProcessDoesNotHoldExec(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	p := shellctl(ctx, t, "exec", "-c", "sleep 20 & echo started")
	begun := time.Now()
	if err := p.Run(); err != nil || p.stdout.String() != "started\n" {
		t.Errorf("stdout %q, %v, want started; stderr: %s", &p.stdout, err, &p.stderr)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}
