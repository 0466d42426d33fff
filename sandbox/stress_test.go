package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

// TestEverythingAtOnce lets creates, calls, joins, leaves, cancels, deletes,
// evictions and losses meet, for the race detector and for what they leave.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	p := policy()
	p.MaxContainers, p.MaxRuns, p.AllowUnenforced = 5, 12, true
	h := manage(t, sandboxtest.New(), p)
	const clients, rounds = 16, 150
	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 1))
			for round := range rounds {
				chaos(h, random, fmt.Sprintf("%d-%d", client%3, round%20))
			}
		})
	}
	wg.Wait()

	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), 20*time.Second, errors.New("it hangs"))
	defer cancel()
	page, _, err := h.Calls(ctx, sandbox.Query{Limit: 10_000, Status: sandbox.CallInProgress})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range page {
		if _, err := h.Cancel(ctx, call.ID); err != nil {
			t.Errorf("cancel: %v", err)
		}
	}
	if _, runs := h.Counts(); runs != 0 {
		t.Errorf("%d runs counted at the end", runs)
	}
	if err := h.DeleteAll(ctx); err != nil {
		t.Errorf("delete all: %v", err)
	}
	h.close()
	h.emptyNow()
	open, err := h.world.Store.OpenCalls(ctx)
	if err != nil || len(open) > 0 {
		t.Errorf("calls without an end: %v, %v", open, err)
	}
}

// chaos does one thing, whatever comes of it, but in bounded time.
func chaos(h *harness, random *rand.Rand, callID string) {
	ctx, cancel := context.WithTimeoutCause(h.t.Context(), 20*time.Second, errors.New("it hangs"))
	defer cancel()
	var c sandbox.Container
	if page, _, err := h.Containers(ctx, sandbox.Query{Limit: 10}); err == nil && len(page) > 0 {
		c = page[random.IntN(len(page))]
	}
	var err error
	switch random.IntN(9) {
	case 0:
		_, err = h.Create(ctx, spec("c"))
	case 1:
		err = h.Delete(ctx, c.ID)
	case 2:
		if box := h.world.Boxes.Box(c.ID); box != nil && random.IntN(3) == 0 {
			box.Lose(sandboxtest.ErrBroken)
		}
	case 3:
		short, stop := context.WithTimeoutCause(ctx, time.Duration(random.IntN(500))*time.Microsecond, errLeft)
		defer stop()
		_, err = h.Create(short, spec("c"))
	case 4:
		var a *sandbox.ActiveCall
		if a, err = h.Run(ctx, in(c, callID, "out x", "hang")); err == nil {
			_, err = h.Cancel(ctx, a.Call().ID)
			a.Leave()
		}
	case 5:
		s := auto(callID, "out x", "sleep 1ms")
		s.DeleteAfter = true
		err = call(ctx, h, s)
	case 6:
		err = call(ctx, h, auto("auto-"+callID, "out x"))
	default:
		err = call(ctx, h, in(c, "short-"+callID, "out x; leave"))
	}
	if ctx.Err() != nil {
		h.t.Errorf("something hangs: %v", err)
	}
}

func call(ctx context.Context, h *harness, s sandbox.CallSpec) error {
	a, err := h.Run(ctx, s)
	if err == nil {
		_, err = a.Wait(ctx)
	}
	return err
}
