//go:build vm

package check

import (
	"net/http"
	"strconv"
	"syscall"
	"testing"

	"github.com/shelld/shelld/rpc"
)

// keeper is a sandbox with a process in it that must both survive.
type keeper struct {
	*box
	guest int
}

func newKeeper(t *testing.T) *keeper {
	t.Helper()
	b := newBox(t, "256m")
	b.output(t, "echo kept >/tmp/kept; setsid sleep 1001 >/dev/null 2>&1 &")
	return &keeper{box: b, guest: b.guest(t)}
}

// kept makes sure that the sandbox is the one it was, and that others can be
// made.
func (k *keeper) kept(t *testing.T) {
	t.Helper()
	ready(t)
	var now rpc.Container
	must(t, http.MethodGet, "/v1/containers/"+k.ID, nil, &now)
	if now.Status != "running" {
		t.Errorf("the sandbox is %s", now.Status)
	}
	if guest := k.box.guest(t); guest != k.guest {
		t.Errorf("process 1 was %d and is %d", k.guest, guest)
	}
	if out := k.output(t, "cat /tmp/kept"); out != "kept\n" {
		t.Errorf("/tmp/kept holds %q", out)
	}
	if !k.populated(t) {
		t.Error("the process in the background is gone")
	}
	newBox(t, "256m").answers(t)
}

// mainPID is the main process of a unit that is active.
func mainPID(t *testing.T, unit string) int {
	t.Helper()
	pid, err := strconv.Atoi(property(t, unit, "MainPID"))
	if err != nil || pid <= 0 {
		t.Fatalf("main process of %s: %d %v", unit, pid, err)
	}
	return pid
}

// replaced returns when the unit is active with another main process.
func replaced(t *testing.T, unit string, old int) {
	t.Helper()
	await(t, unit+" is back", func() bool {
		return property(t, unit, "ActiveState") == "active" && property(t, unit, "MainPID") != strconv.Itoa(old)
	})
}

func TestSandboxOutlivesRestartOfDaemon(t *testing.T) {
	k := newKeeper(t)
	old := mainPID(t, daemonUnit)
	systemctl(t, "restart", daemonUnit)
	replaced(t, daemonUnit, old)
	k.kept(t)
}

func TestSandboxOutlivesKillOfDaemon(t *testing.T) {
	k := newKeeper(t)
	old := mainPID(t, daemonUnit)
	kill(t, old)
	replaced(t, daemonUnit, old)
	k.kept(t)
}

func TestSandboxOutlivesRestartOfEngine(t *testing.T) {
	k := newKeeper(t)
	old := mainPID(t, engineUnit)
	systemctl(t, "restart", engineUnit)
	replaced(t, engineUnit, old)
	k.kept(t)
}

func TestSandboxOutlivesKillOfEngine(t *testing.T) {
	k := newKeeper(t)
	old := mainPID(t, engineUnit)
	kill(t, old)
	replaced(t, engineUnit, old)
	k.kept(t)
}

func TestSandboxOutlivesKillOfEverythingInTheEnginesUnit(t *testing.T) {
	k := newKeeper(t)
	old := mainPID(t, engineUnit)
	// All but the shims, which are what a sandbox hangs on.
	kill(t, append(processes(t, "containerd"), append(processes(t, "shelld", "engine", "holder"), old)...)...)
	replaced(t, engineUnit, old)
	k.kept(t)
}

func kill(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

func TestScopeIsMadeAgain(t *testing.T) {
	ready(t)
	systemctl(t, "stop", scopes(t)[0])
	await(t, "the scope is gone", func() bool { return len(scopes(t)) == 0 })
	b := newBox(t, "256m")
	b.answers(t)
	if names := scopes(t); len(names) != 1 {
		t.Errorf("scopes: %v", names)
	}
	if l := b.Limits; !l.Memory.Enforced || !l.Pids.Enforced {
		t.Errorf("limits: %+v", l)
	}
}
