package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/sandbox"
)

// The tests named TestEngine... run as root and, by TestRootless, as an
// ordinary user.

func TestEngineLife(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	info := e.Info(t.Context())
	if info.Address != e.opts.containerdSocket() || info.ContainerdVersion == "" {
		t.Errorf("info = %+v", info)
	}
	if state := holderOf(t, e); state.Mode != hostMode() || state.PID == 0 || state.Containerd == 0 {
		t.Errorf("holder state = %+v", state)
	}
	first, second := create(t, e), create(t, e)
	answers(t, e, first.ID)
	answers(t, e, second.ID)
	wantRunning(t, e, first, second)

	if shims := liveShims(t, e); len(shims) != 2 {
		t.Errorf("live shims = %v; want two", shims)
	}
	for _, instance := range []sandbox.Instance{first, second} {
		if err := e.Delete(t.Context(), instance.ID); err != nil {
			t.Fatalf("delete: %v", err)
		}
		nothingLeft(t, e, instance)
	}
	wantRunning(t, e)
}

func TestEngineDeleteIsTolerant(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	if err := e.Delete(t.Context(), sandbox.NewID()); err != nil {
		t.Errorf("delete of nothing: %v", err)
	}
	if err := e.Delete(t.Context(), "cntr_../../x"); err != nil {
		t.Errorf("delete of an invalid id: %v", err)
	}
	if _, err := e.OpenGuest(t.Context(), sandbox.NewID()); !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("open guest of nothing: %v; want not found", err)
	}

	t.Run("hung guest", func(t *testing.T) {
		instance := create(t, e)
		if err := syscall.Kill(instance.PID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := e.Delete(t.Context(), instance.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		nothingLeft(t, e, instance)
	})
	t.Run("dead guest", func(t *testing.T) {
		instance := create(t, e)
		kill9(t, instance.PID)
		eventually(t, "the sandbox is listed as dead", func() bool { return slices.Contains(list(t, e), sandbox.Instance{ID: instance.ID}) })
		if err := e.Delete(t.Context(), instance.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		nothingLeft(t, e, instance)
	})
	t.Run("dead shim", func(t *testing.T) {
		instance := create(t, e)
		kill9(t, parent(t, instance.PID))
		eventually(t, "the sandbox is listed as dead", func() bool { return slices.Contains(list(t, e), sandbox.Instance{ID: instance.ID}) })
		if err := e.Delete(t.Context(), instance.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		// containerd cleans up after the shim by itself, at the same time.
		eventually(t, "nothing is left", func() bool { return len(traces(t, e, instance)) == 0 })
	})
	t.Run("hung shim", func(t *testing.T) {
		instance := create(t, e)
		if err := syscall.Kill(parent(t, instance.PID), syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		e.taskBudget = 200 * time.Millisecond
		if err := e.Delete(t.Context(), instance.ID); err != nil {
			t.Errorf("delete: %v", err)
		}
		eventually(t, "nothing is left", func() bool { return len(traces(t, e, instance)) == 0 })
	})
}

func TestEngineFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"guest exits":         "#!/bin/sh\nexit 3\n",
		"guest never listens": "#!/bin/sh\nwhile :; do sleep 1; done\n",
	} {
		t.Run(name, func(t *testing.T) {
			e := openEngine(t, func(o *Options) {
				o.Libexec = bundleWithInit(t, o.Libexec, script)
				o.GuestTimeout = 500 * time.Millisecond
			})
			id := sandbox.NewID()
			_, err := e.Create(t.Context(), sandbox.BoxSpec{ID: id, Image: sandbox.ImageHost})
			if err == nil || errors.Is(err, sandbox.ErrUnavailable) {
				t.Errorf("create: %v; want an error of the guest", err)
			}
			nothingLeft(t, e, sandbox.Instance{ID: id})
			if shims := liveShims(t, e); len(shims) != 0 {
				t.Errorf("live shims = %v; want none", shims)
			}
		})
	}
}

func TestEngineRefusesUnknownImage(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	_, err := e.Create(t.Context(), sandbox.BoxSpec{ID: sandbox.NewID(), Image: "debian:12"})
	if !errors.Is(err, sandbox.ErrInvalid) {
		t.Errorf("create: %v; want invalid", err)
	}
}

func TestEngineInstancesDoNotMeet(t *testing.T) {
	t.Parallel()
	one, two := openEngine(t), openEngine(t)
	a, b := create(t, one), create(t, two)
	wantRunning(t, one, a)
	wantRunning(t, two, b)
	if err := two.Delete(t.Context(), a.ID); err != nil {
		t.Errorf("delete of the other's sandbox: %v", err)
	}
	answers(t, one, a.ID)
	if uidMap(t, a.PID) == uidMap(t, b.PID) {
		t.Errorf("both sandboxes have the ids %q", uidMap(t, a.PID))
	}
	for _, c := range []struct {
		e    *Engine
		want sandbox.Instance
	}{{one, a}, {two, b}} {
		kill9(t, holderOf(t, c.e).Containerd)
		ready(t, c.e)
		wantRunning(t, c.e, c.want)
	}
}

func TestEngineStopsCleanly(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	instance := create(t, e)
	if err := e.Stop(t.Context()); err != nil {
		t.Fatalf("stop: %v", err)
	}
	if state, err := e.holder.state(t.Context()); err == nil {
		t.Errorf("holder %d answers still", state.PID)
	}
	// Eventually: the engine process takes its time to exit under the race
	// detector.
	eventually(t, "only shims are left", func() bool {
		return !slices.ContainsFunc(processes(t, e.opts.Dirs), func(pid int) bool { return !slices.Contains(liveShims(t, e), pid) })
	})
	if _, err := e.List(t.Context()); !errors.Is(err, sandbox.ErrUnavailable) {
		t.Errorf("list of a stopped engine: %v; want unavailable", err)
	}
	answers(t, e, instance.ID) // a sandbox outlives its engine
	ready(t, e)
	wantRunning(t, e, instance)
}

// wantRunning fails the test unless exactly those sandboxes are listed.
func wantRunning(t *testing.T, e *Engine, want ...sandbox.Instance) {
	t.Helper()
	got := list(t, e)
	byID := func(a, b sandbox.Instance) int { return strings.Compare(string(a.ID), string(b.ID)) }
	slices.SortFunc(got, byID)
	slices.SortFunc(want, byID)
	if !slices.Equal(got, want) {
		t.Errorf("list = %+v; want %+v", got, want)
	}
}

func list(t *testing.T, e *Engine) []sandbox.Instance {
	t.Helper()
	got, err := e.List(t.Context())
	if err != nil {
		t.Fatalf("list: %v", err)
	}
	return got
}

// ready brings the engine back and fails the test if that cannot be.
func ready(t *testing.T, e *Engine) {
	t.Helper()
	if err := e.Ensure(t.Context()); err != nil {
		t.Fatalf("ensure engine: %v\n%s", err, engineLog(e.opts.Dirs))
	}
}

// nothingLeft fails the test if there are traces of a deleted sandbox.
func nothingLeft(t *testing.T, e *Engine, instance sandbox.Instance) {
	t.Helper()
	for _, trace := range traces(t, e, instance) {
		t.Error(trace)
	}
}

// traces returns what is left of a sandbox.
func traces(t *testing.T, e *Engine, instance sandbox.Instance) []string {
	t.Helper()
	var found []string
	key := instance.ID.Key()
	holder := strconv.Itoa(holderOf(t, e).PID)
	if instance.PID != 0 && !gone(instance.PID) {
		found = append(found, fmt.Sprintf("guest %d is alive", instance.PID))
	}
	for _, pid := range processes(t, e.opts.Dirs) {
		if line := cmdline(pid); strings.Contains(line, key) {
			found = append(found, fmt.Sprintf("process %d is left: %s", pid, line))
		}
	}
	for _, pid := range []string{"self", holder} {
		data, err := os.ReadFile("/proc/" + pid + "/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), key) {
			found = append(found, "a mount is left in process "+pid)
		}
	}
	for _, pattern := range []string{
		e.opts.guestDir(key),
		"/proc/" + holder + "/root/run/containerd/*/*/*/" + key,
		"/sys/fs/cgroup/*/" + key, "/sys/fs/cgroup/*/*/" + key, "/sys/fs/cgroup/*/*/*/" + key, "/sys/fs/cgroup/" + key,
	} {
		found = append(found, glob(t, pattern)...)
	}
	listed := list(t, e)
	for _, other := range listed {
		if other.ID == instance.ID {
			found = append(found, fmt.Sprintf("listed: %+v", other))
		}
	}
	snapshots := glob(t, filepath.Join(e.opts.containerdRoot(), "io.containerd.snapshotter.v1.native/snapshots/*"))
	if len(snapshots) > len(listed) {
		found = append(found, fmt.Sprintf("%d sandboxes, but snapshots %v", len(listed), snapshots))
	}
	return found
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// processes returns the processes that have one of the engine's directories on
// their command line.
func processes(t *testing.T, dirs Dirs) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || gone(pid) {
			continue
		}
		if line := cmdline(pid); strings.Contains(line, dirs.Root) || strings.Contains(line, dirs.Run) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func cmdline(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(data), "\x00", " ")
}

// enginePID returns the engine process, the one besides the holder and what it
// started.
func enginePID(t *testing.T, dirs Dirs) int {
	t.Helper()
	for _, pid := range processes(t, dirs) {
		if strings.Contains(cmdline(pid), " engine --root "+dirs.Root) {
			return pid
		}
	}
	t.Fatal("no engine process")
	return 0
}

func parent(t *testing.T, pid int) int {
	t.Helper()
	for line := range strings.Lines(readProc(t, pid, "status")) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			ppid, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatal(err)
			}
			return ppid
		}
	}
	t.Fatalf("process %d has no parent", pid)
	return 0
}

func readProc(t *testing.T, pid int, name string) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func uidMap(t *testing.T, pid int) string {
	t.Helper()
	return readProc(t, pid, "uid_map")
}

// bundleWithInit is a bundle with another PID 1.
func bundleWithInit(t *testing.T, libexec, script string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{binContainerd, binShim, binRunc} {
		if err := os.Symlink(filepath.Join(libexec, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, binInit), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
