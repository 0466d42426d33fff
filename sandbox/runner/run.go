package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/guest"
	"github.com/shelld/shelld/sandbox/limit"
	"github.com/shelld/shelld/sandbox/output"
)

const (
	// drainBudget is how long the pipes of a command are read after its shell
	// has ended. What background processes write later is kept, but is no
	// part of the result.
	drainBudget = 250 * time.Millisecond
	// killBudget bounds the kill of everything a command has started.
	killBudget = 10 * time.Second
	// reportBudget is how long the guest may take to report the end of a
	// command whose processes are gone.
	reportBudget = 5 * time.Second
	// retryStart is the advice to a caller whose sandbox is full.
	retryStart = time.Second
)

var (
	errKillBudget = errors.New("the processes of the command could not be ended in time")
	// errCut ends the streams of a command whose processes are all dead.
	errCut = errors.New("all processes of the command were killed")
)

// run is a started command. It implements [sandbox.Run].
type run struct {
	box   *box
	id    string
	cmd   sandbox.Command
	proc  *guest.Process
	group *limit.Run // nil without cgroups
	// began and ended enclose the life of the command; ended is live's.
	began, ended time.Time

	stdout, stderr *output.Spool
	// flowing counts the streams that have not ended; at zero closed closes.
	// What else holds a pipe then, cut keeps from being read.
	flowing atomic.Int32
	cut     context.CancelCauseFunc
	// end carries a request to kill the command.
	end chan sandbox.Reason
	// done is closed when result is fixed.
	done, closed chan struct{}
	result       sandbox.Result

	ending sync.Mutex // held by endRest

	mu sync.Mutex // guards the rest
	// stdin is nil when there is none or it is taken.
	stdin *os.File
	// readers counts the outputs that were handed out, and one for the run
	// itself until Close; at zero the spools are closed.
	readers int
}

func (b *box) newRun(id string, cmd sandbox.Command, proc *guest.Process, group *limit.Run) *run {
	r := &run{
		box: b, id: id, cmd: cmd, proc: proc, group: group, began: time.Now(),
		stdout: b.opts.Spools.create(cmd.Call, cmd.Index, sandbox.Stdout),
		stderr: b.opts.Spools.create(cmd.Call, cmd.Index, sandbox.Stderr),
		end:    make(chan sandbox.Reason, 1), done: make(chan struct{}), closed: make(chan struct{}),
		stdin: proc.Stdin, readers: 1,
	}
	r.flowing.Store(2)
	uncut, cut := context.WithCancelCause(context.Background())
	r.cut = cut
	b.spawn(func(ctx context.Context) { r.consume(ctx, uncut, r.stdout, proc.Stdout) })
	b.spawn(func(ctx context.Context) { r.consume(ctx, uncut, r.stderr, proc.Stderr) })
	b.spawn(r.live)
	return r
}

// consume moves one stream into its spool until its last writer has gone or
// either context ends, that of the box or the one that ends with cut.
func (r *run) consume(box, ctx context.Context, spool *output.Spool, pipe *os.File) {
	stop := context.AfterFunc(box, func() { r.cut(context.Cause(box)) })
	defer stop()
	if err := spool.Consume(ctx, pipe); err != nil {
		spool.Finish() // so that its readers come to an end
	}
	if err := errors.Join(spool.Err(), pipe.Close()); err != nil {
		r.box.opts.Log.WarnContext(ctx, "output not kept whole", "container_id", r.box.id, "run", r.id, "err", err)
	}
	if r.flowing.Add(-1) == 0 {
		close(r.closed)
	}
}

// live takes the run from its start until nothing of it needs shelld any more.
func (r *run) live(ctx context.Context) {
	reason, ok := r.await(ctx)
	if !ok {
		r.result = sandbox.Lost("shelld let go of the sandbox while the command ran; whether it did its work is not known")
		close(r.done)
		return
	}
	r.result = r.conclude(ctx, reason)
	close(r.done)

	if reason != "" {
		r.cut(errCut)
	}
	select {
	case <-r.end: // too late for await and too early for End
		r.endRest(ctx)
	default:
	}
	r.closeStdin()
	if r.group != nil {
		if err := r.group.Release(); err != nil {
			r.box.opts.Log.WarnContext(ctx, "cgroup of a run not removed", "container_id", r.box.id, "run", r.id, "err", err)
		}
	}
	select {
	case <-r.closed:
		_ = r.box.client.Forget(r.id) // fails only with the connection, which the box watches
	case <-ctx.Done():
	}
}

// await waits until the command has ended or is to be ended, and ends it then.
// The reason is empty for a command that ended by itself. It returns false
// when shelld lets go of the sandbox first.
func (r *run) await(ctx context.Context) (reason sandbox.Reason, ok bool) {
	deadline := time.NewTimer(r.cmd.Timeout) // on a clock that does not count sleep
	defer deadline.Stop()
	select {
	case <-r.proc.Done():
	case <-deadline.C:
		reason = sandbox.ReasonTimeout
	case reason = <-r.end:
	case <-ctx.Done():
		return "", false
	}
	if reason != "" {
		r.kill(ctx)
	}
	r.ended = time.Now()
	return reason, r.drain(ctx)
}

// drain waits for the ends of the streams, for a moment. It returns false when
// shelld lets go of the sandbox first.
func (r *run) drain(ctx context.Context) bool {
	drained := time.NewTimer(drainBudget)
	defer drained.Stop()
	select {
	case <-r.closed:
	case <-drained.C:
		r.catchUp(ctx)
	case <-ctx.Done():
		return false
	}
	return true
}

// endRest kills what a command that has ended has left running. Whoever still
// has its pipes then got them from it and is no part of it.
func (r *run) endRest(ctx context.Context) {
	r.ending.Lock()
	defer r.ending.Unlock()
	r.kill(ctx)
	if r.drain(ctx) {
		r.cut(errCut)
	}
}

// kill ends everything the command has started, from outside, and waits for
// the guest to report it. A sandbox in which that can't be done is given up.
func (r *run) kill(ctx context.Context) {
	killCtx, cancel := context.WithTimeoutCause(ctx, killBudget, errKillBudget)
	defer cancel()
	var err error
	if r.group != nil {
		err = r.group.Kill(killCtx)
	} else {
		err = r.box.killAnchored(killCtx, r.id)
	}
	if ctx.Err() != nil {
		return // shelld lets go of the sandbox
	}
	if err != nil {
		r.box.fail(fmt.Errorf("a command in it could not be ended: %w", err))
		return
	}
	report := time.NewTimer(reportBudget)
	defer report.Stop()
	select {
	case <-r.proc.Done():
	case <-report.C:
		r.box.fail(errors.New("its process 1 stopped answering"))
	case <-ctx.Done():
	}
}

// Close implements [sandbox.Run].
func (r *run) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers--
	if r.readers > 0 {
		return
	}
	if err := errors.Join(r.stdout.Close(), r.stderr.Close()); err != nil {
		r.box.opts.Log.Warn("spool not closed", "run", r.id, "err", err)
	}
}

// End implements [sandbox.Run]. After the result is fixed it kills in the
// background what the command has left running.
func (r *run) End(reason sandbox.Reason) {
	select {
	case r.end <- reason:
	default: // it is being ended already
	}
	select {
	case <-r.done:
		r.box.spawn(r.endRest)
	default: // whoever closes done looks at end afterwards
	}
}

// Done implements [sandbox.Run].
func (r *run) Done() <-chan struct{} { return r.done }

// Result implements [sandbox.Run].
func (r *run) Result() sandbox.Result { return r.result }

// Closed implements [sandbox.Run].
func (r *run) Closed() <-chan struct{} { return r.closed }

// Streams implements [sandbox.Run].
func (r *run) Streams() (stdout, stderr json.RawMessage) {
	return encodeMeta(r.stdout), encodeMeta(r.stderr)
}

// encodeMeta returns what is needed to open the spool again; nothing for an
// empty stream, which has no file.
func encodeMeta(spool *output.Spool) json.RawMessage {
	meta := spool.Meta()
	if meta.Produced == 0 {
		return nil
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return nil // cannot be: it has numbers and a flag
	}
	return text
}

// Output implements [sandbox.Run].
func (r *run) Output(stream sandbox.Stream) sandbox.Output {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers++
	spool := r.stdout
	if stream == sandbox.Stderr {
		spool = r.stderr
	}
	return spoolOutput{Spool: spool, close: func() error { r.Close(); return nil }}
}

// Stdin implements [sandbox.Run].
func (r *run) Stdin() (io.WriteCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stdin == nil {
		return nil, &sandbox.Error{
			Class: sandbox.ErrConflict, Code: sandbox.CodeInUse,
			Message: `the command's standard input is at its end or taken; ask for it with "stdin": "stream" and send it once`,
		}
	}
	stdin := r.stdin
	r.stdin = nil
	return stdin, nil
}

// closeStdin closes an input that nobody has taken.
func (r *run) closeStdin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stdin != nil {
		_ = r.stdin.Close() // nothing was written to it
		r.stdin = nil
	}
}
