package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/shelld/shelld/sandbox"
)

// wrap adds the operation to an error of containerd and, when it means that
// containerd is away, makes it an [sandbox.ErrUnavailable].
func wrap(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sandbox.ErrUnavailable):
		return fmt.Errorf("%s: %w", op, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", op, errors.Join(context.Cause(ctx), err))
	}
	if away(err) {
		return sandbox.Unavailable(sandbox.CodeEngineUnavailable, fmt.Errorf("%s: %w", op, err),
			"the engine is away for a moment; try again")
	}
	return fmt.Errorf("%s: %w", op, err)
}

// absent reports whether err says that the object does not exist.
func absent(err error) bool {
	return errdefs.IsNotFound(err) || errdefs.IsNotFound(errgrpc.ToNative(err))
}

// away reports whether err says that containerd does not answer.
func away(err error) bool {
	return errdefs.IsUnavailable(err) || errdefs.IsUnavailable(errgrpc.ToNative(err))
}
