package sandbox

import (
	"context"
	"errors"
	"time"
)

var (
	// errCanceled ends a call that a client, or a delete, has canceled.
	errCanceled = errors.New("canceled")
	// errAbandoned ends a call whose last waiting client has gone.
	errAbandoned = errors.New("canceled because its client has gone")
)

// ActiveCall is a call that is being carried out, as the clients that wait for
// it see it. Its methods are safe for concurrent use.
type ActiveCall struct {
	m   *Manager
	id  CallID
	key callKey
	// cancel ends the call's commands; its cause says why. The first counts.
	cancel context.CancelCauseFunc
	// started is closed when the commands run or never will, done when the
	// call has ended and its end is stored.
	started, done chan struct{}
	// err is why the call could not be carried out; set before done closes.
	err error

	// Guarded by Manager.mu.
	call Call
	// runs are in command order, nil where the sandbox did not start one; set
	// before started closes and not changed after.
	runs    []Run
	waiters int
	leave   *time.Timer // runs while waiters is 0
}

// Call returns the call as it is now.
func (a *ActiveCall) Call() Call {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	return a.call
}

// Wait waits until the call has ended and returns it. When ctx ends first the
// client counts as gone.
func (a *ActiveCall) Wait(ctx context.Context) (Call, error) {
	defer a.Leave()
	if err := await(ctx, a.done); err != nil {
		return Call{}, err
	}
	if a.err != nil {
		return Call{}, a.err
	}
	return a.Call(), nil
}

// failure returns why the call could not be carried out, if that is known
// already.
func (a *ActiveCall) failure() error {
	select {
	case <-a.done:
		return a.err
	default:
		return nil
	}
}

// Leave says that the client no longer waits; Wait does so by itself. A call
// that its last client has left is canceled soon after, unless it was asked to
// run in the background.
func (a *ActiveCall) Leave() {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	a.waiters--
	select {
	case <-a.done:
		return
	default:
	}
	if a.waiters > 0 || a.call.Spec.Background {
		return
	}
	a.leave = time.AfterFunc(leaveGrace, func() {
		a.m.mu.Lock()
		defer a.m.mu.Unlock()
		if a.waiters == 0 {
			a.cancel(errAbandoned)
		}
	})
}

// joinLocked counts one more waiting client in.
func (a *ActiveCall) joinLocked() {
	a.waiters++
	if a.leave != nil {
		a.leave.Stop()
	}
}

// await waits for a channel to be closed, or returns why ctx ended.
func await(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
