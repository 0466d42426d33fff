package e2e

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc"
)

func TestOutputIsCut(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		for limit, cut := range map[int]bool{9: true, 10: false, 11: false} {
			body := in(id, "printf 0123456789")
			body["action"].(object)["max_output_length"] = limit
			c := call(t, i, body)
			out := c.Output.Output[0].Stdout
			marker := strings.Contains(out, "chars truncated")
			if c.Results[0].Truncated != cut || marker != cut || !cut && out != "0123456789" || c.Output.MaxOutputLength != int64(limit) {
				t.Errorf("limit %d: got %q, %+v", limit, out, c.Results[0])
			}
			if c.Results[0].StdoutBytes != 10 || stdoutOf(t, i, c.ID, 0) != "0123456789" {
				t.Errorf("limit %d: the stream was cut too", limit)
			}
		}
		for _, bad := range []any{0, -1, "9", 1.5} {
			body := in(id, "touch /mnt/data/ran")
			body["action"].(object)["max_output_length"] = bad
			if status, code, param, _ := refused(t, i, http.MethodPost, "/v1/shell_calls", body); status != 400 || code != "invalid_value" || param != "action.max_output_length" {
				t.Errorf("%v: %d %s %s", bad, status, code, param)
			}
		}
		if got := sh(t, i, id, "ls /mnt/data"); got != "" {
			t.Errorf("a refused command ran: %q", got)
		}
	})
}

func TestEnvironmentAndWorkingDirectory(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		c := call(t, i, with(with(in(id, `printf '%s' "$A"; pwd`), "env", object{"A": "x y\n$HOME'"}), "working_directory", "/usr/lib"))
		if got, want := c.Output.Output[0].Stdout, "x y\n$HOME'/usr/lib\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if got := sh(t, i, id, "pwd"); got != "/mnt/data\n" {
			t.Errorf("the default directory is %q", got)
		}
		for _, dir := range []string{"/no/such/folder", "/etc/passwd", "relative", ""} {
			status, code, param, message := refused(t, i, http.MethodPost, "/v1/shell_calls",
				with(in(id, "touch /mnt/data/ran", "touch /tmp/ran"), "working_directory", dir))
			if status != http.StatusBadRequest || code != "invalid_value" || param != "working_directory" {
				t.Errorf("%q: %d %s %s %s", dir, status, code, param, message)
			}
		}
		if got := sh(t, i, id, "ls /mnt/data; ls /tmp"); got != "" {
			t.Errorf("a refused command ran: %q", got)
		}
	})
}

func TestDeleteAfter(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		auto := object{"type": "container_auto", "delete_after": true}
		c := call(t, i, object{"action": object{"commands": []string{"sleep 300 & echo hi"}}, "environment": auto})
		if c.Output.Output[0].Stdout != "hi\n" {
			t.Errorf("got %+v", c.Output.Output[0])
		}
		eventually(t, "the container is deleted", patience, func() bool { return !exists(t, i, c.ContainerID) })
		// Its record outlives it.
		if again := get[rpc.ShellCall](t, i, "/v1/shell_calls/"+c.ID); again.Output.Output[0].Stdout != "hi\n" {
			t.Errorf("the call is now %+v", again)
		}

		p := begin(t, i, object{"action": object{"commands": []string{"sleep 300"}}, "environment": auto})
		p.leave()
		eventually(t, "the container of a client that left is deleted", patience, func() bool { return !exists(t, i, p.container) })
	})
}

func exists(t *testing.T, i *instance, container string) bool {
	t.Helper()
	status, body, err := i.send(t.Context(), http.MethodGet, "/v1/containers/"+container, nil)
	if err != nil || status != http.StatusOK && status != http.StatusNotFound {
		t.Fatalf("get container: %d %s %v", status, body, err)
	}
	return status == http.StatusOK
}

// TestBackgroundProcesses: they are listed, live on, write on, and end with
// their container.
func TestBackgroundProcesses(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		mark := markOf(t, 2)
		c := call(t, i, in(id, "(sleep 1; echo later; exec sleep "+mark+") & echo now"))
		pids := c.Results[0].BackgroundPIDs
		if c.Output.Output[0].Stdout != "now\n" {
			t.Errorf("got %+v", c.Output.Output[0])
		}
		if i.mode == asRoot && len(pids) == 0 {
			t.Errorf("no background process is listed: %+v", c.Results[0])
		}
		for _, pid := range pids {
			sh(t, i, id, "kill -0 "+itoa(pid))
		}
		eventually(t, "the process sleeps", patience, func() bool { return len(withArgument(mark)) == 1 })
		eventually(t, "its output is kept", patience, func() bool { return stdoutOf(t, i, c.ID, 0) == "now\nlater\n" })
		ask[rpc.Deleted](t, i, http.MethodDelete, "/v1/containers/"+id, nil)
		eventually(t, "the process ends with its container", time.Second, func() bool { return len(withArgument(mark)) == 0 })
	})
}

func TestCancel(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		mark := markOf(t, 3)
		p := begin(t, i, in(id, "echo begun; setsid sleep "+mark+" & sleep "+mark, "true"))
		eventually(t, "both sleep", patience, func() bool { return len(withArgument(mark)) == 2 })
		// The second command is over when its stream is.
		if status, _, err := i.send(t.Context(), http.MethodGet, "/v1/shell_calls/"+p.id+"/commands/1/stdout?follow=true", nil); err != nil || status != http.StatusOK {
			t.Fatalf("follow: %d %v", status, err)
		}
		for range 2 { // it may be asked for again
			ask[rpc.ShellCall](t, i, http.MethodPost, "/v1/shell_calls/"+p.id+"/cancel", nil)
		}
		c, ok := p.result(t)
		if !ok || c.Status != "canceled" || c.Output.Status != "incomplete" {
			t.Fatalf("got %+v", c)
		}
		if out, r := c.Output.Output[0], c.Results[0]; exitCode(out) != "137" || out.Stdout != "begun\n" || r.Reason != "canceled" {
			t.Errorf("got %+v, %+v", out, r)
		}
		if exitCode(c.Output.Output[1]) != "0" || c.Results[1].Reason != "exit" {
			t.Errorf("the command that had ended: %+v", c.Results[1])
		}
		eventually(t, "none is left", time.Second, func() bool { return len(withArgument(mark)) == 0 })
	})
}

func TestClientThatLeaves(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		mark := markOf(t, 4)
		p := begin(t, i, in(id, "sleep "+mark))
		stays := begin(t, i, with(in(id, "sleep 3; echo done"), "background", true))
		p.leave()
		stays.leave()
		eventually(t, "the call is canceled", 3*time.Second, func() bool {
			return get[rpc.ShellCall](t, i, "/v1/shell_calls/"+p.id).Status == "canceled"
		})
		if c := get[rpc.ShellCall](t, i, "/v1/shell_calls/"+p.id); c.Results[0].Reason != "canceled" {
			t.Errorf("got %+v", c.Results[0])
		}
		if left := withArgument(mark); len(left) > 0 {
			t.Errorf("processes left: %v", left)
		}
		eventually(t, "the background call completes", patience, func() bool {
			c := get[rpc.ShellCall](t, i, "/v1/shell_calls/"+stays.id)
			return c.Status == "completed" && c.Output.Output[0].Stdout == "done\n"
		})
	})
}

// TestCreateThatIsCutOff: nothing is left of a container that nobody waited
// for.
func TestCreateThatIsCutOff(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		for _, after := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), after, errors.New("cut off"))
			status, _, err := i.send(ctx, http.MethodPost, "/v1/containers", object{"name": "cut"})
			cancel()
			if err == nil && status == http.StatusOK {
				t.Logf("the create was faster than %s", after)
				list := get[rpc.List[rpc.Container]](t, i, "/v1/containers")
				ask[rpc.Deleted](t, i, http.MethodDelete, "/v1/containers/"+list.FirstID, nil)
			}
		}
		eventually(t, "no container is left", 10*time.Second, func() bool {
			return len(get[rpc.List[rpc.Container]](t, i, "/v1/containers").Data) == 0 &&
				get[rpc.Info](t, i, "/v1/info").Containers == 0
		})
	})
}

// TestCallID: a call id stands for one call, however often it is sent.
func TestCallID(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		body := func() object {
			return with(in(id, "echo x >> /mnt/data/count; sleep 1; cat /mnt/data/count"), "call_id", "call_1")
		}
		p := begin(t, i, body())
		joined := call(t, i, body())
		first, ok := p.result(t)
		later := call(t, i, body())
		if !ok || joined.ID != first.ID || later.ID != first.ID {
			t.Errorf("ids %s, %s, %s", first.ID, joined.ID, later.ID)
		}
		if got := sh(t, i, id, "cat /mnt/data/count"); got != "x\n" || later.Output.Output[0].Stdout != "x\n" {
			t.Errorf("it ran %q", got)
		}
		other := with(in(id, "echo y >> /mnt/data/count"), "call_id", "call_1")
		resp, err := i.open(t.Context(), http.MethodPost, "/v1/shell_calls", other, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusConflict || resp.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("another call under that id: %d %v", resp.StatusCode, resp.Header)
		}
		if got := sh(t, i, id, "cat /mnt/data/count"); got != "x\n" {
			t.Errorf("it ran: %q", got)
		}
	})
}

// TestList follows the pages of both lists.
func TestList(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		var made []string
		for range 3 {
			made = append(made, create(t, i))
		}
		var seen []string
		path := "/v1/containers?limit=2&order=asc"
		for after := ""; ; {
			page := get[rpc.List[rpc.Container]](t, i, path+after)
			for _, c := range page.Data {
				seen = append(seen, c.ID)
			}
			if !page.HasMore {
				break
			}
			after = "&after=" + page.LastID
		}
		if !slices.Equal(seen, made) {
			t.Errorf("listed %v, made %v", seen, made)
		}
		c := call(t, i, in(made[0], "true"))
		list := get[rpc.List[rpc.ShellCall]](t, i, "/v1/shell_calls?container_id="+made[0])
		if len(list.Data) != 1 || list.Data[0].ID != c.ID {
			t.Errorf("listed %+v", list)
		}
	})
}
