package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A containerd that hangs does not hang those who ask about it.
func TestEngineInfoOfHungContainerd(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	pid := holderOf(t, e).Containerd
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every thread of containerd is stopped", func() bool {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			stat, err := os.ReadFile(task)
			if err != nil || !strings.Contains(string(stat), ") T ") {
				return false
			}
		}
		return len(tasks) > 0
	})
	begin := time.Now()
	info := e.Info(t.Context())
	took := time.Since(begin)
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if took > 5*infoBudget || info.ContainerdVersion != "" || info.Address != e.address() {
		t.Errorf("info = %+v after %v", info, took)
	}
	if info := e.Info(t.Context()); info.ContainerdVersion == "" {
		t.Errorf("info = %+v once it goes on", info)
	}
}
