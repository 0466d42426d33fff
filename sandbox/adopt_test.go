package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

// restart leaves a container behind, as a daemon that ends does.
func restart(t *testing.T) (*sandboxtest.World, sandbox.Container) {
	t.Helper()
	world := sandboxtest.New()
	before := manage(t, world, policy())
	c := before.create()
	before.close()
	return world, c
}

// Whatever keeps shelld from a sandbox that lives does not destroy it: it is
// kept, and adopted when that works.
func TestAdoptLater(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]sandboxtest.Hook{
		"no descriptors": sandboxtest.Fail(fmt.Errorf("connect: %w", syscall.EMFILE)),
		"engine away":    sandboxtest.Fail(sandbox.Unavailable(sandbox.CodeEngineUnavailable, nil, "away")),
		"busy machine":   sandboxtest.Hang(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				world, c := restart(t)
				world.Boxes.On(sandboxtest.OpOpen, hook)
				h := manage(t, world, policy())
				for range 3 {
					got, err := h.Container(t.Context(), c.ID)
					if err != nil || got.Status != sandbox.StatusRunning {
						t.Fatalf("container is %q, %v; want it running", got.Status, err)
					}
					_, err = h.Run(t.Context(), in(c, "a", "exit 0"))
					wantCode(t, err, sandbox.ErrUnavailable, sandbox.CodeEngineUnavailable)
					if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.RetryAfter <= 0 {
						t.Error("no advice when to try again")
					}
					pass(time.Minute)
				}
				world.Backend.On(sandboxtest.OpList, sandboxtest.Fail(sandboxtest.ErrBroken))
				pass(time.Minute)
				if world.Backend.Count(sandboxtest.OpDelete) > 0 {
					t.Error("a sandbox that lives was deleted")
				}
				world.Backend.On(sandboxtest.OpList, nil)
				world.Boxes.On(sandboxtest.OpOpen, nil)
				pass(time.Minute)
				wantEnd(t, h.finish(in(c, "a", "exit 0")), sandbox.CallCompleted, sandbox.ReasonExit)
			})
		})
	}
}

// A sandbox whose adoption is tried again is given up when it ends or proves
// broken meanwhile, and can be deleted.
func TestAdoptionEnds(t *testing.T) {
	t.Parallel()
	for name, then := range map[string]func(*harness, sandbox.ID){
		"broken": func(h *harness, _ sandbox.ID) {
			h.world.Boxes.On(sandboxtest.OpOpen, sandboxtest.Fail(sandbox.ErrBroken))
		},
		"ended": func(h *harness, id sandbox.ID) { h.world.Backend.Kill(id) },
		"gone":  func(h *harness, id sandbox.ID) { _ = h.world.Backend.Delete(h.t.Context(), id) },
		"deleted": func(h *harness, id sandbox.ID) {
			if err := h.Delete(h.t.Context(), id); err != nil {
				h.t.Errorf("delete: %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				world, c := restart(t)
				world.Boxes.On(sandboxtest.OpOpen, sandboxtest.Fail(syscall.EMFILE))
				h := manage(t, world, policy())
				then(h, c.ID)
				pass(time.Minute)
				opened := world.Boxes.Count(sandboxtest.OpOpen)
				pass(time.Minute)
				if n := world.Boxes.Count(sandboxtest.OpOpen); n != opened {
					t.Error("it is still being tried")
				}
				if left := world.Backend.Leftovers(); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				got, err := h.Container(t.Context(), c.ID)
				switch {
				case name == "deleted":
					wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
				case err != nil || got.Status != sandbox.StatusFailed || got.StatusReason == "":
					t.Errorf("container is %q, %v; want failed", got.Status, err)
				default:
					_, err = h.Run(t.Context(), in(c, "a", "exit 0"))
					wantCode(t, err, sandbox.ErrInvalid, sandbox.CodeContainerFailed)
				}
			})
		})
	}
}

// A stop in the middle of a late adoption destroys nothing and leaves nothing
// open.
func TestLateAdoptionAtStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world, c := restart(t)
		world.Boxes.On(sandboxtest.OpOpen, sandboxtest.Fail(syscall.EMFILE))
		h := manage(t, world, policy())
		world.Boxes.On(sandboxtest.OpOpen, sandboxtest.Hang())
		pass(time.Second)
		h.close()
		world.Boxes.On(sandboxtest.OpOpen, nil)
		wantEnd(t, manage(t, world, policy()).finish(in(c, "a", "exit 0")), sandbox.CallCompleted, sandbox.ReasonExit)
	})
}

// What cannot be removed while the engine is away is removed when it is back.
func TestCleanUpLater(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*harness) string{
		"failed": func(h *harness) string {
			c := h.create()
			h.world.Boxes.Box(c.ID).Lose(sandboxtest.ErrBroken)
			return string(c.ID)
		},
		"half made": func(h *harness) string {
			h.world.Boxes.On(sandboxtest.OpOpen, sandboxtest.Fail(sandboxtest.ErrBroken))
			if _, err := h.Create(h.t.Context(), spec("c")); !errors.Is(err, sandboxtest.ErrBroken) {
				h.t.Errorf("create: %v", err)
			}
			return ""
		},
		"of a call": func(h *harness) string {
			s := auto("a", "exit 0")
			s.DeleteAfter = true
			h.finish(s)
			return ""
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := manage(t, sandboxtest.New(), policy())
				h.world.Backend.On(sandboxtest.OpDelete, sandboxtest.Fail(sandboxtest.ErrBroken))
				failed := lose(h)
				pass(time.Minute)
				if left := h.world.Backend.Leftovers(); len(left) != 1 {
					t.Fatalf("sandboxes %v; the test wants one that cannot be removed", left)
				}
				h.world.Backend.On(sandboxtest.OpDelete, nil)
				pass(time.Minute)
				if left := h.world.Backend.Leftovers(); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				if failed != "" {
					if c, err := h.Container(t.Context(), sandbox.ID(failed)); err != nil || c.Status != sandbox.StatusFailed {
						t.Errorf("container is %q, %v; want it shown as failed", c.Status, err)
					}
					return
				}
				if n, _ := h.Counts(); n != 0 {
					t.Errorf("%d containers counted", n)
				}
				h.empty()
			})
		})
	}
}

// Also what a start finds to be removed is.
func TestReconcileCleansUpLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world, c := restart(t)
		world.Backend.Plant(sandbox.NewID())
		c.Status = sandbox.StatusDeleting
		if err := world.Store.PutContainer(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		world.Backend.On(sandboxtest.OpDelete, sandboxtest.Fail(sandboxtest.ErrBroken))
		h := manage(t, world, policy())
		pass(time.Minute)
		world.Backend.On(sandboxtest.OpDelete, nil)
		pass(time.Minute)
		h.empty()
	})
}

// The end of a lost call is recorded when that works.
func TestLostRecordedLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		before := manage(t, world, policy())
		c := before.create()
		id := before.run(in(c, "a", "hang")).Call().ID
		before.close()
		world.Store.On(sandboxtest.OpPutCall, sandboxtest.Fail(sandboxtest.ErrBroken))
		h := manage(t, world, policy())
		world.Store.On(sandboxtest.OpPutCall, func(context.Context, string) error { return nil })
		pass(time.Minute)
		wantEnd(t, h.stored(id), sandbox.CallFailed, sandbox.ReasonLost)
	})
}
