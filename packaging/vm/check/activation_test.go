//go:build vm

package check

import (
	"os/exec"
	"strings"
	"testing"
)

func TestFirstRequestStartsTheUnits(t *testing.T) {
	if state := property(t, daemonUnit, "ActiveState"); state != "inactive" {
		t.Errorf("before any request %s is %s", daemonUnit, state)
	}
	ready(t)
	out, err := exec.CommandContext(t.Context(), "curl", "--silent", "--show-error", "--fail",
		"--unix-socket", socketPath(), "http://localhost/readyz").CombinedOutput()
	if err != nil {
		t.Errorf("curl: %v: %s", err, out)
	}
	for _, unit := range []string{socketUnit, daemonUnit, engineUnit} {
		if state := property(t, unit, "ActiveState"); state != "active" {
			t.Errorf("%s is %s", unit, state)
		}
	}
	for _, unit := range []string{daemonUnit, engineUnit} {
		if n := property(t, unit, "NRestarts"); n != "0" {
			t.Errorf("%s was started again %s times", unit, n)
		}
	}
}

func TestInfo(t *testing.T) {
	ready(t)
	i := info(t)
	if i.Cgroup.Version != 2 || i.Cgroup.Reason != nil {
		t.Errorf("cgroup: %+v", i.Cgroup)
		if i.Cgroup.Reason != nil {
			t.Error(*i.Cgroup.Reason)
		}
	}
	if i.Mode != "rootless" {
		t.Errorf("mode %s", i.Mode)
	}
	if i.Engine.Status != "running" {
		t.Errorf("engine: %+v", i.Engine)
	}
}

func TestSandboxesLiveInAScopeOfTheirOwn(t *testing.T) {
	b := newBox(t, "256m")
	scope := scopeDir(t)
	if !strings.HasPrefix(b.cgroup(t), scope+"/") {
		t.Errorf("the sandbox lives in %s", b.cgroup(t))
	}
	b.guest(t)
	unit := scope[strings.LastIndexByte(scope, '/')+1:]
	for name, want := range map[string]string{"ActiveState": "active", "Delegate": "yes", "Transient": "yes"} {
		if got := property(t, unit, name); got != want {
			t.Errorf("%s of %s is %s", name, unit, got)
		}
	}
}
