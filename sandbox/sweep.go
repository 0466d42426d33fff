package sandbox

import (
	"context"
	"errors"
	"time"
)

// sweepLoop removes old records until the Manager is closed.
func (m *Manager) sweepLoop() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-m.stopped:
			return
		case <-ticker.C:
		}
		ctx, cancel := undo(context.Background())
		if err := m.Sweep(ctx); err != nil {
			m.log.WarnContext(ctx, "old records not removed", "err", err)
		}
		cancel()
	}
}

// Sweep removes the failed containers and the calls, with their output, that
// have outlived [Policy.Keep], and records when containers were last active.
func (m *Manager) Sweep(ctx context.Context) error {
	before := m.now().Add(-m.opts.Policy.Keep)
	var old []*entry
	var live []Container
	m.mu.Lock()
	for _, e := range m.entries {
		switch c := e.container; c.Status {
		case StatusFailed:
			if c.EndedAt.Before(before) {
				old = append(old, e)
			}
		case StatusRunning:
			live = append(live, c)
		case StatusCreating, StatusDeleting:
		}
	}
	m.mu.Unlock()

	var errs []error
	for _, c := range live {
		errs = append(errs, m.opts.Store.TouchContainer(ctx, c.ID, c.LastActiveAt))
	}
	for _, e := range old {
		if err := m.remove(ctx, e); !errors.Is(err, ErrNotFound) {
			errs = append(errs, err)
		}
	}
	calls, err := m.opts.Store.OldCalls(ctx, before)
	errs = append(errs, err)
	for _, id := range calls {
		errs = append(errs, m.deleteCall(ctx, id))
	}
	return errors.Join(errs...)
}
