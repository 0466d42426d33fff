package sandboxtest

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shelld/shelld/sandbox"
)

// step is one step of a command in a [Box]. A command is a list of them,
// separated by ";":
//
//	out TEXT, err TEXT  write TEXT
//	gap FROM TO         say that these bytes of stdout were not kept
//	cat                 copy the standard input to stdout
//	sleep DURATION      pass time
//	hang                wait until the command is ended
//	stuck               wait until the box is lost, and cannot be ended before
//	leave               leave a background process; see [Box.Release]
//	exit CODE           end; without it a command ends with 0
//	lost, nostart, badstart  do not start: fail as a broken sandbox does, as
//	                    a full one does, as the caller's fault
type step struct{ verb, arg string }

func parseScript(text string) ([]step, error) {
	var steps []step
	for part := range strings.SplitSeq(text, ";") {
		verb, arg, _ := strings.Cut(strings.TrimSpace(part), " ")
		switch verb {
		case "lost":
			return nil, ErrBroken
		case "nostart":
			return nil, &sandbox.Error{Class: sandbox.ErrExhausted, Code: sandbox.CodeTooManyRuns, Message: "the sandbox is full", RetryAfter: time.Second}
		case "badstart":
			return nil, sandbox.Invalid("working_directory", "cannot be entered")
		}
		steps = append(steps, step{verb, arg})
	}
	return steps, nil
}

// run implements [sandbox.Run].
type run struct {
	box            *Box
	cmd            sandbox.Command
	stdout, stderr *stream
	end            chan sandbox.Reason
	done, closed   chan struct{}
	result         sandbox.Result
	// released lets the background process go.
	released chan struct{}
	release  func()

	stdinR *io.PipeReader
	mu     sync.Mutex
	stdinW *io.PipeWriter
}

func newRun(b *Box, cmd sandbox.Command) *run {
	r := &run{
		box: b, cmd: cmd, end: make(chan sandbox.Reason, 1),
		done: make(chan struct{}), closed: make(chan struct{}), released: make(chan struct{}),
		stdout: b.boxes.outputs.add(cmd.Call, cmd.Index, sandbox.Stdout),
		stderr: b.boxes.outputs.add(cmd.Call, cmd.Index, sandbox.Stderr),
	}
	r.release = sync.OnceFunc(func() { close(r.released) })
	if cmd.Stdin {
		r.stdinR, r.stdinW = io.Pipe()
	}
	return r
}

// play carries the steps out.
func (r *run) play(steps []step) {
	began := time.Now()
	code, left := 0, false
	deadline := time.NewTimer(max(r.cmd.Timeout, 0))
	defer deadline.Stop()
	var reason sandbox.Reason
	for _, s := range steps {
		var wait <-chan time.Time
		var read <-chan struct{}
		switch s.verb {
		case "out":
			r.stdout.write(s.arg)
			continue
		case "err":
			r.stderr.write(s.arg)
			continue
		case "gap":
			var from, to int64
			_, _ = fmt.Sscan(s.arg, &from, &to)
			r.stdout.setGap(from, to)
			continue
		case "leave":
			left = true
			continue
		case "exit":
			code, _ = strconv.Atoi(s.arg)
			continue
		case "sleep":
			d, _ := time.ParseDuration(s.arg)
			wait = time.After(d)
		case "cat":
			read = r.cat()
		case "hang":
		case "stuck":
			<-r.released
			continue
		default:
			continue
		}
		select {
		case <-wait:
		case <-read:
		case reason = <-r.end:
		case <-deadline.C:
			reason = sandbox.ReasonTimeout
		}
		if reason != "" {
			break
		}
	}
	r.result = r.outcome(code, reason)
	r.result.Duration = time.Since(began)
	r.result.Stdout, r.result.Stderr = r.stdout.text(), r.stderr.text()
	r.result.StdoutBytes, r.result.StderrBytes = r.stdout.Produced(), r.stderr.Produced()
	if r.stdinR != nil {
		_ = r.stdinR.Close() // a pipe in memory
	}
	if left && reason == "" {
		r.result.Background = []int{7}
		close(r.done)
		select {
		case <-r.released:
			r.stdout.write("late")
		case <-r.end: // it is killed
		}
		r.finish()
		return
	}
	r.finish()
	close(r.done)
}

func (r *run) finish() {
	r.stdout.finish()
	r.stderr.finish()
	close(r.closed)
	r.box.ended(r)
}

func (r *run) cat() <-chan struct{} {
	done := make(chan struct{})
	if r.stdinR == nil {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		_, _ = io.Copy(r.stdout, r.stdinR) // ends with the pipe
	}()
	return done
}

func (r *run) outcome(code int, reason sandbox.Reason) sandbox.Result {
	switch reason {
	case "":
		return sandbox.Result{Reason: sandbox.ReasonExit, ExitCode: code}
	case sandbox.ReasonLost:
		return sandbox.Lost("the sandbox ended while the command ran")
	default:
		return sandbox.Result{Reason: reason, ExitCode: 137, Signal: syscall.SIGKILL, Note: "it was killed"}
	}
}

// End implements [sandbox.Run].
func (r *run) End(reason sandbox.Reason) {
	select {
	case r.end <- reason:
	default:
	}
}

// Done implements [sandbox.Run].
func (r *run) Done() <-chan struct{} { return r.done }

// Close implements [sandbox.Run].
func (r *run) Close() {}

// Closed implements [sandbox.Run].
func (r *run) Closed() <-chan struct{} { return r.closed }

// Result implements [sandbox.Run].
func (r *run) Result() sandbox.Result { return r.result }

// Streams implements [sandbox.Run].
func (r *run) Streams() (stdout, stderr json.RawMessage) { return r.stdout.meta(), r.stderr.meta() }

// Output implements [sandbox.Run].
func (r *run) Output(name sandbox.Stream) sandbox.Output {
	if name == sandbox.Stderr {
		return r.stderr
	}
	return r.stdout
}

// Stdin implements [sandbox.Run].
func (r *run) Stdin() (io.WriteCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stdinW == nil {
		return nil, &sandbox.Error{Class: sandbox.ErrConflict, Code: sandbox.CodeInUse, Message: "no standard input to write to"}
	}
	stdin := r.stdinW
	r.stdinW = nil
	return stdin, nil
}
