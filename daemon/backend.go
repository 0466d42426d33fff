package daemon

import (
	"context"
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
}

var _ sandbox.Backend = (*backend)(nil)

func (b *backend) open() (*engine.Engine, error) {
	if e := b.engine.Load(); e != nil {
		return e, nil
	}
	return nil, sandbox.Unavailable(sandbox.CodeNotReady, nil, "the engine is not running yet")
}

func (b *backend) Create(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Instance, error) {
	e, err := b.open()
	if err != nil {
		return sandbox.Instance{}, err
	}
	return e.Create(ctx, spec)
}

func (b *backend) List(ctx context.Context) ([]sandbox.Instance, error) {
	e, err := b.open()
	if err != nil {
		return nil, err
	}
	return e.List(ctx)
}

func (b *backend) Delete(ctx context.Context, id sandbox.ID) error {
	e, err := b.open()
	if err != nil {
		return err
	}
	return e.Delete(ctx, id)
}

func (b *backend) OpenGuest(ctx context.Context, id sandbox.ID) (*net.UnixConn, error) {
	e, err := b.open()
	if err != nil {
		return nil, err
	}
	return e.OpenGuest(ctx, id)
}
