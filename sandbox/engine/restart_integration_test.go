package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc/socket/flock"
	"github.com/shelld/shelld/sandbox"
)

func TestEngineSurvivesKill(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		kill func(t *testing.T, e *Engine)
	}{
		{"containerd", func(t *testing.T, e *Engine) {
			kill9(t, holderOf(t, e).Containerd)
		}},
		{"containerd three times", func(t *testing.T, e *Engine) {
			for range 3 {
				kill9(t, holderOf(t, e).Containerd)
				ready(t, e)
			}
		}},
		{"holder", func(t *testing.T, e *Engine) {
			kill9(t, holderOf(t, e).PID)
		}},
		{"engine", func(t *testing.T, e *Engine) {
			kill9(t, enginePID(t, e.opts.Dirs))
		}},
		{"engine and holder", func(t *testing.T, e *Engine) {
			kill9(t, enginePID(t, e.opts.Dirs))
			containerd := holderOf(t, e).Containerd
			kill9(t, holderOf(t, e).PID)
			eventually(t, "containerd follows its holder", func() bool { return gone(containerd) })
			if _, err := e.List(t.Context()); !errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("list without an engine: %v; want unavailable", err)
			}
		}},
		{"engine, holder, twice", func(t *testing.T, e *Engine) {
			for range 2 {
				kill9(t, enginePID(t, e.opts.Dirs))
				kill9(t, holderOf(t, e).PID)
				ready(t, e)
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			e := openEngine(t)
			before := []sandbox.Instance{create(t, e), create(t, e)}
			test.kill(t, e)
			killed := time.Now()
			for _, instance := range before {
				answers(t, e, instance.ID) // whatever else is dead
			}
			ready(t, e)
			eventually(t, "all sandboxes are listed as running", func() bool {
				got, err := e.List(t.Context())
				return err == nil && len(got) == 2 && slices.Contains(got, before[0]) && slices.Contains(got, before[1])
			})
			t.Logf("all back %v after the kill", time.Since(killed).Round(time.Millisecond))
			after := createSoon(t, e)
			wantRunning(t, e, append(slices.Clone(before), after)...)
			for _, instance := range append(before, after) {
				if err := e.Delete(t.Context(), instance.ID); err != nil {
					t.Errorf("delete: %v", err)
				}
				nothingLeft(t, e, instance)
			}
		})
	}
}

// createSoon creates a sandbox with an engine that is just coming back.
func createSoon(t *testing.T, e *Engine) sandbox.Instance {
	t.Helper()
	var instance sandbox.Instance
	eventually(t, "a sandbox can be created", func() bool {
		var err error
		instance, err = e.Create(t.Context(), sandbox.BoxSpec{ID: sandbox.NewID(), Image: sandbox.ImageHost})
		if err != nil && !errors.Is(err, sandbox.ErrUnavailable) {
			t.Fatalf("create: %v", err)
		}
		return err == nil
	})
	return instance
}

// A second daemon finds the engine of the first.
func TestEngineIsFoundAgain(t *testing.T) {
	t.Parallel()
	first := openEngine(t)
	instance := create(t, first)
	holder := holderOf(t, first).PID
	second, err := Open(t.Context(), first.opts)
	if err != nil {
		t.Fatalf("open again: %v", err)
	}
	if got := holderOf(t, second).PID; got != holder {
		t.Errorf("the second found holder %d; want %d", got, holder)
	}
	wantRunning(t, second, instance)
	answers(t, second, instance.ID)
	if err := Run(t.Context(), HostOptions{Dirs: first.opts.Dirs}); !errors.Is(err, flock.ErrHeld) {
		t.Errorf("second engine process: %v; want %v", err, flock.ErrHeld)
	}
	elsewhere := first.opts
	elsewhere.Run = filepath.Join(filepath.Dir(first.opts.Run), "run2")
	_, err = Open(t.Context(), elsewhere)
	checkRefusal(t, hostMode(), err, "another engine uses "+first.opts.Root)
	// The new pool knows the old sandbox's ids.
	other := create(t, second)
	if uidMap(t, instance.PID) == uidMap(t, other.PID) {
		t.Error("two sandboxes share their ids")
	}
	if err := second.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// A containerd that does not run is reported with the place of its log, and
// used as soon as it runs.
func TestEngineWaitsForContainerd(t *testing.T) {
	t.Parallel()
	opts := Options{Dirs: testDirs(t), StartTimeout: time.Second}
	whole := opts.Libexec
	opts.Libexec = bundleWithInit(t, whole, "")
	broken := filepath.Join(opts.Libexec, binContainerd)
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho it is broken >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), opts)
	var refusal *sandbox.Error
	if !errors.As(err, &refusal) || refusal.Code != sandbox.CodeEngineUnavailable || !strings.Contains(refusal.Message, opts.log()) {
		t.Errorf("open: %v; want unavailable and the log named", err)
	}
	// Under load the holder may not even have tried yet.
	eventually(t, "containerd's output is in the log", func() bool {
		return strings.Contains(engineLog(opts.Dirs), "it is broken")
	})
	temp := broken + ".new"
	if err := os.Symlink(filepath.Join(whole, binContainerd), temp); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, broken); err != nil {
		t.Fatal(err)
	}
	opts.StartTimeout = 0
	openEngineIn(t, opts)
}
