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
	// adoptBudget bounds one attempt to adopt a sandbox, so that one that hangs
	// holds up none of the others.
	// It is longer than a guest may take for the two answers that this needs.
	adoptBudget = 25 * time.Second
)

// Reconcile brings records and sandboxes in line after a start: it adopts
// sandboxes that live, marks containers failed whose sandbox is gone or broken,
// finishes deletes, and removes what no record knows. A sandbox that lives but
// cannot be reached now is kept, and adopted in the background. Calls that were
// under way are marked lost, and the containers removed that were to go with
// them. Afterwards calls are served. One bad record does not stop the rest; an
// error means that the store or the backend could not be read, and the caller
// tries again later.
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

	var adopted, failed, later, removed atomic.Int64
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
		case c.Status == StatusFailed && !c.Transient:
			if instance.ID == "" {
				continue
			}
			group.Go(func() error { m.cleanUp(ctx, c.ID); return nil })
		case c.Status != StatusRunning || c.Transient: // its call has ended, or is lost
			removed.Add(1)
			group.Go(func() error { m.discard(ctx, e); return nil })
		default:
			group.Go(func() error {
				switch err := m.adopt(ctx, e, instance); {
				case err == nil:
					adopted.Add(1)
				case errors.Is(err, ErrBroken):
					failed.Add(1)
				default:
					later.Add(1)
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
	m.wg.Go(m.pruneOutputs)
	m.log.InfoContext(ctx, "reconciled", "adopted", adopted.Load(), "failed", failed.Load(),
		"adopted_later", later.Load(), "removed", removed.Load(), "lost_calls", len(open))
	return nil
}

// pruneOutputs removes the output that a daemon left which was killed between
// removing a call's record and its output, or the other way around.
func (m *Manager) pruneOutputs() {
	ctx, end, err := m.operate(context.Background())
	if err != nil {
		return
	}
	defer end()
	err = m.opts.Outputs.Prune(func(id CallID) bool { // a call has its record before it has output
		_, err := m.opts.Store.Call(ctx, id)
		return !errors.Is(err, ErrNotFound)
	})
	if err != nil {
		m.log.WarnContext(ctx, "output without a call not removed", "err", err)
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
		m.log.WarnContext(ctx, "lost call not recorded yet; trying again", "call_id", call.ID, "err", err)
		m.persist(ctx, "record "+string(call.ID), func(ctx context.Context) error { return m.opts.Store.PutCall(ctx, call) })
	}
}
