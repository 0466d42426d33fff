package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	if errors.Is(err, ErrExhausted) {
		if a := m.ended(ctx, spec); a != nil {
			return a, nil // it runs nothing
		}
	}
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

// ended returns the call that spec means if it has ended, or else nil.
func (m *Manager) ended(ctx context.Context, spec CallSpec) *ActiveCall {
	call, err := m.opts.Store.CallByKey(ctx, string(spec.ContainerID), spec.CallID)
	if err != nil || call.Status == CallInProgress || call.Fingerprint != spec.Fingerprint() {
		return nil
	}
	over := make(chan struct{})
	close(over)
	return &ActiveCall{m: m, id: call.ID, call: call, waiters: 1, started: over, done: over}
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
	if most := m.opts.Policy.MaxRuns; len(spec.Commands) > most {
		return nil, &Error{
			Class: ErrInvalid, Code: CodeAboveCeiling, Param: "action.commands",
			Message: fmt.Sprintf("the call has %d commands and at most %d may run at once (limits.max_runs); send fewer in one call", len(spec.Commands), most),
		}
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
	if err == nil && !added && existing.Status == CallInProgress {
		err = unsettled(existing)
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
	mine := !errors.Is(err, errInterrupted) // else the next daemon ends the call
	if err == nil {
		call.Status, call.CompletedAt = verdict(call.Results), m.now()
		unstored = m.record(ctx, call)
	} else if mine {
		err = errors.Join(err, m.forget(ctx, call.ID))
	}
	m.settle(a, e, call, err)

	if e != nil && call.Spec.Auto != nil && (call.Spec.DeleteAfter || err != nil) && mine {
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
	return m.deleteCall(ctx, id)
}

// deleteCall removes a call with its output. The record goes last, since
// nothing finds the output without it.
func (m *Manager) deleteCall(ctx context.Context, id CallID) error {
	if err := m.opts.Outputs.Remove(id); err != nil {
		return err
	}
	return m.opts.Store.DeleteCall(ctx, id)
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

// settle publishes how the call ended and lets its waiters go.
func (m *Manager) settle(a *ActiveCall, e *entry, call Call, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs -= len(a.call.Spec.Commands)
	a.call, a.err = call, err
	if err != nil {
		m.forgetKeyLocked(a) // else not before its end is stored
	}
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

// forgetKeyLocked lets the key of a call mean another one.
func (m *Manager) forgetKeyLocked(a *ActiveCall) {
	if m.byKey[a.key] == a {
		delete(m.byKey, a.key)
	}
}

// drop forgets a call that needs no more memory.
func (m *Manager) drop(a *ActiveCall) {
	m.mu.Lock()
	delete(m.calls, a.id)
	m.forgetKeyLocked(a)
	runs := a.runs
	m.mu.Unlock()
	for _, run := range runs {
		if run != nil {
			run.Close()
		}
	}
}
