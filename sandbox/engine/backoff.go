package engine

import (
	"context"
	"time"
)

const (
	// restartMin and restartMax bound the pause before a program that died is
	// started again; it doubles with each death that follows soon.
	restartMin = 20 * time.Millisecond
	restartMax = 10 * time.Second
	// restartCalm is how long a program must have run for the pause to start
	// from restartMin again.
	restartCalm = 30 * time.Second
)

// backoff is the pause between starts of a program. The zero value is ready.
type backoff struct{ last time.Duration }

// next is the pause after a program that has run for that long.
func (b *backoff) next(lived time.Duration) time.Duration {
	if b.last == 0 || lived > restartCalm {
		b.last = restartMin
	} else {
		b.last = min(2*b.last, restartMax)
	}
	return b.last
}

// sleep returns after d, or when ctx ends; false means the latter.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
