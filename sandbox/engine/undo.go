package engine

import (
	"context"
	"errors"
)

// undoStack is what takes back the steps of a call that fails later.
type undoStack struct {
	steps []func(context.Context) error
}

func (u *undoStack) add(step func(context.Context) error) { u.steps = append(u.steps, step) }

// run takes all steps back, the last one first, with a budget of its own. What
// is gone already is no error.
func (u *undoStack) run(ctx context.Context) error {
	ctx, cancel := undoContext(ctx)
	defer cancel()
	var errs []error
	for i := len(u.steps) - 1; i >= 0; i-- {
		if err := u.steps[i](ctx); err != nil && !absent(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// undoContext is a context that does not end with ctx.
func undoContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(withNamespace(context.WithoutCancel(ctx)), undoBudget, errors.New("cleaning up took too long"))
}
