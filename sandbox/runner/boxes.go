package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path"
	"syscall"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/guest"
	"github.com/shelld/shelld/sandbox/limit"
)

// Options are what [Boxes] is made of. Every field is required.
type Options struct {
	// Tree holds the cgroups of this instance of shelld.
	Tree *limit.Tree
	// OpenGuest connects to the guest of a sandbox.
	OpenGuest func(ctx context.Context, id sandbox.ID) (*net.UnixConn, error)
	Spools    *Spools
	// Pids caps the processes of each sandbox.
	Pids int64
	Log  *slog.Logger
}

// Boxes implements [sandbox.Boxes].
type Boxes struct{ opts Options }

// New returns Boxes.
func New(opts Options) *Boxes { return &Boxes{opts: opts} }

// CgroupPath implements [sandbox.Boxes].
func (b *Boxes) CgroupPath(id sandbox.ID) string { return b.opts.Tree.SandboxPath(id.Key()) }

// Open implements [sandbox.Boxes].
func (b *Boxes) Open(ctx context.Context, instance sandbox.Instance, spec sandbox.Spec) (sandbox.Box, error) {
	group, limits, err := b.arrange(ctx, instance, spec)
	if err != nil {
		return nil, err
	}
	conn, err := b.opts.OpenGuest(ctx, instance.ID)
	if err != nil {
		return nil, openError(err)
	}
	client, err := guest.NewClient(conn)
	if err != nil {
		return nil, guestError(err)
	}
	if err := b.setUp(ctx, client, group); err != nil {
		return nil, errors.Join(guestError(err), client.Close())
	}
	box := newBox(b.opts, instance.ID, client, group, limits, spec.Env) //nolint:contextcheck // the box outlives the call
	if err := box.adopt(ctx); err != nil {
		return nil, errors.Join(err, box.Close())
	}
	return box, nil
}

// arrange puts the sandbox into its cgroups and sets its limits.
func (b *Boxes) arrange(ctx context.Context, instance sandbox.Instance, spec sandbox.Spec) (*limit.Sandbox, sandbox.Limits, error) {
	limits := sandbox.Limits{Memory: sandbox.Limit{Value: spec.MemoryBytes}, Pids: sandbox.Limit{Value: b.opts.Pids}}
	if b.opts.Tree.Mode() == limit.None {
		return nil, limits, nil
	}
	group, err := b.opts.Tree.Sandbox(ctx, instance.ID.Key(), instance.PID)
	if err != nil {
		return nil, limits, fmt.Errorf("arrange cgroups of sandbox %s: %w", instance.ID, err)
	}
	report, err := group.SetLimits(limit.Limits{MemoryBytes: spec.MemoryBytes, Pids: b.opts.Pids})
	if err != nil {
		return nil, limits, fmt.Errorf("limit sandbox %s: %w", instance.ID, err)
	}
	limits.Memory, limits.Pids = sandbox.Limit(report.MemoryBytes), sandbox.Limit(report.Pids)
	return group, limits, nil
}

// setUp tells the guest how it is to put commands into their cgroups.
func (b *Boxes) setUp(ctx context.Context, client *guest.Client, group *limit.Sandbox) error {
	setup := guest.Setup{Mode: guest.Anchored}
	switch b.opts.Tree.Mode() {
	case limit.V1:
		setup.Mode = guest.CgroupV1
	case limit.V2:
		setup.Mode = guest.CgroupV2
	case limit.None:
	}
	if group != nil {
		home, err := group.OpenHome()
		if err != nil {
			return err
		}
		defer closeAll(home)
		setup.Home = home
	}
	return client.Setup(ctx, setup)
}

// Remove implements [sandbox.Boxes].
func (b *Boxes) Remove(ctx context.Context, id sandbox.ID) error {
	if b.opts.Tree.Mode() == limit.None {
		return nil
	}
	return b.opts.Tree.Remove(ctx, id.Key())
}

// guestError says what the loss of a guest means to a caller.
func guestError(err error) error {
	switch {
	case errors.Is(err, guest.ErrDisconnected), errors.Is(err, guest.ErrViolation):
		return broken(err)
	case errors.Is(err, guest.ErrClosed), errors.Is(err, net.ErrClosed):
		return sandbox.Unavailable(sandbox.CodeEngineUnavailable, err, "shelld has let go of the sandbox")
	}
	return err
}

// openError says what it means that the guest's socket cannot be connected to.
func openError(err error) error {
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return err
	}
	switch errno {
	case syscall.ENOENT, syscall.ECONNREFUSED, syscall.ECONNRESET: // nobody listens, and nobody will again
	case syscall.EAGAIN: // a guest that accepts does so before its queue is full
	default:
		return err
	}
	return broken(fmt.Errorf("connect to its process 1: %w", errno))
}

// broken says that the sandbox must go.
func broken(cause error) error {
	return &sandbox.Error{
		Class: sandbox.ErrBroken, Code: sandbox.CodeContainerFailed, Cause: cause,
		Message: "the sandbox's process 1 is gone, does not answer or cannot be trusted",
	}
}

// spoolPath is where a stream of a run is kept below the spool folder.
func spoolPath(call sandbox.CallID, index int, stream sandbox.Stream) string {
	return path.Join(string(call), fmt.Sprintf("%d.%s", index, stream))
}
