package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc"
)

// TestForkBomb ends with its time, and the next call answers.
func TestForkBomb(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		bomb := "b() { b | b & }; b; sleep 100"
		if m == rootless && get[rpc.Info](t, i, "/v1/info").Cgroup.Version == 0 {
			// Nothing caps its processes here: a bomb that grows slowly.
			bomb = "b() { sleep 0.2; b & b & }; b & sleep 100"
		}
		within(t, 2*time.Second+3*time.Second, "a call of 2 s", func() {
			c := call(t, i, timeout(in(id, bomb), 2*time.Second))
			if reason := c.Results[0].Reason; reason != "timeout" && reason != "pids" {
				t.Errorf("got %+v", c.Results[0])
			}
		})
		eventually(t, "nothing of it is left", 2*time.Second, func() bool { return len(i.members(t, id)) == 0 })
		within(t, time.Second, "the call after it", func() { sh(t, i, id, "true") })
	})
}

// TestEndlessOutput costs neither memory nor other calls.
func TestEndlessOutput(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		before := rss(t, i.pid())
		body := timeout(in(id, "yes", "yes >&2", "yes & yes >&2"), 2*time.Second)
		body["action"].(object)["max_output_length"] = 4096
		p := begin(t, i, body)
		started := time.Now()
		for range 5 {
			within(t, time.Second, "another call meanwhile", func() { sh(t, i, id, "true") })
		}
		c, ok := p.result(t)
		if took := time.Since(started); took > 4*time.Second {
			t.Errorf("the call took %s", took)
		}
		if !ok {
			t.Fatal("no result")
		}
		for n, out := range c.Output.Output {
			text, _, _ := strings.Cut(out.Stderr, "[shelld]")
			marks := 2 * len(" ... 1234567890123 chars truncated ... ")
			if exitCode(out) != "timeout" || len(out.Stdout)+len(text) > 4096+marks || !c.Results[n].Truncated {
				t.Errorf("command %d: %s, %d and %d characters, %+v", n, exitCode(out), len(out.Stdout), len(out.Stderr), c.Results[n])
			}
		}
		// The spool keeps the head and the tail, and says what is between.
		resp, err := i.open(t.Context(), http.MethodGet, "/v1/shell_calls/"+c.ID+"/commands/0/stdout", nil, http.Header{"Range": {"bytes=0-3"}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if c.Results[0].StdoutBytes > 80<<20 && resp.Header.Get("X-Shelld-Gap") == "" {
			t.Errorf("%d bytes and no gap: %v", c.Results[0].StdoutBytes, resp.Header)
		}
		t.Logf("%d MiB of output; the daemon grew from %d to %d KiB", c.Results[0].StdoutBytes>>20, before, rss(t, i.pid()))
		if grown := rss(t, i.pid()) - before; grown > 32<<10 {
			t.Errorf("the daemon grew by %d KiB", grown)
		}
		within(t, time.Second, "the call after it", func() { sh(t, i, id, "true") })
	})
}

// rss is the resident memory of a process. Unit: KiB.
func rss(t *testing.T, pid int) (kib int) {
	t.Helper()
	for _, line := range lines(readFile(t, fmt.Sprintf("/proc/%d/status", pid))) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kib
}

// TestLongLine is one line of 60 MB, and zero bytes at that.
func TestLongLine(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		c := call(t, i, in(id, "head -c 60000000 /dev/zero", "head -c 60000000 /dev/zero | tr '\\0' 'é'"))
		for n := range c.Results {
			if r := c.Results[n]; r.Reason != "exit" || r.StdoutBytes != 60_000_000 || !r.Truncated {
				t.Errorf("command %d: %+v", n, r)
			}
			if len(c.Output.Output[n].Stdout) > 4*65536 {
				t.Errorf("command %d: %d bytes", n, len(c.Output.Output[n].Stdout))
			}
		}
		within(t, time.Second, "the call after it", func() { sh(t, i, id, "true") })
	})
}

// TestManyCommands: as many as a call may have, and many calls at once.
func TestManyCommands(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		var commands []string
		for n := range 64 {
			commands = append(commands, fmt.Sprintf("echo %d; echo e%d >&2; exit %d", n, n, n))
		}
		c := call(t, i, in(id, commands...))
		for n, out := range c.Output.Output {
			if out.Stdout != fmt.Sprintln(n) || out.Stderr != fmt.Sprintf("e%d\n", n) || exitCode(out) != fmt.Sprint(n) {
				t.Errorf("command %d: %+v", n, out)
			}
		}
		if status, code, param, _ := refused(t, i, http.MethodPost, "/v1/shell_calls", in(id, append(commands, "true")...)); status != http.StatusBadRequest || param != "action.commands" {
			t.Errorf("65 commands: %d %s %s", status, code, param)
		}
		var group sync.WaitGroup
		for n := range 100 {
			group.Go(func() {
				status, answer, err := i.send(t.Context(), http.MethodPost, "/v1/shell_calls", in(id, fmt.Sprintf("echo call %d", n)))
				if err != nil || status != http.StatusOK || !strings.Contains(string(answer), fmt.Sprintf(`"stdout":"call %d\n"`, n)) {
					t.Errorf("call %d: %d %s %v", n, status, answer, err)
				}
			})
		}
		group.Wait()
		// Beyond what may run at once it is said, and no more.
		p := begin(t, i, in(id, slicesOf("sleep 5", 64)...))
		begin(t, i, in(id, slicesOf("sleep 5", 64)...))
		if status, code, _, _ := refused(t, i, http.MethodPost, "/v1/shell_calls", in(id, "true")); status != http.StatusTooManyRequests || code != "too_many_runs" {
			t.Errorf("the 129th command: %d %s", status, code)
		}
		ask[rpc.ShellCall](t, i, http.MethodPost, "/v1/shell_calls/"+p.id+"/cancel", nil)
		p.result(t)
		within(t, time.Second, "the call after it", func() { sh(t, i, id, "true") })
		eventually(t, "descriptors are given back", patience, func() bool {
			return get[rpc.Info](t, i, "/v1/info").Runs == 64
		})
	})
}

func slicesOf(text string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = text
	}
	return list
}

// TestNothingLeaks: after many calls and containers the daemon holds what it
// held before, and so does the guest.
func TestNothingLeaks(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		round := func() {
			for range 30 {
				sh(t, i, id, "true")
			}
			call(t, i, timeout(in(id, "sleep 100 & sleep 100"), 50*time.Millisecond))
			extra := ask[rpc.Container](t, i, http.MethodPost, "/v1/containers", object{"name": "e2e"})
			sh(t, i, extra.ID, "true")
			ask[rpc.Deleted](t, i, http.MethodDelete, "/v1/containers/"+extra.ID, nil)
		}
		round()
		guest := i.guest(t, id)
		before, beforeGuest := descriptors(t, i.pid()), descriptors(t, guest)
		for range 4 {
			round()
		}
		eventually(t, "the daemon's descriptors are as before", 5*time.Second, func() bool { return descriptors(t, i.pid()) <= before })
		eventually(t, "the guest's descriptors are as before", 5*time.Second, func() bool { return descriptors(t, guest) <= beforeGuest })
		if left := i.members(t, id); len(left) != 0 {
			t.Errorf("processes left: %v", left)
		}
		// The cgroups of runs are made ahead, but not without end.
		runs := 0
		for _, dir := range cgroupsOf(i.root) {
			if strings.Contains(dir, "/runs/") {
				runs++
			}
		}
		if runs > 200 {
			t.Errorf("%d cgroups of runs", runs)
		}
	})
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	return len(lines(strings.Join(readDir(t, fmt.Sprintf("/proc/%d/fd", pid)), "\n")))
}

// TestStoppedDaemonBlocksNoService: while the daemon stands still a command
// blocks on its pipe, and loses nothing.
func TestStoppedDaemonLosesNoOutput(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		p := begin(t, i, in(id, "seq 1 2000000"))
		pid := i.pid()
		for range 3 {
			signal(t, pid, syscall.SIGSTOP)
			<-time.After(50 * time.Millisecond)
			signal(t, pid, syscall.SIGCONT)
		}
		c, ok := p.result(t)
		if !ok || c.Results[0].StdoutBytes != 14_888_896 {
			t.Fatalf("got %+v", c.Results)
		}
		out := stdoutOf(t, i, c.ID, 0)
		if n := strings.Count(out, "\n"); n != 2_000_000 || !strings.HasSuffix(out, "\n2000000\n") {
			t.Errorf("%d lines in %d bytes", n, len(out))
		}
	})
}

// TestBusyMachine: when others take all its time the daemon is late, but loses
// nothing. It runs alone, for the other tests' sake.
func TestBusyMachine(t *testing.T) {
	asRoot.need(t)
	for range 16 {
		hog := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
		hog.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := hog.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(hog.Process.Kill(), hog.Wait()) })
	}
	i := startInstance(t, asRoot)
	id := create(t, i)
	var commands []string
	for n := range 64 {
		commands = append(commands, fmt.Sprintf("echo %d; echo e%d >&2", n, n))
	}
	for range 6 {
		for n, out := range call(t, i, in(id, commands...)).Output.Output {
			if out.Stdout != fmt.Sprintln(n) || out.Stderr != fmt.Sprintf("e%d\n", n) {
				t.Errorf("command %d: %q, %q", n, out.Stdout, out.Stderr)
			}
		}
	}
}
