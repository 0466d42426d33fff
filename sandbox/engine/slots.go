package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/shelld/shelld/sandbox"
)

// takeSlot reserves ids for a sandbox.
func (e *Engine) takeSlot(ctx context.Context) (idSlot, error) {
	e.idsMu.Lock()
	defer e.idsMu.Unlock()
	if e.ids == nil {
		pool, err := e.readPool(ctx)
		if err != nil {
			return idSlot{}, err
		}
		e.ids = pool
	}
	uids, err := processUIDs("/proc")
	if err != nil {
		return idSlot{}, fmt.Errorf("look for user ids in use: %w", err)
	}
	return e.ids.take(uids)
}

// giveSlot returns the ids of a sandbox that is gone.
func (e *Engine) giveSlot(number int) {
	e.idsMu.Lock()
	defer e.idsMu.Unlock()
	if e.ids != nil {
		e.ids.give(number)
	}
}

// readPool makes the pool, in which the sandboxes from before have their slots.
func (e *Engine) readPool(ctx context.Context) (*idPool, error) {
	first, err := strconv.ParseUint(e.opts.instance()[:8], 16, 32)
	if err != nil {
		return nil, fmt.Errorf("number instance: %w", err)
	}
	pool, err := e.newPool(ctx, int(first))
	if err != nil {
		return nil, err
	}
	list, err := e.client.ContainerService().List(withNamespace(ctx), e.ours())
	if err != nil {
		return nil, wrap(ctx, "list containers", err)
	}
	for _, c := range list {
		if n, err := strconv.Atoi(c.Labels[labelSlot]); err == nil {
			pool.mark(n)
		}
	}
	return pool, nil
}

func (e *Engine) newPool(ctx context.Context, first int) (*idPool, error) {
	if e.mode == ModeRootless {
		state, err := e.holder.state(ctx)
		if err != nil {
			return nil, sandbox.Unavailable(sandbox.CodeEngineUnavailable, err, "the engine is away for a moment; try again")
		}
		return rootlessPool(state.UIDs, state.GIDs, first), nil
	}
	host, err := e.opts.Host.withDefaults()
	if err != nil {
		return nil, err
	}
	uids, err1 := readSubIDs(filepath.Join(host.Etc, "subuid"))
	gids, err2 := readSubIDs(filepath.Join(host.Etc, "subgid"))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return rootPool(append(uids, gids...), first), nil
}
