package engine

import (
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
