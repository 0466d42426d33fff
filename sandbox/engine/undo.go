package engine

import (
	"context"
	"errors"
)

// undoContext is a context that does not end with ctx, for taking back what a
// failed call has made.
func undoContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(withNamespace(context.WithoutCancel(ctx)), undoBudget, errors.New("cleaning up took too long"))
}
