package e2e

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc"
)

// adoption is how soon after its start a daemon has taken over the sandboxes.
const adoption = 2 * time.Second

// TestDaemonIsKilled: kill -9 loses no sandbox, no background process and no
// output, and invents no result.
func TestDaemonIsKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		mark := markOf(t, 1)
		sh(t, i, id, "echo kept > /mnt/data/f")
		// A service that writes more than a pipe holds, all the time.
		service := call(t, i, in(id, `(n=0; while :; do n=$((n+1)); printf '%01000d\n' $n; echo $n > /mnt/data/n; done) & echo up`))
		ended := call(t, i, in(id, "echo before; exit 7"))
		p := begin(t, i, in(id, "echo begun; touch /mnt/data/begun; sleep "+mark))
		eventually(t, "it sleeps", patience, func() bool { return len(withArgument(mark)) > 0 })
		guest := i.guest(t, id)

		i.kill(t)
		if _, ok := p.result(t); ok {
			t.Error("a call has a result though its daemon was killed")
		}
		if startTime(guest) == "" {
			t.Error("the sandbox ended with the daemon")
		}
		within(t, adoption, "the restart", func() { i.start(t) })

		if c := get[rpc.Container](t, i, "/v1/containers/"+id); c.Status != "running" {
			t.Errorf("the container is %s: %v", c.Status, deref(c.StatusReason))
		}
		if got := i.guest(t, id); got != guest {
			t.Errorf("process 1 was %d and is %d", guest, got)
		}
		if got := sh(t, i, id, "cat /mnt/data/f /mnt/data/begun"); got != "kept\n" {
			t.Errorf("the next command printed %q", got)
		}
		lost := get[rpc.ShellCall](t, i, "/v1/shell_calls/"+p.id)
		if lost.Status != "failed" || lost.Output == nil || lost.Output.Status != "incomplete" {
			t.Fatalf("the call that ran is %+v", lost)
		}
		if r := lost.Results[0]; r.Reason != "lost" || r.ExitCode != nil || r.Signal != nil {
			t.Errorf("its result is %+v", r)
		}
		if got := exitCode(lost.Output.Output[0]); got != "-1" {
			t.Errorf("its exit code is %s", got)
		}
		if !strings.Contains(lost.Output.Output[0].Stderr, "[shelld]") {
			t.Errorf("its stderr %q says nothing", lost.Output.Output[0].Stderr)
		}
		eventually(t, "the command that ran is gone", time.Second, func() bool { return len(withArgument(mark)) == 0 })
		if c := get[rpc.ShellCall](t, i, "/v1/shell_calls/"+ended.ID); exitCode(c.Output.Output[0]) != "7" || c.Output.Output[0].Stdout != "before\n" {
			t.Errorf("the call that had ended is now %+v", c.Output)
		}
		// The service must not stand still on a full pipe.
		before := sh(t, i, id, "cat /mnt/data/n")
		eventually(t, "the service goes on", patience, func() bool { return sh(t, i, id, "cat /mnt/data/n") != before })
		if out := stdoutOf(t, i, service.ID, 0); !strings.HasPrefix(out, "up\n") && !strings.HasPrefix(out, "0000") {
			t.Errorf("its output begins with %q", out[:min(len(out), 20)])
		}
	})
}

// TestDaemonIsKilledOften restarts a daemon that is killed as soon as it is
// ready, while commands run.
func TestDaemonIsKilledOften(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		one, two := create(t, i), create(t, i)
		for range 5 {
			begin(t, i, in(one, "while :; do echo x; sleep 0.01; done"))
			i.kill(t)
			within(t, adoption, "the restart", func() { i.start(t) })
		}
		for _, id := range []string{one, two} {
			if got := sh(t, i, id, "echo works"); got != "works\n" {
				t.Errorf("got %q", got)
			}
			eventually(t, "nothing of lost calls runs", time.Second, func() bool { return len(i.members(t, id)) == 0 })
		}
	})
}

// TestEnginePartsAreKilled: commands go on while parts of the engine are away,
// and creates work again by themselves.
func TestEnginePartsAreKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		guest := i.guest(t, id)
		for _, part := range []struct {
			name string
			find func(*testing.T) int
		}{
			{"containerd", i.containerd},
			{"the holder", i.holder},
			{"the engine process", i.engine},
			{"the holder without it", i.holder}, // now up to the daemon
		} {
			pid := part.find(t)
			started := time.Now()
			signal(t, pid, syscall.SIGKILL)
			if got := sh(t, i, id, "echo works"); got != "works\n" {
				t.Errorf("while %s is away: %q", part.name, got)
			}
			// A create may be told to come again, but not for long, and not to
			// do anything else.
			createAfter(t, i)
			took := time.Since(started)
			t.Logf("%s: works again after %s", part.name, took.Round(time.Millisecond))
			if took > 5*time.Second {
				t.Errorf("%s: a create worked only after %s", part.name, took)
			}
			eventually(t, "the engine is back", patience, func() bool {
				return get[rpc.Info](t, i, "/v1/info").Engine.Status == "running"
			})
			if got := i.guest(t, id); got != guest {
				t.Errorf("after the end of %s process 1 is %d, was %d", part.name, got, guest)
			}
		}
		if err := i.ready(); err != nil {
			t.Error(err)
		}
		list := get[rpc.List[rpc.Container]](t, i, "/v1/containers").Data
		eventually(t, "creates that failed count no more", patience, func() bool {
			return get[rpc.Info](t, i, "/v1/info").Containers == len(list)
		})
		for _, c := range list {
			if c.Status != "running" {
				t.Errorf("container %s is %s: %s", c.ID, c.Status, deref(c.StatusReason))
			}
			if got := sh(t, i, c.ID, "echo works"); got != "works\n" {
				t.Errorf("%s: %q", c.ID, got)
			}
		}
	})
}

// createAfter makes a container while a part of the engine is away: it may be
// told to come again, and does so when it is told to.
func createAfter(t *testing.T, i *instance) {
	t.Helper()
	for range 100 {
		resp, err := i.open(t.Context(), http.MethodPost, "/v1/containers", object{"name": "after"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			return
		}
		wait, err2 := strconv.Atoi(resp.Header.Get("Retry-After-Ms"))
		if err := errors.Join(err, err2); err != nil || resp.StatusCode != http.StatusServiceUnavailable {
			t.Fatalf("create: %d %s %v", resp.StatusCode, text, err)
		}
		<-time.After(time.Duration(wait) * time.Millisecond)
	}
	t.Fatal("no container can be made")
}

// TestEverythingButSandboxesIsKilled is a fresh start over live sandboxes.
func TestEverythingButSandboxesIsKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		sh(t, i, id, "echo kept > /mnt/data/f")
		engine, holder := i.engine(t), i.holder(t)
		i.kill(t)
		signal(t, engine, syscall.SIGKILL)
		signal(t, holder, syscall.SIGKILL)
		within(t, 5*time.Second, "the start", func() { i.start(t) })
		if got := sh(t, i, id, "cat /mnt/data/f"); got != "kept\n" {
			t.Errorf("got %q", got)
		}
		if got := sh(t, i, create(t, i), "echo new"); got != "new\n" {
			t.Errorf("got %q", got)
		}
	})
}

// TestSandboxIsKilled: a container whose shim or process 1 dies fails with a
// reason, soon, and nothing else is touched.
func TestSandboxIsKilled(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		other := create(t, i)
		stays := begin(t, i, in(other, "sleep 2; echo done"))
		for name, victim := range map[string]func(*testing.T, string) int{"the shim": i.shim, "process 1": i.guest} {
			id := create(t, i)
			mark := markOf(t, len(name)%10)
			p := begin(t, i, in(id, "echo begun; setsid sleep "+mark+" & sleep "+mark))
			eventually(t, "they sleep", patience, func() bool { return len(withArgument(mark)) == 2 })
			started := time.Now()
			signal(t, victim(t, id), syscall.SIGKILL)
			c, ok := p.result(t)
			if took := time.Since(started); took > 5*time.Second {
				t.Errorf("%s: the call ended after %s", name, took)
			}
			if !ok || c.Status != "failed" || c.Results[0].Reason != "lost" || exitCode(c.Output.Output[0]) != "-1" || c.Output.Output[0].Stdout != "begun\n" {
				t.Errorf("%s: the call is %+v, %+v", name, c.Results, c.Output)
			}
			eventually(t, "the container has failed", 5*time.Second-time.Since(started), func() bool {
				c := get[rpc.Container](t, i, "/v1/containers/"+id)
				return c.Status == "failed" && deref(c.StatusReason) != ""
			})
			t.Logf("%s: failed after %s: %s", name, time.Since(started).Round(time.Millisecond), deref(get[rpc.Container](t, i, "/v1/containers/"+id).StatusReason))
			if status, code, _, message := refused(t, i, http.MethodPost, "/v1/shell_calls", in(id, "true")); status != http.StatusBadRequest || code != "container_failed" {
				t.Errorf("%s: the next call: %d %s %s", name, status, code, message)
			}
			eventually(t, "its processes are gone", 5*time.Second, func() bool { return len(withArgument(mark)) == 0 })
			if got := sh(t, i, create(t, i), "echo new"); got != "new\n" {
				t.Errorf("%s: the next container: %q", name, got)
			}
			ask[rpc.Deleted](t, i, http.MethodDelete, "/v1/containers/"+id, nil)
		}
		if c, ok := stays.result(t); !ok || c.Output.Output[0].Stdout != "done\n" {
			t.Errorf("the other container's call: %+v", c)
		}
		sh(t, i, other, "true")
	})
}

// TestSandboxEndsWhileDaemonIsAway: the next daemon says so.
func TestSandboxEndsWhileDaemonIsAway(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		lives, dies := create(t, i), create(t, i)
		guest := i.guest(t, dies)
		i.kill(t)
		signal(t, guest, syscall.SIGKILL)
		i.start(t)
		if c := get[rpc.Container](t, i, "/v1/containers/"+dies); c.Status != "failed" || deref(c.StatusReason) == "" {
			t.Errorf("it is %s: %q", c.Status, deref(c.StatusReason))
		}
		sh(t, i, lives, "true")
	})
}

// TestGuestThatHangs: a sandbox whose process 1 is stopped is given up when a
// command cannot be ended.
func TestGuestThatHangs(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		p := begin(t, i, timeout(in(id, "sleep 300"), time.Second))
		guest := i.guest(t, id)
		signal(t, guest, syscall.SIGSTOP)
		t.Cleanup(func() { _ = syscall.Kill(guest, syscall.SIGCONT) }) // it is gone when all is well
		c, ok := p.result(t)
		if !ok || c.Results[0].Reason == "exit" {
			t.Errorf("the call is %+v", c.Results)
		}
		t.Logf("reason %s", c.Results[0].Reason)
		eventually(t, "the container has failed", patience, func() bool {
			return get[rpc.Container](t, i, "/v1/containers/"+id).Status == "failed"
		})
		eventually(t, "process 1 is gone", patience, func() bool { return startTime(guest) == "" })
		if got := sh(t, i, create(t, i), "echo new"); got != "new\n" {
			t.Errorf("the next container: %q", got)
		}
	})
}
