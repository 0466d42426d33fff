package sandbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

func TestContainerLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		if c.Status != sandbox.StatusRunning || !c.Limits.Memory.Enforced || c.Limits.Memory.Value != 1<<30 || c.Auto {
			t.Errorf("created %+v", c)
		}
		pass(time.Minute) // the bubble's clock
		got, err := h.Container(t.Context(), c.ID)
		if err != nil || !got.LastActiveAt.After(c.LastActiveAt) {
			t.Errorf("retrieved %+v, %v; want it to count as activity", got, err)
		}
		if err := h.Delete(t.Context(), c.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		wantCode(t, h.Delete(t.Context(), c.ID), sandbox.ErrNotFound, sandbox.CodeNotFound)
		_, err = h.Container(t.Context(), c.ID)
		wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
		_, err = h.Run(t.Context(), in(c, "a", "exit 0"))
		wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
		h.empty()
	})
}

// A create that fails at any step, or whose client leaves there, leaves
// nothing.
func TestCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	ops := map[string]func(*sandboxtest.World, sandboxtest.Hook){
		"record":  func(w *sandboxtest.World, h sandboxtest.Hook) { w.Store.On(sandboxtest.OpPutContainer, once(h)) },
		"backend": func(w *sandboxtest.World, h sandboxtest.Hook) { w.Backend.On(sandboxtest.OpCreate, h) },
		"box":     func(w *sandboxtest.World, h sandboxtest.Hook) { w.Boxes.On(sandboxtest.OpOpen, h) },
		"running record": func(w *sandboxtest.World, h sandboxtest.Hook) {
			first := true
			w.Store.On(sandboxtest.OpPutContainer, func(ctx context.Context, id string) error {
				if first {
					first = false
					return nil
				}
				w.Store.On(sandboxtest.OpPutContainer, nil)
				return h(ctx, id)
			})
		},
	}
	for name, set := range ops {
		t.Run(name+" fails", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := manage(t, sandboxtest.New(), policy())
				set(h.world, sandboxtest.Fail(sandboxtest.ErrBroken))
				if _, err := h.Create(t.Context(), spec("c")); !errors.Is(err, sandboxtest.ErrBroken) {
					t.Errorf("error %v, want %v", err, sandboxtest.ErrBroken)
				}
				h.empty()
				if n, _ := h.Counts(); n != 0 {
					t.Errorf("%d containers counted", n)
				}
			})
		})
		t.Run(name+" hangs and its client leaves", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := manage(t, sandboxtest.New(), policy())
				set(h.world, sandboxtest.Hang())
				left := errors.New("client left")
				ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, left)
				defer cancel()
				if _, err := h.Create(ctx, spec("c")); !errors.Is(err, left) {
					t.Errorf("error %v, want %v", err, left)
				}
				h.empty()
			})
		})
	}
}

// once returns a hook that does what h does the first time only.
func once(h sandboxtest.Hook) sandboxtest.Hook {
	done := false
	return func(ctx context.Context, id string) error {
		if done {
			return nil
		}
		done = true
		return h(ctx, id)
	}
}

// A client that leaves when the sandbox runs already does not leave it behind.
func TestCreateFinishedForNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		ctx, cancel := context.WithCancelCause(t.Context())
		h.world.Boxes.On(sandboxtest.OpOpen, nil)
		puts := 0
		h.world.Store.On(sandboxtest.OpPutContainer, func(context.Context, string) error {
			if puts++; puts == 2 {
				h.world.Store.On(sandboxtest.OpPutContainer, nil)
				cancel(errors.New("client left"))
			}
			return nil
		})
		if c, err := h.Create(ctx, spec("c")); err == nil {
			t.Errorf("created %s for nobody", c.ID)
		}
		h.empty()
	})
}

func TestUnenforcedLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		world.Boxes.Unenforced()
		h := manage(t, world, policy())
		_, err := h.Create(t.Context(), spec("c"))
		wantCode(t, err, sandbox.ErrUnavailable, sandbox.CodeLimitsUnenforceable)
		h.empty()
		h.close()

		p := policy()
		p.AllowUnenforced = true
		h = manage(t, world, p)
		if c := h.create(); c.Limits.Memory.Enforced || c.Limits.Memory.Value != 1<<30 {
			t.Errorf("limits %+v, want them reported as not enforced", c.Limits)
		}
	})
}

func TestContainerList(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		var ids []sandbox.ID
		for i := range 5 {
			c, err := h.Create(t.Context(), spec([]string{"even", "odd"}[i%2]))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, c.ID)
			pass(time.Second)
		}
		list := func(q sandbox.Query) (got []sandbox.ID, more bool) {
			page, more, err := h.Containers(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range page {
				got = append(got, c.ID)
			}
			return got, more
		}
		if got, more := list(sandbox.Query{Limit: 5, Ascending: true}); !slices.Equal(got, ids) || more {
			t.Errorf("ascending %v (more: %t), want %v", got, more, ids)
		}
		if got, more := list(sandbox.Query{Limit: 2, Ascending: true, After: string(ids[1])}); !slices.Equal(got, ids[2:4]) || !more {
			t.Errorf("second page %v (more: %t), want %v", got, more, ids[2:4])
		}
		if got, more := list(sandbox.Query{Limit: 2, Name: "odd"}); !slices.Equal(got, []sandbox.ID{ids[3], ids[1]}) || more {
			t.Errorf("by name, descending %v (more: %t), want %v", got, more, []sandbox.ID{ids[3], ids[1]})
		}
		_, _, err := h.Containers(t.Context(), sandbox.Query{Limit: 1, After: "cntr_none"})
		wantCode(t, err, sandbox.ErrInvalid, sandbox.CodeInvalidValue)
	})
}

// Who deletes what each page shows comes through the whole list.
func TestListAndDelete(t *testing.T) {
	t.Parallel()
	for _, ascending := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := manage(t, sandboxtest.New(), policy())
			for range 7 {
				h.create() // all at the same moment of the bubble's clock
			}
			q, deleted := sandbox.Query{Limit: 2, Ascending: ascending}, 0
			for more := true; more; {
				var page []sandbox.Container
				var err error
				if page, more, err = h.Containers(t.Context(), q); err != nil {
					t.Fatalf("after %d deletes: %v", deleted, err)
				}
				for _, c := range page {
					if err := h.Delete(t.Context(), c.ID); err != nil {
						t.Fatal(err)
					}
					deleted++
					q.After = string(c.ID)
				}
			}
			if deleted != 7 {
				t.Errorf("%d of 7 containers deleted", deleted)
			}
			h.empty()
		})
	}
}

// A call cannot come to a container that is about to be evicted.
func TestEvictionKeepsCallsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy()
		p.MaxContainers = 1
		world := sandboxtest.New()
		opts := world.Options(p)
		var h *harness
		var idle sandbox.ID
		var late error
		opts.Log = slog.New(onMessage{slog.DiscardHandler, func(message string) {
			if message == "container evicted" { // it is chosen, and nothing has happened yet
				_, late = h.Run(t.Context(), in(sandbox.Container{ID: idle}, "late", "exit 0"))
			}
		}})
		h = &harness{Manager: sandbox.New(opts), world: world, t: t}
		t.Cleanup(h.close)
		if err := h.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		idle = h.finish(auto("a", "exit 0")).ContainerID
		h.create()
		wantCode(t, late, sandbox.ErrNotFound, sandbox.CodeNotFound)
	})
}

// onMessage calls a function with the message of each record.
type onMessage struct {
	slog.Handler
	f func(message string)
}

func (onMessage) Enabled(context.Context, slog.Level) bool { return true }

func (h onMessage) Handle(_ context.Context, r slog.Record) error {
	h.f(r.Message)
	return nil
}

func TestBoxLost(t *testing.T) {
	for name, lose := range map[string]func(*sandboxtest.Box, error){
		"with its commands": (*sandboxtest.Box).Lose, "before its commands": (*sandboxtest.Box).LoseSilently,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := manage(t, sandboxtest.New(), policy())
				c := h.create()
				a := h.run(in(c, "a", "out partial; hang", "exit 0"))
				synctest.Wait()
				lose(h.world.Boxes.Box(c.ID), sandboxtest.ErrBroken)
				wantEnd(t, h.wait(a), sandbox.CallFailed, sandbox.ReasonLost, sandbox.ReasonExit)
				synctest.Wait()
				got, err := h.Container(t.Context(), c.ID)
				if err != nil || got.Status != sandbox.StatusFailed || got.StatusReason == "" || got.EndedAt.IsZero() {
					t.Errorf("container %+v, %v; want it failed with a reason", got, err)
				}
				_, err = h.Run(t.Context(), in(c, "b", "exit 0"))
				wantCode(t, err, sandbox.ErrInvalid, sandbox.CodeContainerFailed)
				if left := h.world.Backend.Leftovers(); len(left) > 0 {
					t.Errorf("a failed container keeps its sandbox: %v", left)
				}
				if err := h.Delete(t.Context(), c.ID); err != nil {
					t.Errorf("delete: %v", err)
				}
				h.empty()
			})
		})
	}
}

// A sandbox that is lost while it cannot even be removed still gives its
// commands an end.
func TestBoxLostWithBackendAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		a := h.run(in(c, "a", "hang"))
		h.world.Backend.On(sandboxtest.OpDelete, sandboxtest.Fail(sandboxtest.ErrBroken))
		h.world.Boxes.Box(c.ID).LoseSilently(sandboxtest.ErrBroken)
		wantEnd(t, h.wait(a), sandbox.CallFailed, sandbox.ReasonLost)
	})
}

func TestDeleteEndsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		a := h.run(in(c, "a", "out partial; hang", "exit 3"))
		synctest.Wait()
		if err := h.Delete(t.Context(), c.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		call := h.wait(a)
		wantEnd(t, call, sandbox.CallCanceled, sandbox.ReasonCanceled, sandbox.ReasonExit)
		if call.Results[0].Stdout != "partial" || call.Results[1].ExitCode != 3 {
			t.Errorf("results %+v, want what came until then", call.Results)
		}
		wantEnd(t, h.stored(call.ID), sandbox.CallCanceled, sandbox.ReasonCanceled, sandbox.ReasonExit)
		h.empty()
	})
}

// A delete that fails leaves the container as it was, and one that fails when
// the sandbox is gone leaves a failed one; both can be repeated.
func TestDeleteFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		h.world.Backend.On(sandboxtest.OpDelete, sandboxtest.Fail(sandboxtest.ErrBroken))
		if err := h.Delete(t.Context(), c.ID); !errors.Is(err, sandboxtest.ErrBroken) {
			t.Errorf("delete: %v, want %v", err, sandboxtest.ErrBroken)
		}
		wantEnd(t, h.finish(in(c, "a", "exit 0")), sandbox.CallCompleted, sandbox.ReasonExit)

		// It fails while a delete is under way that fails as well.
		hold, reached, release := sandboxtest.Hold()
		h.world.Backend.On(sandboxtest.OpDelete, func(ctx context.Context, id string) error {
			return errors.Join(hold(ctx, id), sandboxtest.ErrBroken)
		})
		done := make(chan error)
		go func() { done <- h.Delete(t.Context(), c.ID) }()
		<-reached
		h.world.Boxes.Box(c.ID).Lose(sandboxtest.ErrBroken)
		synctest.Wait()
		release()
		if err := <-done; err == nil {
			t.Error("the delete succeeded")
		}
		synctest.Wait()
		if got, err := h.Container(t.Context(), c.ID); err != nil || got.Status != sandbox.StatusFailed {
			t.Errorf("container is %s, %v; want failed", got.Status, err)
		}
		h.world.Backend.On(sandboxtest.OpDelete, nil)

		h.world.Store.On(sandboxtest.OpDeleteContainer, sandboxtest.Fail(sandboxtest.ErrBroken))
		other := h.create()
		if err := h.Delete(t.Context(), other.ID); !errors.Is(err, sandboxtest.ErrBroken) {
			t.Errorf("delete: %v, want %v", err, sandboxtest.ErrBroken)
		}
		if got, err := h.Container(t.Context(), other.ID); err != nil || got.Status != sandbox.StatusFailed {
			t.Errorf("container is %s, %v; want failed", got.Status, err)
		}
		h.world.Store.On(sandboxtest.OpDeleteContainer, nil)
		for _, id := range []sandbox.ID{c.ID, other.ID} {
			if err := h.Delete(t.Context(), id); err != nil {
				t.Errorf("delete again: %v", err)
			}
		}
		h.empty()
	})
}

// A full disk does not keep containers from being deleted.
func TestDeleteWithFullDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		full := &sandbox.Error{Class: sandbox.ErrStorageFull, Code: sandbox.CodeStorageFull, Message: "full"}
		h.world.Store.On(sandboxtest.OpPutContainer, sandboxtest.Fail(full))
		if err := h.Delete(t.Context(), c.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		_, err := h.Create(t.Context(), spec("c"))
		wantCode(t, err, sandbox.ErrStorageFull, sandbox.CodeStorageFull)
		h.empty()
	})
}

// A client that leaves does not stop a delete.
func TestDeleteOutlivesItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		ctx, cancel := context.WithCancelCause(t.Context())
		h.world.Backend.On(sandboxtest.OpDelete, func(context.Context, string) error { cancel(sandboxtest.ErrBroken); return nil })
		if err := h.Delete(ctx, c.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		h.empty()
	})
}

func TestMaxContainers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy()
		p.MaxContainers = 3
		h := manage(t, sandboxtest.New(), p)
		first := h.finish(auto("1", "exit 0"))
		pass(time.Second)
		second := h.finish(auto("2", "exit 0"))
		pass(time.Second)
		if _, err := h.Container(t.Context(), first.ContainerID); err != nil { // now the second is idle longest
			t.Fatal(err)
		}
		busy := h.run(auto("3", "hang"))

		made := h.create() // evicts the second
		if _, err := h.Container(t.Context(), second.ContainerID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("the one idle longest is there: %v", err)
		}
		h.create() // evicts the first
		_, err := h.Create(t.Context(), spec("c"))
		wantCode(t, err, sandbox.ErrExhausted, sandbox.CodeTooManyContainers)
		_, err = h.Run(t.Context(), auto("4", "exit 0"))
		wantCode(t, err, sandbox.ErrExhausted, sandbox.CodeTooManyContainers)
		if n, _ := h.Counts(); n != 3 {
			t.Errorf("%d containers counted, want 3", n)
		}

		// A failed container takes no place.
		h.world.Boxes.Box(made.ID).Lose(sandboxtest.ErrBroken)
		synctest.Wait()
		h.create()
		if _, err := h.Cancel(t.Context(), busy.Call().ID); err != nil {
			t.Errorf("cancel: %v", err)
		}
		busy.Leave()
		h.create() // evicts the third
	})
}

// A container that a call has just made for itself is not idle.
func TestNewAutoContainerIsNotEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy()
		p.MaxContainers = 1
		h := manage(t, sandboxtest.New(), p)
		hold, reached, release := sandboxtest.Hold()
		h.world.Store.On(sandboxtest.OpPutCall, hold) // between the creation and the start
		done := make(chan sandbox.Call)
		go func() { done <- h.finish(auto("a", "exit 0")) }()
		<-reached
		_, err := h.Create(t.Context(), spec("c"))
		wantCode(t, err, sandbox.ErrExhausted, sandbox.CodeTooManyContainers)
		release()
		wantEnd(t, <-done, sandbox.CallCompleted, sandbox.ReasonExit)
	})
}
