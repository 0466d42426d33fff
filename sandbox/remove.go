package sandbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// fail records that a sandbox is gone, unless it was meant to go.
func (m *Manager) fail(e *entry, box Box) {
	select {
	case <-m.stopped:
		return // letting go of a box looks like losing it
	default:
	}
	reason, now := box.Err(), m.now()
	m.mu.Lock()
	if !m.claimLocked(e) {
		m.mu.Unlock()
		return
	}
	defer m.release(e)
	if e.box != box {
		m.mu.Unlock()
		return
	}
	e.container.Status, e.container.StatusReason, e.container.EndedAt = StatusFailed, reason.Error(), now
	e.box = nil
	c, active := e.container, slices.Collect(maps.Keys(e.active))
	m.mu.Unlock()

	ctx, cancel := undo(context.Background())
	defer cancel()
	m.log.WarnContext(ctx, "container failed", "container_id", c.ID, "err", reason)
	err := m.opts.Store.PutContainer(ctx, c)
	undead := m.opts.Backend.Delete(ctx, c.ID)
	for _, a := range active { // their commands are over now; Close would take their results away
		_ = await(ctx, a.done)
	}
	if err := errors.Join(err, undead, box.Close()); err != nil {
		m.log.WarnContext(ctx, "failed container not cleaned up", "container_id", c.ID, "err", err)
	}
	m.cleanUp(ctx, c.ID)
}

// claimLocked makes the caller the only one that takes the container out of
// service, after whoever does so now, until [Manager.release]. It returns false
// when the container has been removed.
func (m *Manager) claimLocked(e *entry) bool {
	for e.busy != nil {
		busy := e.busy
		m.mu.Unlock()
		<-busy
		m.mu.Lock()
	}
	if m.entries[e.id] != e {
		return false
	}
	e.busy = make(chan struct{})
	return true
}

func (m *Manager) release(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(e.busy)
	e.busy = nil
}

// discard removes every trace of a container, whatever state it is in; if that
// does not work now, later in the background.
func (m *Manager) discard(ctx context.Context, e *entry) {
	ctx, cancel := undo(ctx)
	defer cancel()
	m.mu.Lock()
	e.doomed = true
	m.mu.Unlock()
	if err := m.remove(ctx, e); err != nil && !errors.Is(err, ErrNotFound) {
		m.log.WarnContext(ctx, "container not removed yet; trying again", "container_id", e.id, "err", err)
		m.persist(ctx, "remove "+string(e.id), func(ctx context.Context) error {
			if err := m.remove(ctx, e); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		})
	}
}

// Delete ends what runs in the container and removes it with all its data.
func (m *Manager) Delete(ctx context.Context, id ID) error {
	e, err := m.lookup(ctx, id)
	if err != nil {
		return err
	}
	ctx, end, err := m.operate(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := undo(ctx) // a client that leaves does not stop a delete
	defer cancel()
	return m.remove(ctx, e)
}

func (m *Manager) remove(ctx context.Context, e *entry) error {
	m.mu.Lock()
	before, claimed := m.condemnLocked(e)
	m.mu.Unlock()
	if !claimed {
		return NotFound("container", string(e.id))
	}
	return m.removeCondemned(ctx, e, before)
}

// condemnLocked is claimLocked for a removal: from now on no call comes to the
// container. It returns the container's status until now.
func (m *Manager) condemnLocked(e *entry) (before Status, claimed bool) {
	if !m.claimLocked(e) {
		return "", false
	}
	before, e.container.Status = e.container.Status, StatusDeleting
	return before, true
}

// removeCondemned removes a container that the caller has condemned, and
// releases it. When it fails the container has the status before again.
func (m *Manager) removeCondemned(ctx context.Context, e *entry, before Status) error {
	defer m.release(e)
	m.mu.Lock()
	c, box, active := e.container, e.box, slices.Collect(maps.Keys(e.active))
	m.mu.Unlock()

	for _, a := range active {
		a.cancel(errCanceled)
	}
	for _, a := range active { // their results want the guest alive
		_ = await(ctx, a.done)
	}
	err := m.opts.Store.PutContainer(ctx, c)
	if errors.Is(err, ErrStorageFull) {
		err = nil // deletes are what makes room again
	}
	if err == nil {
		err = m.opts.Backend.Delete(ctx, c.ID)
	}
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		e.container.Status = before
		return err
	}
	if box != nil {
		err = box.Close()
	}
	now := m.now()
	ended := c.EndedAt
	if ended.IsZero() {
		ended = now
	}
	err = errors.Join(err, m.opts.Boxes.Remove(ctx, c.ID), m.opts.Store.DeleteContainer(ctx, c.ID, ended))

	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil { // what is left of it can be deleted again
		e.container.Status, e.container.EndedAt, e.box = StatusFailed, now, nil
		e.container.StatusReason = "its removal was not finished: " + err.Error()
		return err
	}
	m.forgetEntryLocked(e)
	return nil
}

// DeleteAll deletes every container, as [Manager.Delete] does, and creates no
// more.
func (m *Manager) DeleteAll(ctx context.Context) error {
	if err := m.quiesce(ctx, errCanceled); err != nil {
		return err
	}
	m.mu.Lock()
	entries := slices.Collect(maps.Values(m.entries))
	m.mu.Unlock()
	errs := make([]error, len(entries))
	var wg sync.WaitGroup
	for i, e := range entries {
		wg.Go(func() {
			if err := m.remove(ctx, e); !errors.Is(err, ErrNotFound) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
