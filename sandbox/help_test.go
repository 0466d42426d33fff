package sandbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

// pass lets time pass in a bubble of synctest, whose clock jumps.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // nothing waits for it
}

// policy is what most tests hold callers to.
func policy() sandbox.Policy {
	return sandbox.Policy{MaxContainers: 8, MaxRuns: 16, Keep: time.Hour}
}

// harness is a Manager in a world in memory.
type harness struct {
	*sandbox.Manager
	world *sandboxtest.World
	t     *testing.T
	over  bool
}

// manage returns a Manager that is ready. It is closed with the test, which
// fails if it still holds anything then.
func manage(t *testing.T, world *sandboxtest.World, p sandbox.Policy) *harness {
	t.Helper()
	h := unready(t, world, p)
	if err := h.Reconcile(t.Context()); err != nil {
		t.Fatalf("reconcile: %v", err)
	}
	return h
}

// unready is manage without the reconciliation.
func unready(t *testing.T, world *sandboxtest.World, p sandbox.Policy) *harness {
	t.Helper()
	h := &harness{Manager: sandbox.New(world.Options(p)), world: world, t: t}
	t.Cleanup(h.close)
	return h
}

func (h *harness) close() {
	h.t.Helper()
	if h.over {
		return
	}
	h.over = true
	if err := h.Close(); err != nil {
		h.t.Errorf("close: %v", err)
	}
	if held := h.Memory(); held != "" {
		h.t.Errorf("still held after close: %s", held)
	}
}

func (h *harness) create() sandbox.Container {
	h.t.Helper()
	c, err := h.Create(h.t.Context(), spec("c"))
	if err != nil {
		h.t.Fatalf("create: %v", err)
	}
	return c
}

// run starts a call, which must succeed.
func (h *harness) run(spec sandbox.CallSpec) *sandbox.ActiveCall {
	h.t.Helper()
	a, err := h.Run(h.t.Context(), spec)
	if err != nil {
		h.t.Fatalf("run: %v", err)
	}
	return a
}

// finish runs a call to its end, which must succeed.
func (h *harness) finish(spec sandbox.CallSpec) sandbox.Call {
	h.t.Helper()
	return h.wait(h.run(spec))
}

func (h *harness) wait(a *sandbox.ActiveCall) sandbox.Call {
	h.t.Helper()
	call, err := a.Wait(h.t.Context())
	if err != nil {
		h.t.Fatalf("wait: %v", err)
	}
	return call
}

// empty fails the test when anything of a container, or of a call's work, is
// left.
func (h *harness) empty() {
	h.t.Helper()
	synctest.Wait() // an answer may be out a moment before its call is dropped
	h.emptyNow()
}

// emptyNow is empty for a test that is in no bubble of virtual time.
func (h *harness) emptyNow() {
	h.t.Helper()
	left, err := h.world.Leftovers(context.WithoutCancel(h.t.Context()))
	if err != nil {
		h.t.Errorf("look for leftovers: %v", err)
	}
	for _, what := range left {
		h.t.Errorf("left behind: %s", what)
	}
	if held := h.Memory(); held != "" {
		h.t.Errorf("still held: %s", held)
	}
}

func spec(name string) sandbox.Spec {
	return sandbox.Spec{Name: name, Image: sandbox.ImageHost, IdleMinutes: 20, MemoryLimit: "1g", MemoryBytes: 1 << 30}
}

// in is a call in a container, auto one that makes its own.
func in(c sandbox.Container, callID string, commands ...string) sandbox.CallSpec {
	return sandbox.CallSpec{
		CallID: callID, Commands: commands, Timeout: time.Minute, MaxOutput: 1000, Dir: "/mnt/data", ContainerID: c.ID,
	}
}

func auto(callID string, commands ...string) sandbox.CallSpec {
	s := in(sandbox.Container{}, callID, commands...)
	made := spec("auto")
	s.Auto = &made
	return s
}

// wantCode fails the test unless err has the code and, of its class, matches.
func wantCode(t *testing.T, err error, class error, code sandbox.Code) {
	t.Helper()
	e, ok := errors.AsType[*sandbox.Error](err)
	if !ok || e.Code != code || !errors.Is(err, class) {
		t.Errorf("error %v, want code %s of class %q", err, code, class)
	}
}

// wantEnd fails the test unless the call has the status and the reasons.
func wantEnd(t *testing.T, call sandbox.Call, status sandbox.CallStatus, reasons ...sandbox.Reason) {
	t.Helper()
	if call.Status != status || len(call.Results) != len(reasons) || call.CompletedAt.IsZero() {
		t.Fatalf("call is %s with %d results, ended %s; want %s with %d", call.Status, len(call.Results), call.CompletedAt, status, len(reasons))
	}
	for i, reason := range reasons {
		if got := call.Results[i].Reason; got != reason {
			t.Errorf("command %d ended by %s, want %s", i, got, reason)
		}
	}
}

// stored returns the record of a call.
func (h *harness) stored(id sandbox.CallID) sandbox.Call {
	h.t.Helper()
	call, err := h.world.Store.Call(h.t.Context(), id)
	if err != nil {
		h.t.Fatalf("record of call: %v", err)
	}
	return call
}
