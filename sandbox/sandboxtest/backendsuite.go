package sandboxtest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/shelld/shelld/sandbox"
)

// patience is how long the suites wait for what must happen soon.
const patience = 20 * time.Second

// BackendUnderTest is what [RunBackend] tests.
type BackendUnderTest struct {
	Backend sandbox.Backend
	// Leftovers names what exists on the machine of any sandbox of the
	// backend.
	Leftovers func(t *testing.T) []string
	// Kill kills PID 1 of a sandbox.
	Kill func(t *testing.T, instance sandbox.Instance)
	// CgroupPath returns where a sandbox goes among the cgroups, as
	// [sandbox.Boxes.CgroupPath] does. Nil: none.
	CgroupPath func(id sandbox.ID) string
}

// RunBackend tests that a backend keeps the promises of [sandbox.Backend]. open
// returns a backend without sandboxes; it is called once.
func RunBackend(t *testing.T, open func(t *testing.T) BackendUnderTest) {
	t.Helper()
	backend := open(t)
	for name, test := range map[string]func(backendSuite){
		"life":                     backendSuite.life,
		"delete of unknown":        backendSuite.deleteUnknown,
		"faulty spec":              backendSuite.faultySpec,
		"same id twice":            backendSuite.sameIDTwice,
		"create canceled before":   backendSuite.canceledBefore,
		"create canceled midway":   backendSuite.canceledMidway,
		"newer connection":         backendSuite.newerConnection,
		"sandbox that died":        backendSuite.died,
		"many at once":             backendSuite.manyAtOnce,
		"delete from all sides":    backendSuite.deleteFromAllSides,
		"guest of unknown":         backendSuite.guestOfUnknown,
		"delete with canceled ctx": backendSuite.deleteCanceled,
	} {
		t.Run(name, func(t *testing.T) {
			s := backendSuite{t, backend}
			test(s)
			s.clean(t)
		})
	}
}

// backendSuite is one test of the suite.
type backendSuite struct {
	t *testing.T
	BackendUnderTest
}

func (s backendSuite) spec() sandbox.BoxSpec {
	spec := sandbox.BoxSpec{ID: sandbox.NewID(), Image: sandbox.ImageHost}
	if s.CgroupPath != nil {
		spec.CgroupPath = s.CgroupPath(spec.ID)
	}
	return spec
}

func (s backendSuite) create(t *testing.T) sandbox.Instance {
	t.Helper()
	spec := s.spec()
	instance, err := s.Backend.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	if instance.ID != spec.ID || !instance.Running || instance.PID <= 0 {
		t.Errorf("created %+v, want a running sandbox %s with a process id", instance, spec.ID)
	}
	return instance
}

func (s backendSuite) delete(t *testing.T, id sandbox.ID) {
	t.Helper()
	if err := s.Backend.Delete(t.Context(), id); err != nil {
		t.Errorf("delete %s: %v", id, err)
	}
}

// find returns the sandbox as it is listed.
func (s backendSuite) find(t *testing.T, id sandbox.ID) (sandbox.Instance, bool) {
	t.Helper()
	list, err := s.Backend.List(t.Context())
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	i := slices.IndexFunc(list, func(in sandbox.Instance) bool { return in.ID == id })
	if i < 0 {
		return sandbox.Instance{}, false
	}
	return list[i], true
}

// clean fails the test when anything is left.
func (s backendSuite) clean(t *testing.T) {
	t.Helper()
	list, err := s.Backend.List(t.Context())
	if err != nil || len(list) > 0 {
		t.Errorf("list afterwards: %v, %v; want none", list, err)
	}
	for _, left := range s.Leftovers(t) {
		t.Errorf("left behind: %s", left)
	}
}

func (s backendSuite) connect(t *testing.T, id sandbox.ID) *net.UnixConn {
	t.Helper()
	conn, err := s.Backend.OpenGuest(t.Context(), id)
	if err != nil {
		t.Fatalf("open guest: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatalf("set deadline: %v", err)
	}
	return conn
}

func (s backendSuite) life() {
	t := s.t
	instance := s.create(t)
	if got, ok := s.find(t, instance.ID); !ok || got != instance {
		t.Errorf("listed as %+v (%t), want %+v", got, ok, instance)
	}
	if err := s.connect(t, instance.ID).Close(); err != nil {
		t.Errorf("close connection: %v", err)
	}
	if got, ok := s.find(t, instance.ID); !ok || !got.Running {
		t.Error("the sandbox ended with its connection")
	}
	s.delete(t, instance.ID)
	s.delete(t, instance.ID) // deleted already is no error
}

func (s backendSuite) deleteUnknown() {
	t := s.t
	s.delete(t, sandbox.NewID())
	s.delete(t, "")
	s.delete(t, "cntr_../../../../tmp")
}

func (s backendSuite) faultySpec() {
	t := s.t
	for name, change := range map[string]func(*sandbox.BoxSpec){
		"image":        func(spec *sandbox.BoxSpec) { spec.Image = "no-such-image" },
		"no image":     func(spec *sandbox.BoxSpec) { spec.Image = "" },
		"no id":        func(spec *sandbox.BoxSpec) { spec.ID = "" },
		"malformed id": func(spec *sandbox.BoxSpec) { spec.ID = "cntr_../x" },
	} {
		spec := s.spec()
		change(&spec)
		if _, err := s.Backend.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("%s: error %v, want one that matches ErrInvalid", name, err)
		}
		s.clean(t)
	}
}

func (s backendSuite) sameIDTwice() {
	t := s.t
	instance := s.create(t)
	spec := s.spec()
	spec.ID = instance.ID
	if _, err := s.Backend.Create(t.Context(), spec); err == nil {
		t.Error("a second sandbox with the same id was made")
	}
	if got, ok := s.find(t, instance.ID); !ok || got != instance {
		t.Errorf("afterwards listed as %+v (%t), want %+v as before", got, ok, instance)
	}
	s.connect(t, instance.ID)
	s.delete(t, instance.ID)
}

func (s backendSuite) canceledBefore() {
	t := s.t
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrBroken)
	if _, err := s.Backend.Create(ctx, s.spec()); err == nil {
		t.Error("a canceled create succeeded")
	}
}

// canceledMidway cancels creates at different moments. One that still succeeds
// has made a whole sandbox, one that fails has left nothing.
func (s backendSuite) canceledMidway() {
	t := s.t
	for delay := time.Millisecond; delay < 200*time.Millisecond; delay *= 3 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), delay, ErrBroken)
		spec := s.spec()
		if _, err := s.Backend.Create(ctx, spec); err == nil {
			s.connect(t, spec.ID)
			s.delete(t, spec.ID)
		}
		cancel()
		s.clean(t)
	}
}

func (s backendSuite) newerConnection() {
	t := s.t
	instance := s.create(t)
	older := s.connect(t, instance.ID)
	newer := s.connect(t, instance.ID)
	if _, err := io.Copy(io.Discard, older); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		t.Error("the older connection lives on beside the newer one")
	}
	if err := newer.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, newer); !isTimeout(err) {
		t.Errorf("the newer connection ended: %v", err)
	}
	s.delete(t, instance.ID)
}

func (s backendSuite) died() {
	t := s.t
	instance := s.create(t)
	conn := s.connect(t, instance.ID)
	s.Kill(t, instance)
	if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
		t.Error("the connection outlives its guest")
	}
	eventually(t, "the sandbox is not listed as running", func() bool {
		got, _ := s.find(t, instance.ID)
		return !got.Running && got.PID == 0
	})
	if conn, err := s.Backend.OpenGuest(t.Context(), instance.ID); err == nil {
		_ = conn.Close()
		t.Error("the guest of a dead sandbox was opened")
	}
	s.delete(t, instance.ID)
}

func (s backendSuite) manyAtOnce() {
	t := s.t
	const n = 4
	instances := make([]sandbox.Instance, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			instance, err := s.Backend.Create(t.Context(), s.spec())
			if err != nil {
				t.Errorf("create: %v", err)
			}
			instances[i] = instance
		})
	}
	wg.Wait()
	for _, instance := range instances {
		if got, ok := s.find(t, instance.ID); !ok || got != instance {
			t.Errorf("listed as %+v (%t), want %+v", got, ok, instance)
		}
	}
	for _, instance := range instances {
		wg.Go(func() { s.delete(t, instance.ID) })
	}
	wg.Wait()
}

// deleteFromAllSides asks for one delete several times at once. One that comes
// in the way of another may fail, but not all, and it can be repeated.
func (s backendSuite) deleteFromAllSides() {
	t := s.t
	instance := s.create(t)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = s.Backend.Delete(t.Context(), instance.ID) })
	}
	wg.Wait()
	if !slices.Contains(errs, nil) {
		t.Errorf("all deletes failed: %v", errors.Join(errs...))
	}
	s.delete(t, instance.ID)
}

func (s backendSuite) guestOfUnknown() {
	t := s.t
	for _, id := range []sandbox.ID{sandbox.NewID(), "", "cntr_../x"} {
		if conn, err := s.Backend.OpenGuest(t.Context(), id); err == nil {
			_ = conn.Close()
			t.Errorf("the guest of %q was opened", id)
		}
	}
}

func (s backendSuite) deleteCanceled() {
	t := s.t
	instance := s.create(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrBroken)
	_ = s.Backend.Delete(ctx, instance.ID) // may fail, may succeed
	s.delete(t, instance.ID)
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain until %s", what)
		case <-tick.C:
		}
	}
}
