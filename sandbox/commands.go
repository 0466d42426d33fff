package sandbox

import (
	"context"
	"errors"
	"sync"
)

// begin finds or makes the container and starts every command in it. When one
// is refused none is to run, so that an error is the answer for the whole call;
// results have no way to say that a command was never started. A command that
// may or may not have been started has its error in lost.
func (m *Manager) begin(ctx context.Context, a *ActiveCall) (e *entry, lost []error, err error) {
	e, box, err := m.place(ctx, a)
	if err != nil {
		return e, nil, err
	}
	if ctx.Err() != nil {
		return e, nil, context.Cause(ctx)
	}
	call := a.Call()
	runs := make([]Run, len(call.Spec.Commands))
	lost = make([]error, len(runs))
	start := func(i int) {
		runs[i], lost[i] = box.Start(ctx, Command{
			Call: call.ID, Index: i, Text: call.Spec.Commands[i], Env: call.Spec.Env, Dir: call.Spec.Dir,
			Stdin: call.Spec.Stdin, Timeout: call.Spec.Timeout, MaxOutput: call.Spec.MaxOutput,
		})
	}
	var wg sync.WaitGroup
	for i := 1; i < len(runs); i++ {
		wg.Go(func() { start(i) })
	}
	start(0)
	wg.Wait()

	stopping := errors.Is(context.Cause(ctx), errClosed)
	if refused := refusal(lost); refused != nil && !stopping {
		return e, nil, m.takeBack(ctx, runs, refused)
	}
	m.mu.Lock()
	a.runs = runs
	m.mu.Unlock()
	if stopping { // also of what ctx kept from starting it is not known
		return e, nil, interrupted(call.ID)
	}
	return e, lost, nil
}

// refusal returns the error of a command that has not been started for
// certain, or nil. The caller's fault goes before a lack of room, since waiting
// does not help it.
func refusal(errs []error) (refused *Error) {
	for _, err := range errs {
		e, ok := errors.AsType[*Error](err)
		if ok && (errors.Is(e, ErrInvalid) || errors.Is(e, ErrTooLarge)) {
			return e
		}
		if ok && errors.Is(e, ErrExhausted) {
			refused = e
		}
	}
	return refused
}

// takeBack ends the commands of a call of which another was refused, and
// returns the answer to the call. It asks for no repetition once commands have
// run, if only for a moment.
func (m *Manager) takeBack(ctx context.Context, runs []Run, refused *Error) error {
	endAll(runs, ReasonCanceled)
	ctx, cancel := undo(ctx)
	defer cancel()
	said := ""
	for _, run := range runs {
		if run == nil {
			continue
		}
		if said == "" {
			said = "; its other commands had been started and were ended"
		}
		if m.outlast(ctx, run.Closed()) != nil { // else nothing writes to its streams from now on
			said = "; its other commands had been started and could not be ended for certain"
		}
		run.Close()
	}
	if said == "" {
		return refused
	}
	answer := *refused
	answer.Message += said
	answer.RetryAfter, answer.NoRetry = 0, true
	return &answer
}

// outlast is await for what the end of the daemon also ends.
func (m *Manager) outlast(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-m.stopped:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-ch:
		return nil
	}
}

// place finds the call's container, or makes it, and books the call in.
func (m *Manager) place(ctx context.Context, a *ActiveCall) (*entry, Box, error) {
	spec := a.Call().Spec
	if spec.Auto == nil {
		now := m.now()
		m.mu.Lock()
		defer m.mu.Unlock()
		e := m.entries[spec.ContainerID]
		if e == nil || !e.visible() {
			return nil, nil, NotFound("container", string(spec.ContainerID))
		}
		if e.box == nil {
			return nil, nil, unusable(e.container)
		}
		e.container.LastActiveAt = now
		e.active[a] = struct{}{}
		return e, e.box, nil
	}
	e, err := m.create(ctx, *spec.Auto, a)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	a.call.ContainerID = e.id
	call, box := a.call, e.box
	m.mu.Unlock()
	if box == nil {
		return e, nil, unusable(m.snapshot(e))
	}
	return e, box, m.opts.Store.PutCall(ctx, call)
}

// collect waits for the commands and returns their results. When ctx is
// canceled it ends them first, but not when the daemon stops: they are the
// next daemon's then.
func (m *Manager) collect(ctx context.Context, a *ActiveCall, lost []error) ([]Result, error) {
	err := each(a.runs, func(run Run) error { return await(ctx, run.Done()) })
	if err != nil && !errors.Is(err, errClosed) {
		endAll(a.runs, ReasonCanceled)
		undoCtx, cancel := undo(ctx)
		defer cancel()
		err = each(a.runs, func(run Run) error { return m.outlast(undoCtx, run.Done()) })
	}
	if errors.Is(err, errClosed) {
		return nil, interrupted(a.id)
	}
	results := make([]Result, len(a.runs))
	for i, run := range a.runs {
		if run == nil {
			results[i] = notStarted(lost[i])
			continue
		}
		select {
		case <-run.Done():
			results[i] = run.Result()
		default:
			results[i] = Lost("it was killed, but its sandbox did not say that it ended")
		}
		results[i].StdoutMeta, results[i].StderrMeta = run.Streams()
	}
	return results, nil
}

// each calls f with each run that was started until one fails.
func each(runs []Run, f func(Run) error) error {
	for _, run := range runs {
		if run == nil {
			continue
		}
		if err := f(run); err != nil {
			return err
		}
	}
	return nil
}

func endAll(runs []Run, reason Reason) {
	for _, run := range runs {
		if run != nil {
			run.End(reason)
		}
	}
}
