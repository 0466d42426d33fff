package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

// cancelBudget is how long an interrupted shellctl waits for its call's end.
const cancelBudget = 2 * time.Second

var (
	errBudget = errors.New("the call did not end in time")
	errOver   = errors.New("shellctl is done with the call")
)

// session is a started call whose end shellctl waits for.
type session struct {
	p    *program
	call *client.StartedCall
	// commands is how many streams are copied to ours: of the first so many
	// commands. 0: of none.
	commands int
	// stdin forwards ours to the first command.
	stdin bool
}

// wait copies streams until the call has ended and all that it wrote has been
// written out, and then says how commands ended that did not end by themselves.
// A signal, and output that cannot be written, cancel the call;
// the error is then their cause, and the call is returned if it ended in time.
func (s *session) wait(ctx context.Context) (*rpc.ShellCall, error) {
	run, fail := context.WithCancelCause(ctx)
	defer fail(errOver)
	life, leave := context.WithCancelCause(context.WithoutCancel(ctx)) // outlives a signal by cancelBudget
	defer leave(errOver)

	which := make([]int, s.commands)
	for i := range which {
		which[i] = i
	}
	streams := s.p.follow(life, s.call.CallID, which, s.commands > 1, client.OutputRange{Follow: true}, fail)
	if s.stdin {
		s.feed(life, fail)
	}
	select {
	case <-s.call.Done():
	case <-run.Done():
		return s.cancel(run, life, streams)
	}
	call, err := s.call.Wait(life)
	if err != nil {
		return nil, s.lost(err)
	}
	streams.finish(call.Results)
	select {
	case <-streams.done:
	case <-run.Done():
	}
	if run.Err() != nil {
		return call, context.Cause(run)
	}
	if err := streams.complete(); err != nil || s.commands == 0 {
		return call, err
	}
	if err := streams.notes(call.Results, s.commands > 1); err != nil {
		return call, err
	}
	return call, streams.whole()
}

// cancel ends the call because run has ended, and gives it, its output and
// their readers cancelBudget in all. Who is stuck in a write then is left.
func (s *session) cancel(run, life context.Context, streams *followers) (*rpc.ShellCall, error) {
	budget, stop := context.WithTimeoutCause(life, cancelBudget, errBudget)
	defer stop()
	cause := context.Cause(run)
	// When canceling fails, leaving will do: the daemon cancels then.
	_, _ = s.p.client.CancelShellCall(budget, s.call.CallID)
	call, err := s.call.Wait(budget)
	switch own := interruption(run) != nil || errors.Is(cause, errBrokenPipe) || errors.Is(err, errBudget); {
	case err != nil && own:
		return nil, cause
	case err != nil: // a stream broke because everything did
		return nil, s.lost(err)
	}
	streams.finish(call.Results)
	select {
	case <-streams.done:
	case <-budget.Done():
	}
	return call, cause
}

// lost is the error of a call whose end was not heard of.
func (s *session) lost(err error) error {
	return fmt.Errorf("%w; see 'shellctl run show %s'", err, s.call.CallID)
}

// feed forwards stdin until its end or ctx's. A read of a terminal or a pipe
// cannot be called back; it is left to the end of the process.
func (s *session) feed(ctx context.Context, fail context.CancelCauseFunc) {
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, s.p.in)
		_ = w.CloseWithError(err)
	}()
	go func() {
		defer func() { _ = r.Close() }() // never fails
		_, err := s.p.client.WriteStdin(ctx, s.call.CallID, 0, r)
		if err == nil || ctx.Err() != nil {
			return
		}
		// A command that has ended takes no input: that is no error.
		if call, getErr := s.p.client.ShellCall(ctx, s.call.CallID); getErr == nil && call.Status != "in_progress" {
			return
		}
		fail(err)
	}()
}
