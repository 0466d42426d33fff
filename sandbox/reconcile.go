package sandbox

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// adoptWorkers is how many sandboxes are adopted at once.
	adoptWorkers = 8
	// adoptBudget bounds the adoption of one sandbox, so that one that hangs
	// holds up none of the others.
	adoptBudget = 5 * time.Second
)

// Reconcile brings records and sandboxes in line after a start: it adopts
// sandboxes that live, marks containers failed whose sandbox is gone, finishes
// deletes, and removes what no record knows. Calls that were under way are
// marked lost. Afterwards calls are served. One bad record does not stop the
// rest; an error means that the store or the backend could not be read, and
// the caller tries again later.
func (m *Manager) Reconcile(ctx context.Context) error {
	ctx, end, err := m.operate(ctx)
	if err != nil {
		return err
	}
	defer end()
	records, err := m.opts.Store.Containers(ctx)
	if err != nil {
		return err
	}
	instances, err := m.opts.Backend.List(ctx)
	if err != nil {
		return err
	}
	open, err := m.opts.Store.OpenCalls(ctx)
	if err != nil {
		return err
	}
	found := make(map[ID]Instance, len(instances))
	for _, instance := range instances {
		found[instance.ID] = instance
	}

	var adopted, failed, removed atomic.Int64
	var group errgroup.Group
	group.SetLimit(adoptWorkers)
	for _, c := range records {
		instance := found[c.ID]
		delete(found, c.ID)
		e := newEntry(c)
		m.mu.Lock()
		m.entries[c.ID] = e
		m.mu.Unlock()
		switch {
		case c.Status == StatusFailed:
			if instance.ID == "" {
				continue
			}
			group.Go(func() error { m.cleanUp(ctx, c.ID); return nil })
		case c.Status != StatusRunning:
			removed.Add(1)
			group.Go(func() error { m.discard(ctx, e); return nil })
		default:
			group.Go(func() error {
				if m.adopt(ctx, e, instance) {
					adopted.Add(1)
				} else {
					failed.Add(1)
				}
				return nil
			})
		}
	}
	for id := range found { // no record: nobody can own it
		removed.Add(1)
		group.Go(func() error { m.cleanUp(ctx, id); return nil })
	}
	_ = group.Wait() // the workers keep their errors to their own record
	if ctx.Err() != nil {
		return context.Cause(ctx) // the next daemon goes on with it
	}

	for _, call := range open {
		m.markLost(ctx, call)
	}
	m.SetNotReady(nil)
	m.log.InfoContext(ctx, "reconciled", "adopted", adopted.Load(), "failed", failed.Load(),
		"removed", removed.Load(), "lost_calls", len(open))
	return nil
}

// adopt takes over a sandbox that an earlier daemon has started, and reports
// whether it could.
func (m *Manager) adopt(ctx context.Context, e *entry, instance Instance) bool {
	c := m.snapshot(e)
	err := errors.New("its sandbox ended while shelld was away")
	if instance.Running {
		var box Box
		openCtx, cancel := context.WithTimeoutCause(ctx, adoptBudget, errors.New("its guest did not answer"))
		defer cancel()
		if box, err = m.opts.Boxes.Open(openCtx, instance, c.Spec); err == nil {
			c.Limits = box.Limits()
			m.attach(e, c, box) //nolint:contextcheck // the watch outlives the call
			return true
		}
	}
	if ctx.Err() != nil {
		return false // shelld is stopping; that is no fault of the sandbox
	}
	c.Status, c.StatusReason, c.EndedAt = StatusFailed, err.Error(), m.now()
	m.mu.Lock()
	e.container = c
	m.mu.Unlock()
	m.log.WarnContext(ctx, "container not adopted", "container_id", c.ID, "err", err)
	if err := m.opts.Store.PutContainer(ctx, c); err != nil {
		m.log.WarnContext(ctx, "container state not recorded", "container_id", c.ID, "err", err)
	}
	m.cleanUp(ctx, c.ID)
	return false
}

// cleanUp removes a sandbox, but not its record.
func (m *Manager) cleanUp(ctx context.Context, id ID) {
	ctx, cancel := undo(ctx)
	defer cancel()
	if err := errors.Join(m.opts.Backend.Delete(ctx, id), m.opts.Boxes.Remove(ctx, id)); err != nil {
		m.log.WarnContext(ctx, "sandbox not removed", "container_id", id, "err", err)
	}
}

// markLost ends the record of a call that was under way when an earlier daemon
// ended.
func (m *Manager) markLost(ctx context.Context, call Call) {
	call.Results = make([]Result, len(call.Spec.Commands))
	for i := range call.Results {
		call.Results[i] = Lost("shelld was restarted while the command ran; whether it did its work is not known")
	}
	call.Status, call.CompletedAt = verdict(call.Results), m.now()
	if err := m.opts.Store.PutCall(ctx, call); err != nil {
		m.log.WarnContext(ctx, "lost call not recorded", "call_id", call.ID, "err", err)
	}
}
