package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/sandbox"
)

const (
	// envBundle names the directory with containerd, the shim, runc and
	// shelld-init.
	envBundle = "SHELLD_BUNDLE"
	// envRequire makes a missing prerequisite a failure.
	envRequire = "SHELLD_REQUIRE"
)

// notHere skips the test, or fails it where everything has to be there.
func notHere(t *testing.T, format string, args ...any) {
	t.Helper()
	text := "not here: " + fmt.Sprintf(format, args...)
	if os.Getenv(envRequire) == "1" {
		t.Fatal(text)
	}
	t.Skip(text)
}

func bundle(t *testing.T) string {
	t.Helper()
	dir := os.Getenv(envBundle)
	if dir == "" {
		notHere(t, "%s is not set", envBundle)
	}
	return dir
}

// testDirs makes the directories of a private engine. t.TempDir is too long
// for sockets.
func testDirs(t *testing.T) Dirs {
	t.Helper()
	libexec := bundle(t)
	base, err := os.MkdirTemp("/tmp", "engine-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Errorf("remove test directory: %v", err)
		}
	})
	return Dirs{Root: filepath.Join(base, "root"), Run: filepath.Join(base, "run"), Libexec: libexec}
}

// openEngine starts a private engine, which ends with the test together with
// its sandboxes.
func openEngine(t *testing.T, change ...func(*Options)) *Engine {
	t.Helper()
	opts := Options{Dirs: testDirs(t)}
	for _, f := range change {
		f(&opts)
	}
	return openEngineIn(t, opts)
}

func openEngineIn(t *testing.T, opts Options) *Engine {
	t.Helper()
	e, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatalf("open engine: %v\n%s", err, engineLog(opts.Dirs))
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), 60*time.Second, errors.New("cleaning up took too long"))
		defer cancel()
		if err := errors.Join(removeAll(ctx, e), e.Stop(ctx), e.Close()); err != nil {
			t.Errorf("stop engine: %v", err)
		}
		if t.Failed() {
			t.Logf("engine log:\n%s", engineLog(opts.Dirs))
		}
	})
	return e
}

func removeAll(ctx context.Context, e *Engine) error {
	if err := e.Ensure(ctx); err != nil {
		return err
	}
	list, err := e.List(ctx)
	errs := []error{err}
	for _, instance := range list {
		errs = append(errs, e.Delete(ctx, instance.ID))
	}
	return errors.Join(errs...)
}

func engineLog(dirs Dirs) string {
	var b strings.Builder
	for _, path := range []string{dirs.log(), filepath.Join(dirs.Run, "engine.out"), filepath.Join(dirs.Run, "holder.out")} {
		data, err := os.ReadFile(path)
		fmt.Fprintf(&b, "--- %s (%v)\n%s", path, err, data)
	}
	return b.String()
}

func create(t *testing.T, e *Engine) sandbox.Instance {
	t.Helper()
	instance, err := e.Create(t.Context(), sandbox.BoxSpec{ID: sandbox.NewID(), Image: sandbox.ImageHost})
	if err != nil {
		t.Fatalf("create: %v\n%s", err, engineLog(e.opts.Dirs))
	}
	return instance
}

// holderOf returns what the engine's holder says of itself.
func holderOf(t *testing.T, e *Engine) holderState {
	t.Helper()
	state, err := e.holder.state(t.Context())
	if err != nil {
		t.Fatalf("ask holder: %v", err)
	}
	return state
}

// answers fails the test unless the guest accepts a connection.
func answers(t *testing.T, e *Engine, id sandbox.ID) {
	t.Helper()
	conn, err := e.OpenGuest(t.Context(), id)
	if err != nil {
		t.Fatalf("open guest: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Errorf("close guest connection: %v", err)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain until %s", what)
		case <-tick.C:
		}
	}
}

// kill9 kills a process and waits until it is gone.
func kill9(t *testing.T, pid int) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process to kill: %d", pid)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
	eventually(t, fmt.Sprintf("process %d is gone", pid), func() bool { return gone(pid) })
}

// gone reports whether the process has ended; a zombie has.
func gone(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}
