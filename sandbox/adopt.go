package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// adopt takes over a sandbox that an earlier daemon has started. An error that
// matches [ErrBroken] says that it was given up; after any other the sandbox
// lives, and adoption is tried again in the background, since what keeps
// shelld from reaching it is no reason to destroy its data.
func (m *Manager) adopt(ctx context.Context, e *entry, instance Instance) error {
	err := m.tryAdopt(ctx, e, instance)
	if err == nil || errors.Is(err, ErrBroken) || ctx.Err() != nil {
		return err
	}
	m.log.WarnContext(ctx, "container not adopted yet; trying again", "container_id", e.id, "err", err)
	m.persist(ctx, "adopt "+string(e.id), func(ctx context.Context) error { return m.adoptAgain(ctx, e) })
	return err
}

// tryAdopt is one attempt to adopt a sandbox; one that is gone or broken is
// marked failed.
func (m *Manager) tryAdopt(ctx context.Context, e *entry, instance Instance) error {
	c := m.snapshot(e)
	err := fmt.Errorf("%w: it ended while shelld was away", ErrBroken)
	if instance.Running {
		var box Box
		openCtx, cancel := context.WithTimeoutCause(ctx, adoptBudget, errors.New("its guest did not answer"))
		defer cancel()
		if box, err = m.opts.Boxes.Open(openCtx, instance, c.Spec); err == nil {
			c.Limits = box.Limits()
			m.attach(e, c, box) //nolint:contextcheck // the watch outlives the call
			return nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx) // shelld is stopping; that is no fault of the sandbox
	}
	if errors.Is(err, ErrBroken) {
		m.giveUp(ctx, e, err)
	}
	return err
}

// adoptAgain is tryAdopt for a sandbox that may have changed, or may be being
// deleted, meanwhile. It returns nil when there is nothing left to try.
func (m *Manager) adoptAgain(ctx context.Context, e *entry) error {
	instances, err := m.opts.Backend.List(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	claimed := m.claimLocked(e)
	adoptable := claimed && e.container.Status == StatusRunning && e.box == nil
	m.mu.Unlock()
	if claimed {
		defer m.release(e)
	}
	if !adoptable {
		return nil
	}
	var instance Instance // not running unless it is listed
	if i := slices.IndexFunc(instances, func(in Instance) bool { return in.ID == e.id }); i >= 0 {
		instance = instances[i]
	}
	err = m.tryAdopt(ctx, e, instance)
	switch {
	case err == nil:
		m.log.InfoContext(ctx, "container adopted at last", "container_id", e.id)
	case errors.Is(err, ErrBroken):
		err = nil
	}
	return err
}

// giveUp marks a container failed whose sandbox cannot be adopted.
func (m *Manager) giveUp(ctx context.Context, e *entry, reason error) {
	now := m.now()
	m.mu.Lock()
	e.container.Status, e.container.StatusReason, e.container.EndedAt = StatusFailed, reason.Error(), now
	c := e.container
	m.mu.Unlock()
	m.log.WarnContext(ctx, "container not adopted", "container_id", c.ID, "err", reason)
	if err := m.opts.Store.PutContainer(ctx, c); err != nil {
		m.log.WarnContext(ctx, "container state not recorded", "container_id", c.ID, "err", err)
	}
	m.cleanUp(ctx, c.ID)
}

// cleanUp removes a sandbox, but not its record. What cannot be removed now is
// removed later, in the background.
func (m *Manager) cleanUp(ctx context.Context, id ID) {
	ctx, cancel := undo(ctx)
	defer cancel()
	if err := m.removeBox(ctx, id); err != nil {
		m.log.WarnContext(ctx, "sandbox not removed yet; trying again", "container_id", id, "err", err)
		m.persist(ctx, "remove "+string(id), func(ctx context.Context) error { return m.removeBoxAgain(ctx, id) })
	}
}

// removeBox removes a sandbox and then what belongs to it on the host.
func (m *Manager) removeBox(ctx context.Context, id ID) error {
	if err := m.opts.Backend.Delete(ctx, id); err != nil {
		return err
	}
	return m.opts.Boxes.Remove(ctx, id)
}

// removeBoxAgain is removeBox for a sandbox that may be being deleted.
func (m *Manager) removeBoxAgain(ctx context.Context, id ID) error {
	m.mu.Lock()
	e := m.entries[id]
	claimed := e != nil && m.claimLocked(e)
	m.mu.Unlock()
	if claimed {
		defer m.release(e)
	}
	return m.removeBox(ctx, id)
}
