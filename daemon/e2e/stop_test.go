package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc"
)

// TestTermDetaches: SIGTERM ends the daemon and leaves the sandboxes.
func TestTermDetaches(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		sh(t, i, id, "echo kept > /mnt/data/f; sleep 300 & true")
		p := begin(t, i, in(id, "sleep 300"))
		guest := i.guest(t, id)

		within(t, 5*time.Second, "the stop", func() {
			signal(t, i.pid(), syscall.SIGTERM)
			if code, err := i.awaitEnd(patience); err != nil || code != 0 {
				t.Errorf("exit code %d, %v", code, err)
			}
		})
		if _, ok := p.result(t); ok {
			t.Error("a call that ran has a result")
		}
		if _, err := os.Lstat(i.sock); err == nil {
			t.Error("the socket is still there")
		}
		if startTime(guest) == "" {
			t.Error("the sandbox ended with the daemon")
		}
		i.start(t)
		if got := i.guest(t, id); got != guest {
			t.Errorf("process 1 was %d and is %d", guest, got)
		}
		if got := sh(t, i, id, "cat /mnt/data/f"); got != "kept\n" {
			t.Errorf("got %q", got)
		}
		if c := get[rpc.ShellCall](t, i, "/v1/shell_calls/"+p.id); c.Status != "failed" || c.Results[0].Reason != "lost" || c.Results[0].ExitCode != nil {
			t.Errorf("the call that ran is %s %+v", c.Status, c.Results)
		}
	})
}

// TestStopDuringStart: a stop at any moment of a start loses no sandbox.
func TestStopDuringStart(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		id := create(t, i)
		guest := i.guest(t, id)
		if err := i.shutdown(false); err != nil {
			t.Fatal(err)
		}
		for n := range 8 {
			if err := i.spawn(); err != nil {
				t.Fatal(err)
			}
			// From before there is a socket to in the middle of adopting.
			<-time.After(time.Duration(5+n*15) * time.Millisecond)
			signal(t, i.pid(), syscall.SIGTERM)
			if _, err := i.awaitEnd(patience); err != nil {
				t.Fatal(err)
			}
		}
		i.start(t)
		if c := get[rpc.Container](t, i, "/v1/containers/"+id); c.Status != "running" {
			t.Errorf("the container is %s: %s", c.Status, deref(c.StatusReason))
		}
		if got := i.guest(t, id); got != guest {
			t.Errorf("process 1 was %d and is %d", guest, got)
		}
	})
}

// TestShutdown takes all sandboxes along, also while commands run, and leaves
// nothing but records.
func TestShutdown(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		mark := markOf(t, 1)
		var running []*pending
		for range 3 {
			running = append(running, begin(t, i, in(create(t, i), "setsid sleep "+mark+" & echo begun; sleep "+mark)))
		}
		eventually(t, "six sleep", patience, func() bool { return len(withArgument(mark)) == 6 })
		within(t, 10*time.Second, "the shutdown", func() {
			if err := i.shutdown(true); err != nil {
				t.Error(err)
			}
		})
		for _, p := range running {
			if c, ok := p.result(t); ok && (c.Status != "canceled" || c.Output.Output[0].Stdout != "begun\n") {
				t.Errorf("a call that ran is %s, %+v", c.Status, c.Output)
			}
		}
		for _, err := range i.leftovers() {
			t.Error(err)
		}
		if left := withArgument(mark); len(left) > 0 {
			t.Errorf("processes left: %v", left)
		}
		// The records are there for the next.
		i.start(t)
		if c := get[rpc.ShellCall](t, i, "/v1/shell_calls/"+running[0].id); c.Status != "canceled" {
			t.Errorf("the record says %s", c.Status)
		}
		if list := get[rpc.List[rpc.Container]](t, i, "/v1/containers"); len(list.Data) != 0 {
			t.Errorf("containers left: %+v", list.Data)
		}
	})
}

// TestShutdownBeforeReady: it takes the sandboxes along even if the daemon has
// not come to adopt them.
func TestShutdownBeforeReady(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		for range 3 {
			sh(t, i, create(t, i), "sleep 300 >/dev/null 2>&1 & true")
		}
		for _, part := range []struct {
			name string
			find func(*testing.T) int
		}{{name: "nothing"}, {"containerd", i.containerd}} {
			if part.find != nil {
				i.start(t)
				create(t, i)
			}
			if err := i.shutdown(false); err != nil {
				t.Fatal(err)
			}
			if part.find != nil {
				signal(t, part.find(t), syscall.SIGKILL)
			}
			if err := i.spawn(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the daemon listens", patience, func() bool {
				status, _, err := i.send(t.Context(), http.MethodGet, "/healthz", nil)
				return err == nil && status == http.StatusOK
			})
			if err := i.shutdown(true); err != nil {
				t.Errorf("after the end of %s: %v", part.name, err)
			}
			for _, err := range i.leftovers() {
				t.Errorf("after the end of %s: %v", part.name, err)
			}
		}
	})
}

// TestDeletedDataIsGone: what a sandbox has stored does not outlive it.
func TestDeletedDataIsGone(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		name := filepath.Base(base) + "-data-" + string(i.mode)
		sh(t, i, id, "echo x > /mnt/data/"+name)
		stored := func() bool {
			files, err := filepath.Glob(filepath.Join(i.root, "containerd", "*snapshotter*", "snapshots", "*", "mnt", "data", name))
			if err != nil {
				t.Fatal(err)
			}
			return len(files) > 0
		}
		if !stored() {
			t.Fatal("control: the file is not where it should be")
		}
		ask[rpc.Deleted](t, i, http.MethodDelete, "/v1/containers/"+id, nil)
		eventually(t, "the data is gone", 5*time.Second, func() bool { return !stored() })
	})
}

// TestTwoInstances share nothing.
func TestTwoInstances(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		one, two := startInstance(t, m), startInstance(t, m)
		id := create(t, one)
		guest := one.guest(t, id)
		if list := get[rpc.List[rpc.Container]](t, two, "/v1/containers"); len(list.Data) != 0 {
			t.Errorf("the other lists %+v", list.Data)
		}
		if status, code, _, _ := refused(t, two, http.MethodDelete, "/v1/containers/"+id, nil); status != http.StatusNotFound || code != "not_found" {
			t.Errorf("a delete through the other: %d %s", status, code)
		}
		if one.containerd(t) == two.containerd(t) || one.holder(t) == two.holder(t) {
			t.Error("they share an engine")
		}
		create(t, two)
		if err := two.shutdown(true); err != nil {
			t.Error(err)
		}
		for _, err := range two.leftovers() {
			t.Error(err)
		}
		if got := one.guest(t, id); got != guest {
			t.Errorf("process 1 was %d and is %d", guest, got)
		}
		sh(t, one, id, "true")
		for _, p := range processesOf(one.dir) {
			if environ, err := os.ReadFile("/proc/" + itoa(p.pid) + "/environ"); err == nil && strings.Contains(string(environ), two.dir+"/") {
				t.Errorf("%v knows of the other", p)
			}
		}
	})
}
