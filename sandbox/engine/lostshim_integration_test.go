package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A shim of which containerd has lost sight, because it died between starting
// it and noting that down, is ended with its sandbox.
func TestEngineEndsLostShims(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	instance := create(t, e)
	shims := func() []int {
		found, err := e.shims()
		if err != nil {
			t.Fatal(err)
		}
		pids, err := found.candidates()
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	if got := shims(); len(got) != 1 {
		t.Fatalf("shims %v, want one", got)
	}
	holder := holderOf(t, e)
	if err := syscall.Kill(holder.PID, syscall.SIGSTOP); err != nil { // else it is quicker than we are
		t.Fatal(err)
	}
	kill9(t, holder.Containerd)
	note := filepath.Join(fmt.Sprintf("/proc/%d/root/run/containerd", holder.PID),
		"*", "io.containerd.runtime.v2.task", ctrdNamespace, instance.ID.Key(), "bootstrap.json")
	notes, err := filepath.Glob(note)
	if err != nil || len(notes) != 1 {
		t.Errorf("notes %v, %v at %s", notes, err, note)
	}
	for _, note := range notes {
		if err := os.Remove(note); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	if err := syscall.Kill(holder.PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventually(t, "containerd answers again", func() bool { return e.Info(t.Context()).ContainerdVersion != "" })
	if err := e.Delete(t.Context(), instance.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	eventually(t, "its shim has ended", func() bool { return len(shims()) == 0 })
}
