package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

func TestReconcile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		before := manage(t, world, policy())
		adopted, died, failed, hung, deleting, half := before.create(), before.create(), before.create(), before.create(), before.create(), before.create()
		running := before.run(in(adopted, "a", "hang", "hang"))
		world.Boxes.Box(failed.ID).Lose(sandboxtest.ErrBroken)
		synctest.Wait()
		before.close()
		if _, err := running.Wait(t.Context()); !errors.Is(err, sandbox.ErrUnavailable) {
			t.Errorf("wait at the stop: %v, want ErrUnavailable", err)
		}

		world.Backend.Kill(died.ID)
		world.Backend.Plant(failed.ID) // a clean-up that did not come through
		for c, status := range map[*sandbox.Container]sandbox.Status{&deleting: sandbox.StatusDeleting, &half: sandbox.StatusCreating} {
			c.Status = status
			if err := world.Store.PutContainer(t.Context(), *c); err != nil {
				t.Fatal(err)
			}
		}
		orphan := sandbox.NewID()
		world.Backend.Plant(orphan)
		world.Boxes.On(sandboxtest.OpOpen, func(_ context.Context, id string) error {
			if id == string(hung.ID) {
				return fmt.Errorf("%w: its guest hangs", sandbox.ErrBroken)
			}
			return nil
		})

		h := manage(t, world, policy())
		for c, want := range map[sandbox.ID]sandbox.Status{
			adopted.ID: sandbox.StatusRunning, died.ID: sandbox.StatusFailed, failed.ID: sandbox.StatusFailed,
			hung.ID: sandbox.StatusFailed, deleting.ID: "", half.ID: "",
		} {
			got, err := h.Container(t.Context(), c)
			if got.Status != want || (want == "") != errors.Is(err, sandbox.ErrNotFound) {
				t.Errorf("container is %q, %v; want %q", got.Status, err, want)
			}
			if want == sandbox.StatusFailed && got.StatusReason == "" {
				t.Error("failed for no reason")
			}
		}
		if left := world.Backend.Leftovers(); len(left) != 1 || left[0] != "sandbox "+string(adopted.ID) {
			t.Errorf("sandboxes %v, want only the adopted one", left)
		}
		wantEnd(t, h.stored(running.Call().ID), sandbox.CallFailed, sandbox.ReasonLost, sandbox.ReasonLost)
		// A retry of the lost call is not run again.
		again := h.finish(in(adopted, "a", "hang", "hang"))
		wantEnd(t, again, sandbox.CallFailed, sandbox.ReasonLost, sandbox.ReasonLost)
		wantEnd(t, h.finish(in(adopted, "b", "exit 0")), sandbox.CallCompleted, sandbox.ReasonExit)
		for _, id := range []sandbox.ID{adopted.ID, died.ID, failed.ID, hung.ID} {
			if err := h.Delete(t.Context(), id); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
		h.empty()
	})
}

// A container that was to go with its call goes, though its daemon died first.
func TestReconcileTransient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		before := manage(t, world, policy())
		own := auto("a", "hang")
		own.DeleteAfter = true
		gone, kept := before.run(own), before.run(auto("b", "hang"))
		synctest.Wait()
		before.close()
		for _, a := range []*sandbox.ActiveCall{gone, kept} {
			a.Leave()
		}

		h := manage(t, world, policy())
		synctest.Wait()
		if _, err := h.Container(t.Context(), gone.Call().ContainerID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("the transient container is there: %v", err)
		}
		wantEnd(t, h.stored(gone.Call().ID), sandbox.CallFailed, sandbox.ReasonLost)
		if err := h.Delete(t.Context(), kept.Call().ContainerID); err != nil {
			t.Errorf("the other container: %v", err)
		}
		h.empty()
	})
}

func TestReconcileFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		h := unready(t, world, policy())
		for _, set := range []func(sandboxtest.Hook){
			func(hook sandboxtest.Hook) { world.Backend.On(sandboxtest.OpList, hook) },
			func(hook sandboxtest.Hook) { world.Store.On(sandboxtest.OpContainers, hook) },
		} {
			set(sandboxtest.Fail(sandboxtest.ErrBroken))
			if err := h.Reconcile(t.Context()); !errors.Is(err, sandboxtest.ErrBroken) || h.Ready() == nil {
				t.Errorf("reconcile: %v, ready: %v", err, h.Ready())
			}
			set(nil)
		}
		if err := h.Reconcile(t.Context()); err != nil || h.Ready() != nil {
			t.Errorf("reconcile: %v, ready: %v", err, h.Ready())
		}
	})
}

// A stop in the middle of a reconciliation destroys no sandbox.
func TestReconcileInterrupted(t *testing.T) {
	for name, stop := range map[string]func(h *harness, cancel context.CancelCauseFunc){
		"by its context": func(_ *harness, cancel context.CancelCauseFunc) { cancel(errLeft) },
		"by close":       func(h *harness, _ context.CancelCauseFunc) { h.close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				world := sandboxtest.New()
				before := manage(t, world, policy())
				c := before.create()
				before.close()

				world.Boxes.On(sandboxtest.OpOpen, sandboxtest.Hang())
				h := unready(t, world, policy())
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				done := make(chan error)
				go func() { done <- h.Reconcile(ctx) }()
				synctest.Wait()
				stop(h, cancel)
				if err := <-done; err == nil {
					t.Error("the reconciliation succeeded")
				}
				h.close()
				if h.Ready() == nil {
					t.Error("a closed Manager is ready")
				}

				world.Boxes.On(sandboxtest.OpOpen, nil)
				after := manage(t, world, policy())
				wantEnd(t, after.finish(in(c, "a", "exit 0")), sandbox.CallCompleted, sandbox.ReasonExit)
			})
		})
	}
}

func TestEarlyCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := unready(t, sandboxtest.New(), policy())
		began := time.Now()
		done := make(chan error)
		go func() {
			_, err := h.Create(t.Context(), spec("c"))
			done <- err
		}()
		pass(3 * time.Second)
		if err := h.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("the early create got %v after %s", err, time.Since(began))
		}
	})
}

func TestNeverReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := unready(t, sandboxtest.New(), policy())
		began := time.Now()
		_, err := h.Run(t.Context(), auto("a", "exit 0"))
		wantCode(t, err, sandbox.ErrUnavailable, sandbox.CodeNotReady)
		if got := time.Since(began); got != 10*time.Second {
			t.Errorf("told after %s", got)
		}
		// Once the cause is known nobody waits any more.
		h.SetNotReady(sandbox.Unavailable(sandbox.CodeEngineUnavailable, nil, "no engine"))
		for name, call := range map[string]func() error{
			"create":     func() error { _, err := h.Create(t.Context(), spec("c")); return err },
			"run":        func() error { _, err := h.Run(t.Context(), auto("b", "exit 0")); return err },
			"container":  func() error { _, err := h.Container(t.Context(), sandbox.NewID()); return err },
			"containers": func() error { _, _, err := h.Containers(t.Context(), sandbox.Query{Limit: 1}); return err },
			"delete":     func() error { return h.Delete(t.Context(), sandbox.NewID()) },
		} {
			wantCode(t, call(), sandbox.ErrUnavailable, sandbox.CodeEngineUnavailable)
			if time.Since(began) != 10*time.Second {
				t.Fatalf("%s waited", name)
			}
		}
		if err := h.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.create()
	})
}

// A call that is interrupted by a stop must not be sent again, unlike one of
// which nothing had been started: that leaves nothing.
func TestCallsAtStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		h := manage(t, world, policy())
		c := h.create()
		started := h.run(in(c, "a", "hang"))
		world.Backend.On(sandboxtest.OpCreate, sandboxtest.Hang())
		early := make(chan error)
		go func() { _, err := h.Run(t.Context(), auto("b", "exit 0")); early <- err }()
		synctest.Wait()
		h.close()
		_, err := started.Wait(t.Context())
		e, ok := errors.AsType[*sandbox.Error](err)
		if !ok || e.Code != sandbox.CodeNotReady || !e.NoRetry || !strings.Contains(e.Message, string(started.Call().ID)) {
			t.Errorf("interrupted call: %+v, want it not to be sent again, and its id", err)
		}
		if e, ok := errors.AsType[*sandbox.Error](<-early); !ok || e.Code != sandbox.CodeNotReady || e.NoRetry {
			t.Errorf("call that did not start: %+v, want it to be sent again", e)
		}
		world.Backend.On(sandboxtest.OpCreate, nil)
		h = manage(t, world, policy())
		wantEnd(t, h.finish(in(c, "a", "hang")), sandbox.CallFailed, sandbox.ReasonLost)
		wantEnd(t, h.finish(auto("b", "exit 0")), sandbox.CallCompleted, sandbox.ReasonExit)
	})
}

// The same goes for a call that a stop meets while its commands are started.
func TestCallStartingAtStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		h := manage(t, world, policy())
		c := h.create()
		world.Boxes.On(sandboxtest.OpStart, sandboxtest.Hang())
		errs := make(chan error)
		go func() { _, err := h.Run(t.Context(), in(c, "a", "exit 0")); errs <- err }()
		synctest.Wait()
		h.close()
		if e, ok := errors.AsType[*sandbox.Error](<-errs); !ok || e.Code != sandbox.CodeNotReady || !e.NoRetry {
			t.Errorf("call that was starting: %+v, want it not to be sent again", e)
		}
		world.Boxes.On(sandboxtest.OpStart, nil)
		wantEnd(t, manage(t, world, policy()).finish(in(c, "a", "exit 0")), sandbox.CallFailed, sandbox.ReasonLost)
	})
}

// Until it is known what became of calls that were under way, nobody is told
// that they run. Those that had ended before are served.
func TestCallsBeforeReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		before := manage(t, world, policy())
		c := before.create()
		ended := before.finish(in(c, "a", "out x"))
		open := before.run(in(c, "b", "hang")).Call().ID
		before.close()
		h := unready(t, world, policy())
		if call, err := h.Call(t.Context(), ended.ID); err != nil || call.Status != sandbox.CallCompleted {
			t.Errorf("ended call: %s, %v", call.Status, err)
		}
		if call, err := h.Cancel(t.Context(), ended.ID); err != nil || call.Status != sandbox.CallCompleted {
			t.Errorf("cancel of ended call: %s, %v", call.Status, err)
		}
		if got := readAll(t, h, ended.ID, 0, sandbox.Stdout); got != "x" {
			t.Errorf("output of ended call: %q", got)
		}
		calls := map[string]func() error{
			"call":   func() error { _, err := h.Call(t.Context(), open); return err },
			"cancel": func() error { _, err := h.Cancel(t.Context(), open); return err },
			"output": func() error { _, err := h.Output(t.Context(), open, 0, sandbox.Stdout); return err },
			"stdin":  func() error { _, err := h.Stdin(t.Context(), open, 0); return err },
			"calls":  func() error { _, _, err := h.Calls(t.Context(), sandbox.Query{Limit: 1}); return err },
		}
		for name, call := range calls {
			began := time.Now()
			wantCode(t, call(), sandbox.ErrUnavailable, sandbox.CodeNotReady)
			if got := time.Since(began); got != 10*time.Second {
				t.Errorf("%s: told after %s", name, got)
			}
		}
		canceled := make(chan sandbox.Call)
		go func() { call, _ := h.Cancel(t.Context(), open); canceled <- call }()
		pass(time.Second)
		if err := h.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantEnd(t, <-canceled, sandbox.CallFailed, sandbox.ReasonLost)
	})
}

// While the end of a lost call is not recorded, nobody is told that it runs.
func TestLostUnrecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		before := manage(t, world, policy())
		c := before.create()
		id := before.run(in(c, "a", "hang")).Call().ID
		before.close()
		world.Store.On(sandboxtest.OpPutCall, sandboxtest.Fail(sandboxtest.ErrBroken))
		h := manage(t, world, policy())
		_, err := h.Run(t.Context(), in(c, "a", "hang"))
		wantCode(t, err, sandbox.ErrUnavailable, sandbox.CodeNotReady)
		_, err = h.Cancel(t.Context(), id)
		wantCode(t, err, sandbox.ErrUnavailable, sandbox.CodeNotReady)
		world.Store.On(sandboxtest.OpPutCall, nil)
		pass(time.Minute)
		wantEnd(t, h.finish(in(c, "a", "hang")), sandbox.CallFailed, sandbox.ReasonLost)
	})
}

// Output that a daemon left which was killed in the middle of a removal goes at
// the next start; that of known calls stays.
func TestOutputWithoutCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		before := manage(t, world, policy())
		call := before.finish(in(before.create(), "a", "out x"))
		before.close()
		world.Outputs.Plant(sandbox.NewCallID())
		h := manage(t, world, policy())
		synctest.Wait()
		if n := world.Outputs.Calls(); n != 1 {
			t.Errorf("%d calls with output, want the known one", n)
		}
		if got := readAll(t, h, call.ID, 0, sandbox.Stdout); got != "x" {
			t.Errorf("output of the known call: %q", got)
		}
	})
}

// Close tells everyone who waits, breaks off creates, and lets sandboxes live.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		world := sandboxtest.New()
		h := manage(t, world, policy())
		kept, deleted := h.create(), h.create()
		left := h.run(in(kept, "bg", "out x; leave"))
		h.wait(left)
		errs := make(chan error, 3)
		go func() {
			_, err := h.run(in(kept, "a", "hang")).Wait(t.Context())
			errs <- err
		}()
		synctest.Wait()
		world.Backend.On(sandboxtest.OpCreate, sandboxtest.Hang())
		go func() { _, err := h.Create(t.Context(), spec("c")); errs <- err }()
		go func() { _, err := h.Run(t.Context(), auto("b", "exit 0")); errs <- err }()
		hold, reached, release := sandboxtest.Hold()
		world.Backend.On(sandboxtest.OpDelete, func(ctx context.Context, id string) error {
			if id == string(deleted.ID) {
				return hold(ctx, id)
			}
			return nil
		})
		deletedErr := make(chan error)
		go func() { deletedErr <- h.Delete(t.Context(), deleted.ID) }()
		<-reached
		synctest.Wait()
		closed := make(chan struct{})
		go func() { h.close(); close(closed) }()
		for range 3 {
			wantCode(t, <-errs, sandbox.ErrUnavailable, sandbox.CodeNotReady)
		}
		select {
		case <-closed:
			t.Error("closed with a delete under way")
		default:
		}
		release()
		if err := <-deletedErr; err != nil {
			t.Errorf("delete: %v", err)
		}
		<-closed
		_, err := h.Create(t.Context(), spec("c"))
		wantCode(t, err, sandbox.ErrUnavailable, sandbox.CodeNotReady)
		if left := world.Backend.Leftovers(); len(left) != 1 {
			t.Errorf("sandboxes %v, want the kept one", left)
		}
	})
}

func TestDeleteAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		h.world.Boxes.Box(h.create().ID).Lose(sandboxtest.ErrBroken)
		a := h.run(in(c, "a", "hang"))
		bg := auto("b", "hang")
		bg.Background = true
		h.run(bg).Leave()
		h.world.Backend.On(sandboxtest.OpCreate, sandboxtest.Hang())
		created := make(chan error)
		go func() { _, err := h.Create(t.Context(), spec("c")); created <- err }()
		synctest.Wait()
		if err := h.DeleteAll(t.Context()); err != nil {
			t.Errorf("delete all: %v", err)
		}
		wantEnd(t, h.wait(a), sandbox.CallCanceled, sandbox.ReasonCanceled)
		wantCode(t, <-created, sandbox.ErrUnavailable, sandbox.CodeNotReady)
		h.empty()
		_, err := h.Create(t.Context(), spec("c"))
		wantCode(t, err, sandbox.ErrUnavailable, sandbox.CodeNotReady)
		h.SetNotReady(nil) // a late reconciliation changes nothing
		_, err = h.Create(t.Context(), spec("c"))
		wantCode(t, err, sandbox.ErrUnavailable, sandbox.CodeNotReady)
	})
}

func TestSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy()) // keeps for an hour
		c, failed := h.create(), h.create()
		kept := h.finish(in(c, "kept", "out x"))
		old := h.finish(in(failed, "old", "out x"))
		h.world.Boxes.Box(failed.ID).Lose(sandboxtest.ErrBroken)
		pass(59 * time.Minute) // the Manager sweeps by itself
		if _, err := h.Container(t.Context(), failed.ID); err != nil {
			t.Errorf("failed container: %v, want it shown for an hour", err)
		}
		if _, err := h.Container(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		touched := time.Now()
		pass(20 * time.Minute)
		if _, err := h.Container(t.Context(), failed.ID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("failed container: %v, want it gone", err)
		}
		if _, err := h.Call(t.Context(), old.ID); !errors.Is(err, sandbox.ErrNotFound) {
			t.Errorf("its call: %v, want it gone", err)
		}
		if _, err := h.Call(t.Context(), kept.ID); err != nil || h.world.Outputs.Calls() != 1 {
			t.Errorf("call of a live container: %v, %d with output", err, h.world.Outputs.Calls())
		}
		records, err := h.world.Store.Containers(t.Context())
		if err != nil || len(records) != 1 || !records[0].LastActiveAt.Equal(touched) {
			t.Errorf("records %+v, %v; want the last activity in them", records, err)
		}
		pass(2 * time.Hour)
		if err := h.Delete(t.Context(), c.ID); err != nil {
			t.Error(err)
		}
		pass(50 * time.Minute)
		if _, err := h.Call(t.Context(), kept.ID); err != nil {
			t.Errorf("old call of a container that was deleted less than an hour ago: %v", err)
		}
		pass(20 * time.Minute)
		if n := h.world.Outputs.Calls(); n != 0 {
			t.Errorf("%d calls with output at the end", n)
		}
		h.empty()
	})
}
