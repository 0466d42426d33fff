package sandbox_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

func TestCallLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		a := h.run(in(c, "a", "out one; sleep 1s", "out two; exit 3", "hang"))
		if call := a.Call(); call.Status != sandbox.CallInProgress || call.ContainerID != c.ID || len(call.Results) != 0 {
			t.Errorf("started call %+v", call)
		}
		if _, runs := h.Counts(); runs != 3 {
			t.Errorf("%d runs counted, want 3", runs)
		}
		call := h.wait(a)
		wantEnd(t, call, sandbox.CallCompleted, sandbox.ReasonExit, sandbox.ReasonExit, sandbox.ReasonTimeout)
		if call.Results[0].Stdout != "one" || call.Results[1].Stdout != "two" || call.Results[1].ExitCode != 3 {
			t.Errorf("results in the wrong order: %+v", call.Results)
		}
		if got := call.CompletedAt.Sub(call.CreatedAt); got != time.Minute {
			t.Errorf("the call took %s, want its timeout of 1m", got)
		}
		wantEnd(t, h.stored(call.ID), sandbox.CallCompleted, sandbox.ReasonExit, sandbox.ReasonExit, sandbox.ReasonTimeout)
		got, err := h.Call(t.Context(), call.ID)
		if err != nil || got.Status != sandbox.CallCompleted {
			t.Errorf("retrieved %s, %v", got.Status, err)
		}
		if again, err := h.Cancel(t.Context(), call.ID); err != nil || again.Status != sandbox.CallCompleted {
			t.Errorf("cancel of an ended call: %s, %v; want it as it is", again.Status, err)
		}
		synctest.Wait()
		if held := h.Memory(); held != "" {
			t.Errorf("still held: %s", held)
		}
		_, err = h.Call(t.Context(), sandbox.NewCallID())
		wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
		_, err = h.Cancel(t.Context(), sandbox.NewCallID())
		wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
	})
}

func TestDeleteAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		kept := h.finish(auto("a", "exit 0"))
		if c, err := h.Container(t.Context(), kept.ContainerID); err != nil || !c.Auto {
			t.Errorf("container %+v, %v; want it kept and marked automatic", c, err)
		}
		if err := h.Delete(t.Context(), kept.ContainerID); err != nil {
			t.Errorf("delete: %v", err)
		}
		for name, commands := range map[string]string{"exit": "exit 0", "timeout": "hang", "background": "leave", "lost": "lost"} {
			s := auto(name, commands)
			s.DeleteAfter = true
			call := h.finish(s)
			synctest.Wait()
			if _, err := h.Container(t.Context(), call.ContainerID); !errors.Is(err, sandbox.ErrNotFound) {
				t.Errorf("after %s the container is there: %v", name, err)
			}
		}
		h.empty()
	})
}

// What cannot start: nothing runs, nothing is left, and the same call id can
// be used again.
func TestStartRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		s := auto("a", "out x; hang", "badstart")
		_, err := h.Run(t.Context(), s)
		wantCode(t, err, sandbox.ErrInvalid, sandbox.CodeInvalidValue)
		synctest.Wait()
		h.empty()
		if n := h.world.Outputs.Calls(); n > 0 {
			t.Errorf("output of %d calls is kept without their records", n)
		}
		page, _, err := h.Calls(t.Context(), sandbox.Query{Limit: 10})
		if err != nil || len(page) > 0 {
			t.Errorf("calls %+v, %v; want none recorded", page, err)
		}
		s.Commands = []string{"out x"}
		wantEnd(t, h.finish(s), sandbox.CallCompleted, sandbox.ReasonExit)
	})
}

// A command that had ended, but for a process in the background, does not keep
// a call from being refused.
func TestStartRefusedBesideBackground(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		hold, reached, release := sandboxtest.Hold()
		starts := 0
		var mu sync.Mutex
		h.world.Boxes.On(sandboxtest.OpStart, func(ctx context.Context, id string) error {
			mu.Lock()
			starts++
			last := starts == 2
			mu.Unlock()
			if last {
				return errors.Join(hold(ctx, id), sandbox.Invalid("working_directory", "cannot be entered"))
			}
			return nil
		})
		errs := make(chan error)
		go func() { _, err := h.Run(t.Context(), auto("a", "leave", "leave")); errs <- err }()
		<-reached
		synctest.Wait() // the other has ended by now
		release()
		began := time.Now()
		wantCode(t, <-errs, sandbox.ErrInvalid, sandbox.CodeInvalidValue)
		if took := time.Since(began); took > 0 {
			t.Errorf("the refusal took %s", took)
		}
		synctest.Wait()
		h.empty()
	})
}

// What is refused while the rest of the sandbox hangs, or the daemon stops, is
// answered all the same.
func TestRefusalIsBounded(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"hangs": false, "stops": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := manage(t, sandboxtest.New(), policy())
				c := h.create()
				began := time.Now()
				errs := make(chan error)
				go func() { _, err := h.Run(t.Context(), in(c, "a", "stuck", "badstart")); errs <- err }()
				synctest.Wait()
				if stop {
					h.close()
				}
				err := <-errs
				wantCode(t, err, sandbox.ErrInvalid, sandbox.CodeInvalidValue)
				if took := time.Since(began); stop && took > 0 || took > time.Minute {
					t.Errorf("the refusal took %s", took)
				}
				if !strings.Contains(err.Error(), "could not be ended") {
					t.Errorf("error %q does not say that a command may run on", err)
				}
			})
		})
	}
}

// A cancel of a command that cannot be ended has an end, which says so.
func TestCancelIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		a := h.run(in(c, "a", "stuck", "exit 0", "out x; leave"))
		call, err := h.Cancel(t.Context(), a.Call().ID)
		if err != nil {
			t.Fatal(err)
		}
		wantEnd(t, call, sandbox.CallFailed, sandbox.ReasonLost, sandbox.ReasonExit, sandbox.ReasonExit)
		h.wait(a)
	})
}

// A call of which no command could start answers why, with the advice to try
// again; one of which others did start, without.
func TestStartExhausted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		for name, test := range map[string]struct {
			commands []string
			again    bool
		}{
			"none started": {[]string{"nostart", "nostart"}, true},
			"one started":  {[]string{"out x; hang", "nostart"}, false},
		} {
			_, err := h.Run(t.Context(), in(c, name, test.commands...))
			wantCode(t, err, sandbox.ErrExhausted, sandbox.CodeTooManyRuns)
			if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.NoRetry == test.again || (e.RetryAfter > 0) != test.again {
				t.Errorf("%s: error %+v, want advice to try again: %t", name, e, test.again)
			}
			synctest.Wait()
			if page, _, err := h.Calls(t.Context(), sandbox.Query{Limit: 10}); err != nil || len(page) > 0 {
				t.Errorf("%s: calls %+v, %v; want none recorded", name, page, err)
			}
			if _, runs := h.Counts(); runs != 0 {
				t.Errorf("%s: %d runs counted", name, runs)
			}
		}
	})
}

// A command that its sandbox may have started is lost; its neighbours run.
func TestStartLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		call := h.finish(auto("a", "out x", "lost"))
		wantEnd(t, call, sandbox.CallFailed, sandbox.ReasonExit, sandbox.ReasonLost)
		if r := call.Results[1]; r.ExitCode != -1 || r.Note == "" {
			t.Errorf("lost result %+v, want no code and a note", r)
		}
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		a := h.run(auto("a", "out x; hang", "exit 0"))
		synctest.Wait()
		for range 2 {
			call, err := h.Cancel(t.Context(), a.Call().ID)
			if err != nil {
				t.Fatalf("cancel: %v", err)
			}
			wantEnd(t, call, sandbox.CallCanceled, sandbox.ReasonCanceled, sandbox.ReasonExit)
		}
		wantEnd(t, h.wait(a), sandbox.CallCanceled, sandbox.ReasonCanceled, sandbox.ReasonExit)
	})
}

// A call that is canceled while its container is being made has an end, and
// leaves no container.
func TestCancelDuringCreate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		h.world.Backend.On(sandboxtest.OpCreate, sandboxtest.Hang())
		done := make(chan sandbox.Call)
		go func() { done <- h.finish(auto("a", "exit 0", "exit 0")) }()
		synctest.Wait()
		page, _, err := h.Calls(t.Context(), sandbox.Query{Limit: 1})
		if err != nil || len(page) != 1 {
			t.Fatalf("calls %v, %v; want the one that is starting", page, err)
		}
		if _, err := h.Cancel(t.Context(), page[0].ID); err != nil {
			t.Errorf("cancel: %v", err)
		}
		wantEnd(t, <-done, sandbox.CallCanceled, sandbox.ReasonCanceled, sandbox.ReasonCanceled)
		h.empty()
	})
}

func TestMaxRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy()
		p.MaxRuns = 3
		h := manage(t, sandboxtest.New(), p)
		c := h.create()
		ended := h.finish(in(c, "ended", "exit 0"))
		a := h.run(in(c, "a", "hang", "hang"))
		_, err := h.Run(t.Context(), in(c, "b", "hang", "hang"))
		wantCode(t, err, sandbox.ErrExhausted, sandbox.CodeTooManyRuns)
		if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.RetryAfter <= 0 {
			t.Error("no advice when to try again")
		}
		b := h.run(in(c, "b", "hang"))
		_, err = h.Run(t.Context(), in(c, "more", "hang", "hang", "hang", "hang"))
		wantCode(t, err, sandbox.ErrInvalid, sandbox.CodeAboveCeiling) // it never could
		if again := h.finish(in(c, "ended", "exit 0")); again.ID != ended.ID {
			t.Error("a retry of an ended call is another one")
		}
		_, err = h.Run(t.Context(), in(c, "ended", "exit 1"))
		wantCode(t, err, sandbox.ErrExhausted, sandbox.CodeTooManyRuns)
		h.wait(a)
		h.wait(b)
		// Calls that fail give their places back, too.
		for i := range 5 {
			_, err := h.Run(t.Context(), in(c, "bad", "badstart", "badstart", "badstart"))
			wantCode(t, err, sandbox.ErrInvalid, sandbox.CodeInvalidValue)
			_, err = h.Run(t.Context(), in(sandbox.Container{ID: sandbox.NewID()}, "none", "hang", "hang", "hang"))
			wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
			if i == 0 {
				h.finish(in(c, "same", "exit 0"))
			}
			h.finish(in(c, "same", "exit 0"))
		}
		if _, runs := h.Counts(); runs != 0 {
			t.Errorf("%d runs counted at the end", runs)
		}
	})
}

// The output of background processes is kept, beyond what the result has.
func TestBackgroundOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		call := h.finish(in(c, "a", "out early; leave", "exit 0"))
		if r := call.Results[0]; r.Stdout != "early" || len(r.Background) != 1 {
			t.Errorf("result %+v, want the early output and the process left", r)
		}
		// The client that reads on gets everything.
		out, err := h.Output(t.Context(), call.ID, 0, sandbox.Stdout)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		read := make(chan error)
		go func() { read <- out.Read(t.Context(), &text, 0, -1, true) }()
		synctest.Wait()
		h.world.Boxes.Box(c.ID).Release()
		if err := <-read; err != nil || text.String() != "earlylate" {
			t.Errorf("read %q, %v", text.String(), err)
		}
		synctest.Wait()
		if held := h.Memory(); held != "" {
			t.Errorf("still held: %s", held)
		}
		if got := readAll(t, h, call.ID, 0, sandbox.Stdout); got != "earlylate" {
			t.Errorf("stored output %q", got)
		}
		if got := h.stored(call.ID).Results[0]; got.Stdout != "early" || got.StdoutBytes != 5 {
			t.Errorf("the result changed after the answer: %+v", got)
		}
	})
}

func readAll(t *testing.T, h *harness, id sandbox.CallID, index int, stream sandbox.Stream) string {
	t.Helper()
	out, err := h.Output(t.Context(), id, index, stream)
	if err != nil {
		t.Fatalf("output: %v", err)
	}
	defer out.Close() // it is only read
	var text strings.Builder
	if err := out.Read(t.Context(), &text, 0, -1, false); err != nil {
		t.Errorf("read output: %v", err)
	}
	return text.String()
}

func TestOutput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		a := h.run(auto("a", "out so far; err oh; hang"))
		synctest.Wait()
		id := a.Call().ID
		for _, when := range []string{"live", "stored"} {
			if got := readAll(t, h, id, 0, sandbox.Stdout); got != "so far" {
				t.Errorf("%s stdout %q", when, got)
			}
			if got := readAll(t, h, id, 0, sandbox.Stderr); got != "oh" {
				t.Errorf("%s stderr %q", when, got)
			}
			for _, index := range []int{-1, 1, 1 << 40} {
				_, err := h.Output(t.Context(), id, index, sandbox.Stdout)
				wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
			}
			h.wait(a)
			synctest.Wait()
		}
		_, err := h.Output(t.Context(), sandbox.NewCallID(), 0, sandbox.Stdout)
		wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
	})
}

func TestStdin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		s := auto("a", "cat")
		s.Stdin = true
		a := h.run(s)
		id := a.Call().ID
		stdin, err := h.Stdin(t.Context(), id, 0)
		if err != nil {
			t.Fatalf("stdin: %v", err)
		}
		_, err = h.Stdin(t.Context(), id, 0)
		wantCode(t, err, sandbox.ErrConflict, sandbox.CodeInUse)
		_, err = h.Stdin(t.Context(), id, 1)
		wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)
		if _, err := io.WriteString(stdin, "hello"); err != nil {
			t.Error(err)
		}
		if err := stdin.Close(); err != nil {
			t.Error(err)
		}
		if call := h.wait(a); call.Results[0].Stdout != "hello" {
			t.Errorf("result %+v", call.Results[0])
		}
		synctest.Wait()
		_, err = h.Stdin(t.Context(), id, 0)
		wantCode(t, err, sandbox.ErrConflict, sandbox.CodeInUse)
		_, err = h.Stdin(t.Context(), sandbox.NewCallID(), 0)
		wantCode(t, err, sandbox.ErrNotFound, sandbox.CodeNotFound)

		none := h.run(auto("b", "hang"))
		_, err = h.Stdin(t.Context(), none.Call().ID, 0)
		wantCode(t, err, sandbox.ErrConflict, sandbox.CodeInUse)
		none.Leave()
	})
}

// A call whose end cannot be stored, as on a full disk, still answers, and its
// end is stored when that works again.
func TestEndStoredLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		h.world.Store.On(sandboxtest.OpPutCall, sandboxtest.Fail(sandboxtest.ErrBroken))
		call := h.finish(in(c, "a", "out x"))
		wantEnd(t, call, sandbox.CallCompleted, sandbox.ReasonExit)
		pass(time.Minute)
		if got, err := h.Call(t.Context(), call.ID); err != nil || got.Status != sandbox.CallCompleted {
			t.Errorf("retrieved %s, %v; want the end from memory", got.Status, err)
		}
		if again := h.finish(in(c, "a", "out x")); again.ID != call.ID || again.Status != sandbox.CallCompleted {
			t.Errorf("sent again it is %s, %s; want the end from memory", again.ID, again.Status)
		}
		h.world.Store.On(sandboxtest.OpPutCall, nil)
		pass(time.Minute)
		wantEnd(t, h.stored(call.ID), sandbox.CallCompleted, sandbox.ReasonExit)
		h.close() // also with one that is never stored
	})
}

func TestEndNeverStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		h.world.Store.On(sandboxtest.OpPutCall, sandboxtest.Fail(sandboxtest.ErrBroken))
		h.finish(in(c, "a", "out x"))
		h.close()
	})
}

func TestCallNotRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		h.world.Store.On(sandboxtest.OpAddCall, sandboxtest.Fail(sandboxtest.ErrBroken))
		if _, err := h.Run(t.Context(), in(c, "a", "out x")); !errors.Is(err, sandboxtest.ErrBroken) {
			t.Errorf("error %v, want %v", err, sandboxtest.ErrBroken)
		}
		if n := h.world.Boxes.Count(sandboxtest.OpStart); n > 0 {
			t.Errorf("%d commands started without a record", n)
		}
	})
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	base := auto("a", "one", "two")
	base.Env = map[string]string{"A": "1", "B": "2"}
	same := auto("b", "one", "two")
	same.Background = true
	same.Env = map[string]string{"B": "2", "A": "1"}
	if base.Fingerprint() != same.Fingerprint() {
		t.Error("the call id, the order of a map or who waits counts")
	}
	empty := base
	empty.Env = map[string]string{}
	none := base
	none.Env = nil
	if empty.Fingerprint() != none.Fingerprint() {
		t.Error("an empty map and none differ")
	}
	prints := []string{base.Fingerprint(), none.Fingerprint()}
	for _, change := range []func(*sandbox.CallSpec){
		func(s *sandbox.CallSpec) { s.Commands = []string{"two", "one"} },
		func(s *sandbox.CallSpec) { s.Commands = []string{"one two"} },
		func(s *sandbox.CallSpec) { s.Timeout++ },
		func(s *sandbox.CallSpec) { s.MaxOutput++ },
		func(s *sandbox.CallSpec) { s.Dir = "/" },
		func(s *sandbox.CallSpec) { s.Stdin = true },
		func(s *sandbox.CallSpec) { s.DeleteAfter = true },
		func(s *sandbox.CallSpec) { c := *s.Auto; c.Name = "x"; s.Auto = &c },
		func(s *sandbox.CallSpec) { s.Auto, s.ContainerID = nil, "c" },
	} {
		s := base
		change(&s)
		prints = append(prints, s.Fingerprint())
	}
	slices.Sort(prints)
	if n := len(slices.Compact(slices.Clone(prints))); n != len(prints) {
		t.Errorf("%d different requests have %d fingerprints", len(prints), n)
	}
}

// A caller that leaves while the commands are being started is no waiter any
// more.
func TestClientLeavesDuringStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := manage(t, sandboxtest.New(), policy())
		c := h.create()
		hold, reached, release := sandboxtest.Hold()
		h.world.Boxes.On(sandboxtest.OpStart, hold)
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error)
		go func() {
			_, err := h.Run(ctx, in(c, "a", "hang"))
			errs <- err
		}()
		<-reached
		left := errors.New("client left")
		cancel(left)
		if err := <-errs; !errors.Is(err, left) {
			t.Errorf("error %v, want %v", err, left)
		}
		release()
		pass(2 * time.Second)
		page, _, err := h.Calls(t.Context(), sandbox.Query{Limit: 1})
		if err != nil || len(page) != 1 {
			t.Fatalf("calls %v, %v", page, err)
		}
		wantEnd(t, page[0], sandbox.CallCanceled, sandbox.ReasonCanceled)
	})
}
