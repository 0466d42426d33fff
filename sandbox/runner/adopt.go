package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/guest"
	"github.com/shelld/shelld/sandbox/output"
)

// adopt deals with the runs that an earlier daemon has left in the sandbox:
// commands that had not ended are killed, since nobody knows any more what
// became of their results; the output of background processes goes on into
// its spool.
func (b *box) adopt(ctx context.Context) error {
	states := b.client.Runs()
	for _, state := range states {
		if _, _, ok := b.opts.Spools.ids.parse(b.id, state.ID); !ok {
			return broken(fmt.Errorf("its process 1 names a run %q that was none of its own: %w", state.ID, guest.ErrViolation))
		}
	}
	if err := b.endOrphans(ctx, states); err != nil {
		return fmt.Errorf("end commands of an earlier daemon in %s: %w", b.id, err)
	}
	for _, state := range states {
		if err := b.resume(ctx, state); err != nil {
			return fmt.Errorf("resume run %s in %s: %w", state.ID, b.id, err)
		}
	}
	return nil
}

// endOrphans kills the commands that had not ended, with all they started.
func (b *box) endOrphans(ctx context.Context, states []guest.RunState) error {
	var open []int
	for _, state := range states {
		if state.Exit != nil {
			continue
		}
		open = append(open, state.PID)
		if b.group == nil {
			if err := b.killAnchored(ctx, state.ID); err != nil {
				return guestError(err)
			}
		}
	}
	if b.group == nil {
		return nil
	}
	groups, err := b.group.Adopt()
	if err != nil {
		return err
	}
	var errs []error
	for _, group := range groups {
		pids, err := group.PIDs()
		errs = append(errs, err)
		if slices.ContainsFunc(innerPIDs(pids), func(pid int) bool { return slices.Contains(open, pid) }) {
			errs = append(errs, group.Kill(ctx))
		}
		errs = append(errs, group.Release()) // in the background when processes are left
	}
	return errors.Join(errs...)
}

// resume goes on storing the streams of a run until their writers are gone.
func (b *box) resume(ctx context.Context, state guest.RunState) error {
	call, index, _ := b.opts.Spools.ids.parse(b.id, state.ID)
	proc, err := b.client.Attach(ctx, state.ID)
	if err != nil {
		return guestError(err)
	}
	stdout, err := b.opts.Spools.resume(call, index, sandbox.Stdout)
	if err != nil {
		return errors.Join(err, proc.Close())
	}
	stderr, err := b.opts.Spools.resume(call, index, sandbox.Stderr)
	if err != nil {
		return errors.Join(err, stdout.Close(), proc.Close())
	}
	b.spawn(func(ctx context.Context) {
		done := make(chan error)
		go func() { done <- consumeRest(ctx, stderr, proc.Stderr) }()
		err := errors.Join(consumeRest(ctx, stdout, proc.Stdout), <-done)
		if err == nil {
			err = b.client.Forget(state.ID)
		}
		if err != nil && ctx.Err() == nil {
			b.opts.Log.WarnContext(ctx, "background output not kept whole", "container_id", b.id, "run", state.ID, "err", err)
		}
	})
	return nil
}

func consumeRest(ctx context.Context, spool *output.Spool, pipe *os.File) error {
	return errors.Join(spool.Consume(ctx, pipe), spool.Err(), spool.Close(), pipe.Close())
}
