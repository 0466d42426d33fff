//go:build vm

package check

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/shelld/shelld/rpc"
)

func TestLimitsAreEnforced(t *testing.T) {
	b := newBox(t, "256m")
	const memory = 256 << 20
	if l := b.Limits.Memory; !l.Enforced || l.Value != memory {
		t.Errorf("memory: %+v", l)
	}
	if l := b.Limits.Pids; !l.Enforced || l.Value <= 0 {
		t.Errorf("pids: %+v", l)
	}
	for name, want := range map[string]int64{"memory.max": memory, "pids.max": b.Limits.Pids.Value, "memory.swap.max": 0} {
		if got := read(t, filepath.Join(b.cgroup(t), "runs", name)); got != strconv.FormatInt(want, 10) {
			t.Errorf("%s is %s, not %d", name, got, want)
		}
	}
}

func TestCommandRunsWithoutPrivileges(t *testing.T) {
	b := newBox(t, "256m")
	if id := b.output(t, "id -u; id -g; id -G"); id != "1000\n1000\n1000\n" {
		t.Errorf("id: %q", id)
	}
	status := b.output(t, "cat /proc/self/status")
	for name, want := range map[string]string{
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000", "CapBnd": "0000000000000000",
		"NoNewPrivs": "1", "Seccomp": "2",
	} {
		if !strings.Contains(status, "\n"+name+":\t"+want+"\n") {
			t.Errorf("%s is not %s in\n%s", name, want, status)
		}
	}
	// Its cgroup namespace shows the sandbox as the root.
	if cgroup := b.output(t, "cat /proc/self/cgroup"); !strings.HasPrefix(cgroup, "0::/runs/r") {
		t.Errorf("cgroup: %q", cgroup)
	}
	if out, result := b.call(t, 10_000, "unshare --user true"); result.Reason != "exit" || code(result) == "0" {
		t.Errorf("a user namespace: %s %s %+v", result.Reason, code(result), out)
	}
}

func TestTimeoutEndsWhatEscapes(t *testing.T) {
	b := newBox(t, "256m")
	const command = `
		setsid sleep 1001 &
		(setsid sh -c 'sleep 1002 & sleep 1003' &)
		nohup sh -c 'trap "" HUP TERM INT; while :; do sleep 1004; done' >/dev/null 2>&1 &
		echo started; sleep 1005`
	out, result := b.call(t, 5_000, command)
	if result.Reason != "timeout" || out.Outcome.Type != "timeout" {
		t.Errorf("%s %+v", result.Reason, out.Outcome)
	}
	if out.Stdout != "started\n" {
		t.Errorf("printed %q", out.Stdout)
	}
	if b.populated(t) {
		t.Errorf("processes live on:\n%s", b.output(t, "ps -ef"))
	}
	b.answers(t)
}

func TestMemoryHogIsKilled(t *testing.T) {
	b := newBox(t, "128m")
	guest := b.guest(t)
	out, result := b.call(t, patience.Milliseconds(), "tail /dev/zero; echo survived")
	if strings.Contains(out.Stdout, "survived") || code(result) != "137" {
		t.Errorf("%s %s %+v", result.Reason, code(result), out)
	}
	if n := counter(t, filepath.Join(b.cgroup(t), "runs", "memory.events"), "oom_kill"); n == 0 {
		t.Error("the kernel killed nothing for want of memory")
	}
	if now := b.guest(t); now != guest {
		t.Errorf("process 1 was %d and is %d", guest, now)
	}
	b.answers(t)
}

func TestForkBombIsBounded(t *testing.T) {
	b := newBox(t, "256m")
	limit := int(b.Limits.Pids.Value)
	ended := make(chan rpc.ShellResult, 1)
	go func() {
		_, result := b.call(t, 30_000, `perl -e 'fork while 1'`)
		ended <- result
	}()
	most := 0
	await(t, "the limit is met", func() bool {
		n, err := strconv.Atoi(read(t, filepath.Join(b.cgroup(t), "runs", "pids.current")))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
		return most >= limit
	})
	if most > limit {
		t.Errorf("%d processes, and the limit is %d", most, limit)
	}
	if result := <-ended; result.Reason != "timeout" && result.Reason != "pids" {
		t.Errorf("%s %s", result.Reason, code(result))
	}
	if b.populated(t) {
		t.Error("processes live on")
	}
	b.answers(t)
}
