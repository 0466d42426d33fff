package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

var errLeft = errors.New("client left")

func TestJoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		const clients = 50
		ids := make([]sandbox.CallID, clients)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				call := h.finish(auto("same", "out x; sleep 1s"))
				wantEnd(t, call, sandbox.CallCompleted, sandbox.ReasonExit)
				ids[i] = call.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("two calls: %s and %s", id, ids[0])
			}
		}
		if n := h.world.Boxes.Count(sandboxtest.OpStart); n != 1 {
			t.Errorf("%d commands started, want 1", n)
		}
		if n, _ := h.Counts(); n != 1 {
			t.Errorf("%d containers made, want 1", n)
		}
		again := h.finish(auto("same", "out x; sleep 1s")) // after its end
		if again.ID != ids[0] || h.world.Boxes.Count(sandboxtest.OpStart) != 1 {
			t.Errorf("a retry after the end ran as %s", again.ID)
		}
	})
}

func TestJoinConflict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		a := h.run(in(c, "same", "hang"))
		for _, when := range []string{"while it runs", "after its end"} {
			_, err := h.Run(t.Context(), in(c, "same", "exit 0"))
			wantCode(t, err, sandbox.ErrConflict, sandbox.CodeCallIDConflict)
			if t.Failed() {
				t.Fatal(when)
			}
			h.wait(a)
		}
		// Elsewhere the same id is another call.
		if other := h.finish(in(h.create(), "same", "exit 0")); other.ID == a.Call().ID {
			t.Error("calls in two containers were taken for one")
		}
		if other := h.finish(auto("same", "exit 0")); other.ID == a.Call().ID {
			t.Error("a call in a container and an automatic one were taken for one")
		}
	})
}

// Joining a call at the very moment that it ends gives its result.
func TestJoinAtTheEnd(t *testing.T) {
	t.Parallel()
	h := manage(t, sandboxtest.New(), policy())
	c := h.create()
	for i := range 300 {
		s := in(c, fmt.Sprint(i), "out x")
		var wg sync.WaitGroup
		ids := make([]sandbox.CallID, 4)
		for j := range ids {
			wg.Go(func() {
				call := h.finish(s)
				wantEnd(t, call, sandbox.CallCompleted, sandbox.ReasonExit)
				ids[j] = call.ID
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] || id == "" {
				t.Fatalf("round %d: calls %v, want one", i, ids)
			}
		}
	}
	if n := h.world.Boxes.Count(sandboxtest.OpStart); n != 300 {
		t.Errorf("%d commands started, want 300", n)
	}
}

// A call that cannot start says so to everyone who waits for it, and never
// looks as if it had started.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	h := manage(t, sandboxtest.New(), policy())
	for i := range 300 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				a, err := h.Run(t.Context(), in(sandbox.Container{ID: "cntr_none"}, fmt.Sprint(i), "out x"))
				if err == nil {
					t.Errorf("round %d: started as %+v", i, a.Call())
					return
				}
				wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
			})
		}
		wg.Wait()
	}
}

// waitUntilLeft joins a call and leaves it after d.
func waitUntilLeft(t *testing.T, a *sandbox.ActiveCall, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, errLeft)
	defer cancel()
	if _, err := a.Wait(ctx); !errors.Is(err, errLeft) {
		t.Errorf("wait: %v, want %v", err, errLeft)
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		began := time.Now()
		a := h.run(auto("a", "hang"))
		b := h.run(auto("a", "hang"))
		waitUntilLeft(t, a, time.Second)
		pass(5 * time.Second) // the other one still waits
		if got := a.Call().Status; got != sandbox.CallInProgress {
			t.Fatalf("the call is %s with a client waiting", got)
		}
		waitUntilLeft(t, b, time.Second)
		pass(10 * time.Second)
		call := h.stored(a.Call().ID)
		wantEnd(t, call, sandbox.CallCanceled, sandbox.ReasonCanceled)
		if got := call.CompletedAt.Sub(began); got != 8*time.Second {
			t.Errorf("it was canceled after %s, want 1s after its last client left at 7s", got)
		}
	})
}

func TestRejoin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		a := h.run(auto("a", "out x; sleep 10s"))
		for range 5 { // each time within the grace, together longer than it
			waitUntilLeft(t, a, 100*time.Millisecond)
			pass(900 * time.Millisecond)
			a = h.run(auto("a", "out x; sleep 10s"))
		}
		wantEnd(t, h.wait(a), sandbox.CallCompleted, sandbox.ReasonExit)
		a.Leave() // of a call that has ended: nothing
		if n := h.world.Boxes.Count(sandboxtest.OpStart); n != 1 {
			t.Errorf("%d commands started, want 1", n)
		}
	})
}

func TestBackgroundCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		s := auto("a", "sleep 20s")
		s.Background = true
		a := h.run(s)
		a.Leave()
		pass(10 * time.Second)
		id := a.Call().ID
		if got, err := h.Call(t.Context(), id); err != nil || got.Status != sandbox.CallInProgress {
			t.Errorf("after 10s it is %s, %v", got.Status, err)
		}
		pass(11 * time.Second)
		wantEnd(t, h.stored(id), sandbox.CallCompleted, sandbox.ReasonExit)

		s = auto("b", "hang")
		s.Background = true
		h.run(s).Leave()
		again := h.run(s) // a retry that waits, and leaves
		waitUntilLeft(t, again, time.Second)
		pass(5 * time.Second)
		if _, runs := h.Counts(); runs != 1 {
			t.Error("a background call was canceled with its client")
		}
		if _, err := h.Cancel(t.Context(), again.Call().ID); err != nil {
			t.Errorf("cancel: %v", err)
		}
		synctest.Wait()
	})
}
