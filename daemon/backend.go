package daemon

import (
	"context"
	"errors"
	"net"
	"sync/atomic"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/engine"
)

// backend is the engine once it is open; before that every call says that it
// is not ready. It lets the daemon serve, and say what is missing, on a
// machine that cannot run an engine yet.
type backend struct {
	engine atomic.Pointer[engine.Engine]
	// away gets a value when a call finds the engine away.
	away chan struct{} // capacity 1: one that waits stands for all
}

func newBackend() *backend { return &backend{away: make(chan struct{}, 1)} }

var _ sandbox.Backend = (*backend)(nil)

func (b *backend) open() (*engine.Engine, error) {
	if e := b.engine.Load(); e != nil {
		return e, nil
	}
	return nil, sandbox.Unavailable(sandbox.CodeNotReady, nil, "the engine is not running yet")
}

// noted passes err on and lets the keeper of the engine know when it says that
// the engine is away.
func (b *backend) noted(err error) error {
	if errors.Is(err, sandbox.ErrUnavailable) {
		select {
		case b.away <- struct{}{}:
		default:
		}
	}
	return err
}

// Create implements [sandbox.Backend].
func (b *backend) Create(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Instance, error) {
	e, err := b.open()
	if err != nil {
		return sandbox.Instance{}, err
	}
	instance, err := e.Create(ctx, spec)
	return instance, b.noted(err)
}

// List implements [sandbox.Backend].
func (b *backend) List(ctx context.Context) ([]sandbox.Instance, error) {
	e, err := b.open()
	if err != nil {
		return nil, err
	}
	list, err := e.List(ctx)
	return list, b.noted(err)
}

// Delete implements [sandbox.Backend].
func (b *backend) Delete(ctx context.Context, id sandbox.ID) error {
	e, err := b.open()
	if err != nil {
		return err
	}
	return b.noted(e.Delete(ctx, id))
}

// OpenGuest implements [sandbox.Backend].
func (b *backend) OpenGuest(ctx context.Context, id sandbox.ID) (*net.UnixConn, error) {
	e, err := b.open()
	if err != nil {
		return nil, err
	}
	conn, err := e.OpenGuest(ctx, id)
	return conn, b.noted(err)
}
