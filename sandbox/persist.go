package sandbox

import (
	"context"
	"errors"
	"time"
)

const (
	// firstRetry and lastRetry are the pauses between attempts at what has to
	// be done but cannot be done now, such as while the engine is away: doubled
	// from the one to the other.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// persist tries again in the background, at growing pauses, until try succeeds
// or the Manager takes no more work; the next daemon goes on with it then. It
// outlives ctx.
func (m *Manager) persist(ctx context.Context, what string, try func(ctx context.Context) error) {
	ctx = context.WithoutCancel(ctx)
	m.wg.Go(func() {
		for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
			select {
			case <-time.After(pause):
			case <-m.stopped:
				return
			}
			ctx, end, err := m.operate(ctx)
			if err != nil {
				return
			}
			ctx, cancel := context.WithTimeoutCause(ctx, undoBudget, errors.New("it took too long"))
			err = try(ctx)
			cancel()
			end()
			if err == nil {
				return
			}
			m.log.DebugContext(ctx, "tried again in vain", "what", what, "err", err)
		}
	})
}
