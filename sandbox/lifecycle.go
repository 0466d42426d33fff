package sandbox

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// Create makes a container and returns when commands can run in it. When ctx
// ends first, nothing of it is left.
func (m *Manager) Create(ctx context.Context, spec Spec) (Container, error) {
	if err := m.await(ctx); err != nil {
		return Container{}, err
	}
	e, err := m.create(ctx, spec, false)
	if err != nil {
		return Container{}, err
	}
	if ctx.Err() != nil { // nobody is there to own it
		m.discard(ctx, e)
		return Container{}, context.Cause(ctx)
	}
	return m.snapshot(e), nil
}

// create makes a container with its entry, or leaves nothing.
func (m *Manager) create(ctx context.Context, spec Spec, auto bool) (*entry, error) {
	now := m.now()
	e := newEntry(Container{
		ID: NewID(), Spec: spec, Status: StatusCreating,
		CreatedAt: now, LastActiveAt: now, Auto: auto,
	})
	if err := m.admit(ctx, e); err != nil {
		return nil, err
	}
	if err := m.start(ctx, e); err != nil {
		m.discard(ctx, e)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	m.log.InfoContext(ctx, "container created", "container_id", e.id, "duration_ms", m.now().Sub(now).Milliseconds())
	return e, nil
}

// admit counts the new container in, evicting an idle one that a call had made
// for itself when there are too many.
func (m *Manager) admit(ctx context.Context, e *entry) error {
	for {
		m.mu.Lock()
		if m.notReady != nil {
			defer m.mu.Unlock()
			return m.notReady
		}
		if m.liveLocked() < m.opts.Policy.MaxContainers {
			m.entries[e.id] = e
			m.mu.Unlock()
			return nil
		}
		victim := m.idleAutoLocked()
		m.mu.Unlock()
		if victim == "" {
			return &Error{
				Class: ErrExhausted, Code: CodeTooManyContainers,
				Message: "too many containers are running; delete one, or raise limits.max_containers", RetryAfter: leaveGrace,
			}
		}
		m.log.InfoContext(ctx, "container evicted", "container_id", victim)
		if err := m.Delete(ctx, victim); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
}

// idleAutoLocked returns the automatic container that has been idle longest.
func (m *Manager) idleAutoLocked() ID {
	var oldest *entry
	for _, e := range m.entries {
		c := &e.container
		if !c.Auto || c.Status != StatusRunning || len(e.active) > 0 {
			continue
		}
		if oldest == nil || c.LastActiveAt.Before(oldest.container.LastActiveAt) {
			oldest = e
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.id
}

// start takes an admitted container to StatusRunning.
func (m *Manager) start(ctx context.Context, e *entry) error {
	c := e.container
	if err := m.opts.Store.PutContainer(ctx, c); err != nil {
		return err
	}
	instance, err := m.opts.Backend.Create(ctx, BoxSpec{
		ID: c.ID, Image: c.Spec.Image, CgroupPath: m.opts.Boxes.CgroupPath(c.ID), Labels: c.Spec.Labels,
	})
	if err != nil {
		return err
	}
	box, err := m.opts.Boxes.Open(ctx, instance, c.Spec)
	if err != nil {
		return err
	}
	c.Status, c.Limits = StatusRunning, box.Limits()
	if !m.opts.Policy.AllowUnenforced && !(c.Limits.Memory.Enforced && c.Limits.Pids.Enforced) {
		return errors.Join(unenforceable(), box.Close())
	}
	if err := m.opts.Store.PutContainer(ctx, c); err != nil {
		return errors.Join(err, box.Close())
	}
	m.attach(e, c, box)
	return nil
}

// attach puts a started sandbox into its entry and watches over it.
func (m *Manager) attach(e *entry, c Container, box Box) {
	m.mu.Lock()
	e.container, e.box = c, box
	m.mu.Unlock()
	m.wg.Go(func() {
		select {
		case <-box.Done():
			m.fail(e, box)
		case <-m.stopped:
		}
	})
}

// fail records that a sandbox is gone, unless it was meant to go.
func (m *Manager) fail(e *entry, box Box) {
	ctx, cancel := undo(context.Background())
	defer cancel()
	m.mu.Lock()
	if e.box != box || e.container.Status != StatusRunning {
		m.mu.Unlock()
		return
	}
	c := e.container
	c.Status, c.StatusReason, c.EndedAt = StatusFailed, box.Err().Error(), m.now()
	e.container, e.box = c, nil
	m.mu.Unlock()
	m.log.WarnContext(ctx, "container failed", "container_id", c.ID, "err", box.Err())
	if err := errors.Join(
		m.opts.Store.PutContainer(ctx, c),
		box.Close(),
		m.opts.Backend.Delete(ctx, c.ID),
		m.opts.Boxes.Remove(ctx, c.ID),
	); err != nil {
		m.log.WarnContext(ctx, "failed container not cleaned up", "container_id", c.ID, "err", err)
	}
}

// discard removes every trace of a container, whatever state it is in.
func (m *Manager) discard(ctx context.Context, e *entry) {
	ctx, cancel := undo(ctx)
	defer cancel()
	if err := m.remove(ctx, e); err != nil {
		m.log.WarnContext(ctx, "container not removed", "container_id", e.id, "err", err)
	}
}

// Delete ends what runs in the container and removes it with all its data.
func (m *Manager) Delete(ctx context.Context, id ID) error {
	e, err := m.lookup(ctx, id)
	if err != nil {
		return err
	}
	ctx, cancel := undo(ctx) // a client that leaves does not stop a delete
	defer cancel()
	return m.remove(ctx, e)
}

func (m *Manager) remove(ctx context.Context, e *entry) error {
	m.mu.Lock()
	if m.entries[e.id] != e {
		m.mu.Unlock()
		return NotFound("container", string(e.id))
	}
	if gone := e.gone; gone != nil {
		m.mu.Unlock()
		<-gone
		return m.remove(ctx, e) // not found, unless that delete went wrong
	}
	gone := make(chan struct{})
	e.gone = gone
	before := e.container.Status
	e.container.Status = StatusDeleting
	c, box, active := e.container, e.box, slices.Collect(maps.Keys(e.active))
	m.mu.Unlock()

	for _, a := range active {
		a.cancel(errCanceled)
	}
	for _, a := range active { // their results want the guest alive
		select {
		case <-a.done:
		case <-ctx.Done():
		}
	}
	err := m.opts.Store.PutContainer(ctx, c)
	if err == nil {
		err = m.opts.Backend.Delete(ctx, c.ID)
	}
	if err == nil {
		if box != nil {
			err = box.Close()
		}
		err = errors.Join(err, m.opts.Boxes.Remove(ctx, c.ID), m.opts.Store.DeleteContainer(ctx, c.ID))
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	defer close(gone)
	e.gone = nil
	if err != nil {
		e.container.Status = before
		return err
	}
	delete(m.entries, c.ID)
	return nil
}

// DeleteAll deletes every container, as [Manager.Delete] does, and creates no
// more.
func (m *Manager) DeleteAll(ctx context.Context) error {
	m.mu.Lock()
	m.setNotReadyLocked(errClosed)
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

// Container returns the container and counts as activity.
func (m *Manager) Container(ctx context.Context, id ID) (Container, error) {
	e, err := m.lookup(ctx, id)
	if err != nil {
		return Container{}, err
	}
	m.touch(e)
	return m.snapshot(e), nil
}

// Containers returns a page of containers by creation time, and whether there
// are more.
func (m *Manager) Containers(ctx context.Context, q Query) (page []Container, more bool, err error) {
	if err := m.await(ctx); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		if e.visible() && (q.Name == "" || e.container.Spec.Name == q.Name) {
			page = append(page, e.container)
		}
	}
	slices.SortFunc(page, func(a, b Container) int {
		order := cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
		if q.Ascending {
			return order
		}
		return -order
	})
	if q.After != "" {
		i := slices.IndexFunc(page, func(c Container) bool { return string(c.ID) == q.After })
		if i < 0 {
			return nil, false, Invalid("after", "no container with id %q in this list; pass the id of the last container of the page before", q.After)
		}
		page = page[i+1:]
	}
	if len(page) > q.Limit {
		return page[:q.Limit], true, nil
	}
	return page, false, nil
}

func (e *entry) visible() bool {
	return e.container.Status == StatusRunning || e.container.Status == StatusFailed
}

// lookup finds a container that callers may see.
func (m *Manager) lookup(ctx context.Context, id ID) (*entry, error) {
	if err := m.await(ctx); err != nil {
		return nil, err // it may exist: nobody has looked yet
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[id]; e != nil && e.visible() {
		return e, nil
	}
	return nil, NotFound("container", string(id))
}

func (m *Manager) snapshot(e *entry) Container {
	m.mu.Lock()
	defer m.mu.Unlock()
	return e.container
}

func (m *Manager) touch(e *entry) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	e.container.LastActiveAt = now
}
