package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Run carries out a call, or joins the one that was made in the same place
// with the same call id. It returns when the commands run; an error says that
// none has. The caller goes on with [ActiveCall.Wait] or [ActiveCall.Leave].
func (m *Manager) Run(ctx context.Context, spec CallSpec) (*ActiveCall, error) {
	if err := m.await(ctx); err != nil {
		return nil, err
	}
	a, err := m.enter(ctx, spec)
	if err != nil {
		return nil, err
	}
	err = await(ctx, a.started)
	if err == nil {
		err = a.failure()
	}
	if err != nil {
		a.Leave()
		return nil, err
	}
	return a, nil
}

// enter finds the active call that spec means or starts a new one.
func (m *Manager) enter(ctx context.Context, spec CallSpec) (*ActiveCall, error) {
	fingerprint := spec.Fingerprint()
	key := callKey{scope: string(spec.ContainerID), callID: spec.CallID}

	m.mu.Lock()
	defer m.mu.Unlock()
	if m.notReady != nil {
		return nil, m.notReady
	}
	if a := m.byKey[key]; a != nil {
		if a.call.Fingerprint != fingerprint {
			return nil, callIDConflict(spec.CallID)
		}
		a.joinLocked()
		return a, nil
	}
	if m.runs+len(spec.Commands) > m.opts.Policy.MaxRuns {
		return nil, &Error{
			Class: ErrExhausted, Code: CodeTooManyRuns, Param: "action.commands", RetryAfter: leaveGrace,
			Message: fmt.Sprintf("%d commands are running and at most %d may (limits.max_runs); wait for some to end", m.runs, m.opts.Policy.MaxRuns),
		}
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	a := &ActiveCall{
		m: m, key: key, cancel: cancel, started: make(chan struct{}), done: make(chan struct{}), waiters: 1,
		call: Call{
			ID: NewCallID(), ContainerID: spec.ContainerID, Status: CallInProgress,
			CreatedAt: m.now(), Spec: spec, Fingerprint: fingerprint,
		},
	}
	a.id = a.call.ID
	m.runs += len(spec.Commands)
	m.calls[a.id], m.byKey[key] = a, a
	m.wg.Go(func() {
		defer cancel(nil)
		m.execute(ctx, a)
	})
	return a, nil
}

// execute takes a call from its record to its end.
func (m *Manager) execute(ctx context.Context, a *ActiveCall) {
	defer m.drop(a)
	call := a.Call()
	existing, added, err := m.opts.Store.AddCall(ctx, a.key.scope, call)
	if err == nil && !added && existing.Fingerprint != call.Fingerprint {
		err = callIDConflict(call.Spec.CallID)
	}
	if err != nil || !added {
		m.settle(a, nil, existing, err)
		return
	}

	e, lost, err := m.begin(ctx, a)
	call = a.Call()
	switch {
	case err == nil:
		close(a.started)
		call.Results, err = m.collect(ctx, a, lost)
	case errors.Is(err, errCanceled) || errors.Is(err, errAbandoned):
		for range call.Spec.Commands {
			call.Results = append(call.Results, notStarted(err))
		}
		err = nil
	}
	var unstored error
	if err == nil {
		call.Status, call.CompletedAt = verdict(call.Results), m.now()
		unstored = m.record(ctx, call)
	} else if !errors.Is(err, errClosed) {
		err = errors.Join(err, m.forget(ctx, call.ID))
	}
	m.settle(a, e, call, err)

	if e != nil && call.Spec.Auto != nil && (call.Spec.DeleteAfter || err != nil) && !errors.Is(err, errClosed) {
		m.discard(ctx, e)
	}
	if unstored != nil {
		m.insist(ctx, call, unstored)
	}
	if err == nil {
		m.followStreams(ctx, a, call)
	}
}

// record stores a call, even when its client has gone.
func (m *Manager) record(ctx context.Context, call Call) error {
	ctx, cancel := undo(ctx)
	defer cancel()
	return m.opts.Store.PutCall(ctx, call)
}

// forget removes the record of a call of which no command has run.
func (m *Manager) forget(ctx context.Context, id CallID) error {
	ctx, cancel := undo(ctx)
	defer cancel()
	return errors.Join(m.opts.Store.DeleteCall(ctx, id), m.opts.Outputs.Remove(id))
}

// insist stores the end of a call that could not be stored at once, since the
// commands have run and their results must not be lost with the disk's room.
// Meanwhile the call is found in memory.
func (m *Manager) insist(ctx context.Context, call Call, err error) {
	m.log.ErrorContext(ctx, "end of a call not recorded; trying again", "call_id", call.ID, "err", err)
	ticker := time.NewTicker(insistEvery)
	defer ticker.Stop()
	for err != nil {
		select {
		case <-ticker.C:
		case <-m.stopped:
			return
		}
		err = m.record(ctx, call)
	}
	m.log.InfoContext(ctx, "end of a call recorded at last", "call_id", call.ID)
}

// begin finds or makes the container and starts every command in it. A
// command that the sandbox failed to start has its error in lost.
func (m *Manager) begin(ctx context.Context, a *ActiveCall) (e *entry, lost []error, err error) {
	e, box, err := m.place(ctx, a)
	if err != nil {
		return e, nil, err
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

	for _, lostErr := range lost {
		if errors.Is(lostErr, ErrInvalid) {
			err = lostErr
		}
	}
	if err != nil {
		endAll(runs, ReasonCanceled)
		for _, run := range runs {
			if run != nil {
				<-run.Closed() // nothing writes to its streams from now on
				run.Close()
			}
		}
		return e, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a.runs = runs
	return e, lost, nil
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
	results := make([]Result, len(a.runs))
	for i, run := range a.runs {
		if run == nil {
			results[i] = notStarted(lost[i])
			continue
		}
		if await(ctx, run.Done()) != nil {
			if errors.Is(context.Cause(ctx), errClosed) {
				return nil, errClosed
			}
			endAll(a.runs[i:], ReasonCanceled)
			<-run.Done()
		}
		results[i] = run.Result()
		results[i].StdoutMeta, results[i].StderrMeta = run.Streams()
	}
	return results, nil
}

// settle publishes how the call ended and lets its waiters go.
func (m *Manager) settle(a *ActiveCall, e *entry, call Call, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs -= len(a.call.Spec.Commands)
	a.call, a.err = call, err
	delete(m.byKey, a.key)
	if e != nil {
		delete(e.active, a)
		e.container.LastActiveAt = m.now()
	}
	if a.leave != nil {
		a.leave.Stop()
	}
	close(a.done) // first, so that who waits for started sees how it ended
	select {
	case <-a.started:
	default:
		close(a.started)
	}
}

// followStreams waits until background processes have closed the streams of
// their commands and then records where they ended.
func (m *Manager) followStreams(ctx context.Context, a *ActiveCall, call Call) {
	grown := false
	call.Results = slices.Clone(call.Results) // clients read the others
	for i, run := range a.runs {
		if run == nil {
			continue
		}
		select {
		case <-run.Closed():
			continue // its streams were whole when the result was fixed
		default:
		}
		select {
		case <-run.Closed():
		case <-m.stopped:
			return
		}
		call.Results[i].StdoutMeta, call.Results[i].StderrMeta = run.Streams()
		grown = true
	}
	if !grown {
		return
	}
	if err := m.record(ctx, call); err != nil {
		m.log.WarnContext(ctx, "end of background output not recorded", "call_id", call.ID, "err", err)
	}
}

// drop forgets a call that needs no more memory.
func (m *Manager) drop(a *ActiveCall) {
	m.mu.Lock()
	delete(m.calls, a.id)
	runs := a.runs
	m.mu.Unlock()
	for _, run := range runs {
		if run != nil {
			run.Close()
		}
	}
}

func endAll(runs []Run, reason Reason) {
	for _, run := range runs {
		if run != nil {
			run.End(reason)
		}
	}
}
