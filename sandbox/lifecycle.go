package sandbox

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Create makes a container and returns when commands can run in it. When ctx
// ends first, nothing of it is left.
func (m *Manager) Create(ctx context.Context, spec Spec) (Container, error) {
	if err := m.await(ctx); err != nil {
		return Container{}, err
	}
	ctx, end, err := m.operate(ctx)
	if err != nil {
		return Container{}, err
	}
	defer end()
	e, err := m.create(ctx, spec, nil)
	if err != nil {
		return Container{}, err
	}
	if ctx.Err() != nil { // nobody is there to own it
		m.discard(ctx, e)
		return Container{}, context.Cause(ctx)
	}
	return m.snapshot(e), nil
}

// create makes a container with its entry, or leaves nothing. A container that
// a call makes for itself has that call as its owner, and is busy with it from
// the beginning.
func (m *Manager) create(ctx context.Context, spec Spec, owner *ActiveCall) (*entry, error) {
	now := m.now()
	e := newEntry(Container{
		ID: NewID(), Spec: spec, Status: StatusCreating,
		CreatedAt: now, LastActiveAt: now, Auto: owner != nil,
	})
	if owner != nil {
		e.active[owner] = struct{}{}
		e.container.Transient = owner.call.Spec.DeleteAfter
	}
	if err := m.admit(ctx, e); err != nil {
		return nil, err
	}
	if err := m.start(ctx, e); err != nil {
		m.mu.Lock()
		delete(e.active, owner) // the removal must not wait for it
		m.mu.Unlock()
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
		var before Status
		if victim != nil { // it is not busy, so that the lock is held throughout
			before, _ = m.condemnLocked(victim)
		}
		m.mu.Unlock()
		if victim == nil {
			return &Error{
				Class: ErrExhausted, Code: CodeTooManyContainers,
				Message: "too many containers are running; delete one, or raise limits.max_containers", RetryAfter: leaveGrace,
			}
		}
		m.log.InfoContext(ctx, "container evicted", "container_id", victim.id)
		if err := m.removeCondemned(ctx, victim, before); err != nil {
			return err
		}
	}
}

// idleAutoLocked returns the automatic container that has been idle longest,
// or nil.
func (m *Manager) idleAutoLocked() *entry {
	var oldest *entry
	for _, e := range m.entries {
		c := &e.container
		if !c.Auto || c.Status != StatusRunning || len(e.active) > 0 || e.busy != nil {
			continue
		}
		if oldest == nil || c.LastActiveAt.Before(oldest.container.LastActiveAt) {
			oldest = e
		}
	}
	return oldest
}

// start takes an admitted container to StatusRunning.
func (m *Manager) start(ctx context.Context, e *entry) error {
	c := m.snapshot(e)
	if err := m.opts.Store.PutContainer(ctx, c); err != nil {
		return err
	}
	instance, err := m.opts.Backend.Create(ctx, BoxSpec{
		ID: c.ID, Image: c.Spec.Image, CgroupPath: m.opts.Boxes.CgroupPath(c.ID),
	})
	if err != nil {
		return err
	}
	box, err := m.opts.Boxes.Open(ctx, instance, c.Spec)
	if err != nil {
		return err
	}
	c.Status, c.Limits = StatusRunning, box.Limits()
	if !m.opts.Policy.AllowUnenforced && (!c.Limits.Memory.Enforced || !c.Limits.Pids.Enforced) {
		return errors.Join(unenforceable(), box.Close())
	}
	if err := m.opts.Store.PutContainer(ctx, c); err != nil {
		return errors.Join(err, box.Close())
	}
	m.attach(e, c, box) //nolint:contextcheck // the watch outlives the call
	return nil
}

// attach puts a started sandbox into its entry and watches over it.
func (m *Manager) attach(e *entry, c Container, box Box) {
	m.mu.Lock()
	c.LastActiveAt = e.container.LastActiveAt // it may have been looked at meanwhile
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
	after := place{}
	if q.After != "" {
		var known bool
		if after, known = m.placeLocked(ID(q.After)); !known {
			return nil, false, Invalid("after", "no container with id %q; pass the id of the last container of the page before", q.After)
		}
	}
	direction := -1
	if q.Ascending {
		direction = 1
	}
	for _, e := range m.entries {
		beyond := q.After == "" || direction*placeOf(e.container).compare(after) > 0
		if beyond && e.visible() && (q.Name == "" || e.container.Spec.Name == q.Name) {
			page = append(page, e.container)
		}
	}
	slices.SortFunc(page, func(a, b Container) int { return direction * placeOf(a).compare(placeOf(b)) })
	if len(page) > q.Limit {
		return page[:q.Limit], true, nil
	}
	return page, false, nil
}

// place is where a container stands in the list.
type place struct {
	createdAt time.Time
	id        ID
}

func placeOf(c Container) place { return place{c.CreatedAt, c.ID} }

func (p place) compare(q place) int {
	return cmp.Or(p.createdAt.Compare(q.createdAt), cmp.Compare(p.id, q.id))
}

// placeLocked finds the place of a container, also of one that was deleted not
// long ago, so that who deletes what the pages of a list show comes through it.
func (m *Manager) placeLocked(id ID) (place, bool) {
	if e := m.entries[id]; e != nil {
		return placeOf(e.container), true
	}
	i := slices.IndexFunc(m.gone, func(p place) bool { return p.id == id })
	if i < 0 {
		return place{}, false
	}
	return m.gone[i], true
}

// forgetEntryLocked takes a removed container out of the list.
func (m *Manager) forgetEntryLocked(e *entry) {
	delete(m.entries, e.id)
	m.gone = append(m.gone, placeOf(e.container))
	if excess := len(m.gone) - maxGone; excess > 0 {
		m.gone = slices.Delete(m.gone, 0, excess)
	}
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
