package server

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

func TestContainers(t *testing.T) {
	t.Parallel()
	a := ready(t)
	var c rpc.Container
	a.post("/v1/containers", `{
		"name": "mine", "memory_limit": "256m", "image": "host", "expires_after": {"anchor": "last_active_at", "minutes": 5},
		"network_policy": {"type": "disabled"}, "env": {"A": "b"}, "labels": {"l": "m"}, "file_ids": [], "skills": null,
		"an_upstream_field_of_tomorrow": {"x": 1}, "NAME": "not mine"}`, &c)
	if c.Name != "mine" || c.MemoryLimit != "256m" || c.Limits.Memory.Value != 256<<20 || c.ExpiresAfter.Minutes != 5 ||
		c.Status != "running" || c.Labels["l"] != "m" || c.Auto || c.StatusReason != nil {
		t.Errorf("created %+v", c)
	}
	var got rpc.Container
	a.get("/v1/containers/"+c.ID, &got)
	if got.ID != c.ID || got.Name != c.Name {
		t.Errorf("retrieved %+v", got)
	}
	other := a.container()
	var list rpc.List[rpc.Container]
	a.get("/v1/containers?limit=1&order=asc", &list)
	if len(list.Data) != 1 || list.Data[0].ID != c.ID || !list.HasMore || list.FirstID != c.ID || list.LastID != c.ID {
		t.Errorf("first page %+v", list)
	}
	a.get("/v1/containers?limit=1&order=asc&after="+c.ID, &list)
	if len(list.Data) != 1 || list.Data[0].ID != other.ID || list.HasMore {
		t.Errorf("second page %+v", list)
	}
	a.get("/v1/containers?name=none", &list)
	if list.Data == nil || len(list.Data) != 0 {
		t.Errorf("list by a name that none has: %+v, want an empty array", list)
	}
	var deleted rpc.Deleted
	a.call(request{method: "DELETE", path: "/v1/containers/" + c.ID}, &deleted)
	if deleted.ID != c.ID || !deleted.Deleted {
		t.Errorf("delete answers %+v", deleted)
	}
	a.send(request{method: "DELETE", path: "/v1/containers/" + c.ID}).refused(404, "not_found", "")
}

func TestShellCall(t *testing.T) {
	t.Parallel()
	a := ready(t)
	c := a.container()
	call := a.shellCall(c.ID, "out hello; err oh", "exit 3", "out x; leave")
	if call.Status != "completed" || call.ContainerID != c.ID || call.CompletedAt == nil || call.Output == nil || call.Output.Status != "completed" {
		t.Fatalf("call %+v", call)
	}
	if got := call.Output.Output[0]; got.Stdout != "hello" || got.Stderr != "oh" || got.Outcome.Type != "exit" || *got.Outcome.ExitCode != 0 {
		t.Errorf("output %+v", got)
	}
	if got := call.Results[1]; got.CommandIndex != 1 || got.Reason != "exit" || *got.ExitCode != 3 || got.Note != nil {
		t.Errorf("result %+v", got)
	}
	if got := call.Results[2].BackgroundPIDs; len(got) != 1 {
		t.Errorf("background processes %v", got)
	}
	var got rpc.ShellCall
	a.get("/v1/shell_calls/"+call.ID, &got)
	if got.ID != call.ID || got.Status != "completed" || len(got.Results) != 3 {
		t.Errorf("retrieved %+v", got)
	}
	// The call may be given back as it came from upstream.
	a.post("/v1/shell_calls", `{"type":"shell_call","id":"sh_1","status":"completed","caller":null,"created_by":"x",
		"call_id":"call_1","action":{"commands":["out up"],"timeout_ms":null,"max_output_length":null},"environment":null}`, &got)
	if got.CallID != "call_1" || got.Output.CallID != "call_1" || *got.Action.TimeoutMS != 60_000 || *got.Action.MaxOutputLength != 65536 {
		t.Errorf("upstream's item: %+v", got)
	}
	var list rpc.List[rpc.ShellCall]
	a.get("/v1/shell_calls?container_id="+c.ID+"&status=completed&limit=100", &list)
	if len(list.Data) != 1 || list.Data[0].ID != call.ID {
		t.Errorf("list %+v", list)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	a := ready(t)
	var call rpc.ShellCall
	a.post("/v1/shell_calls", `{"action":{"commands":["out x; hang","lost"],"timeout_ms":1},"environment":{"type":"local"}}`, &call)
	if call.Status != "failed" || call.Output.Status != "incomplete" {
		t.Errorf("call %s with output %s", call.Status, call.Output.Status)
	}
	if got := call.Output.Output[0].Outcome; got.Type != "timeout" || got.ExitCode != nil {
		t.Errorf("outcome of a timeout %+v", got)
	}
	if got := call.Results[0]; got.Reason != "timeout" || *got.ExitCode != 137 || got.Signal == nil || *got.Signal != "KILL" {
		t.Errorf("result of a timeout %+v", got)
	}
	if got := call.Output.Output[1].Outcome; got.Type != "exit" || *got.ExitCode != -1 {
		t.Errorf("outcome of a lost command %+v", got)
	}
	if got := call.Results[1]; got.Reason != "lost" || got.ExitCode != nil || got.Note == nil {
		t.Errorf("result of a lost command %+v, want no code", got)
	}
	for i, out := range call.Output.Output {
		lines := strings.Split(strings.TrimSuffix(out.Stderr, "\n"), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, "[shelld] ") || len(last) > 400 {
			t.Errorf("stderr of command %d ends with %q", i, last)
		}
	}
}

func TestClamped(t *testing.T) {
	t.Parallel()
	a := ready(t)
	var call rpc.ShellCall
	a.post("/v1/shell_calls", `{"action":{"commands":["exit 0"],"timeout_ms":9223372036854775807,"max_output_length":9223372036854775807}}`, &call)
	if *call.Action.TimeoutMS != 3_600_000 || *call.Action.MaxOutputLength != 1<<20 || call.Output.MaxOutputLength != 1<<20 {
		t.Errorf("effective values %+v, %d", call.Action, call.Output.MaxOutputLength)
	}
}

func TestBackgroundAndCancel(t *testing.T) {
	t.Parallel()
	a := ready(t)
	var call rpc.ShellCall
	a.post("/v1/shell_calls", callBody("", `,"background":true,"call_id":"bg"`, "out x; hang"), &call)
	if call.Status != "in_progress" || call.Output != nil || call.CompletedAt != nil || len(call.Results) != 0 {
		t.Errorf("background call %+v", call)
	}
	var list rpc.List[rpc.ShellCall]
	a.get("/v1/shell_calls?status=in_progress", &list)
	if len(list.Data) != 1 || list.Data[0].ID != call.ID {
		t.Errorf("list %+v", list)
	}
	a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody("", `,"call_id":"bg"`, "out y")}).
		refused(409, "call_id_conflict", "call_id")
	for range 2 {
		a.call(request{method: "POST", path: "/v1/shell_calls/" + call.ID + "/cancel"}, &call)
		if call.Status != "canceled" || call.Output.Status != "incomplete" || call.Results[0].Reason != "canceled" {
			t.Errorf("canceled call %+v", call)
		}
	}
}

func TestDeleteAfter(t *testing.T) {
	t.Parallel()
	a := ready(t)
	var call rpc.ShellCall
	a.post("/v1/shell_calls", `{"action":{"commands":["out x"]},"environment":{"type":"container_auto","delete_after":true,"name":"n","memory_limit":"64m"}}`, &call)
	eventually(t, "the container is deleted", func() bool {
		return a.send(request{method: "GET", path: "/v1/containers/" + call.ContainerID}).status == http.StatusNotFound
	})
}

func TestAnnounce(t *testing.T) {
	t.Parallel()
	a := ready(t)
	c := a.container()
	got := a.call(request{
		method: "POST", path: "/v1/shell_calls", body: callBody(c.ID, "", "out x; sleep 50ms"),
		header: http.Header{"X-Shelld-Announce": {"1"}},
	}, nil)
	if got.header.Get("X-Shelld-Container") != c.ID || !sandbox.CallID(got.header.Get("X-Shelld-Call")).Valid() {
		t.Errorf("announced %v", got.header)
	}
	// Without a result the answer is broken off.
	a.world.Store.On(sandboxtest.OpPutCall, nil)
	ctx := t.Context()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/v1/shell_calls", strings.NewReader(callBody(c.ID, "", "hang")))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Shelld-Announce", "1")
	resp, err := a.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it is only read
	stopped := make(chan error)
	go func() { stopped <- a.manager.DeleteAll(ctx) }()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), `"canceled"`) {
		t.Errorf("answer of a canceled call: %s, %v", body, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestOutput(t *testing.T) {
	t.Parallel()
	a := ready(t)
	call := a.shellCall("", "out 0123456789; err oops")
	path := streamPath(call.ID, 0, "stdout")
	whole := a.call(request{method: "GET", path: path}, nil)
	if string(whole.body) != "0123456789" || whole.header.Get("Content-Length") != "10" || whole.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("whole stream %q, %v", whole.body, whole.header)
	}
	if got := a.call(request{method: "GET", path: streamPath(call.ID, 0, "stderr")}, nil); string(got.body) != "oops" {
		t.Errorf("stderr %q", got.body)
	}
	if got := a.call(request{method: "GET", path: path + "?follow=true"}, nil); string(got.body) != "0123456789" {
		t.Errorf("followed %q", got.body)
	}
	for text, want := range map[string]struct{ body, contentRange string }{
		"bytes=2-4":                  {"234", "bytes 2-4/10"},
		"bytes=8-":                   {"89", "bytes 8-9/10"},
		"bytes=8-99999999999":        {"89", "bytes 8-9/10"},
		"bytes=-3":                   {"789", "bytes 7-9/10"},
		"bytes=-99":                  {"0123456789", "bytes 0-9/10"},
		"bytes=0-0":                  {"0", "bytes 0-0/10"},
		"bytes=-9223372036854775807": {"0123456789", "bytes 0-9/10"},
	} {
		got := a.send(request{method: "GET", path: path, header: http.Header{"Range": {text}}})
		if got.status != http.StatusPartialContent || string(got.body) != want.body || got.header.Get("Content-Range") != want.contentRange {
			t.Errorf("range %s: %d %q, %s", text, got.status, got.body, got.header.Get("Content-Range"))
		}
	}
	for _, text := range []string{
		"", "bytes", "bytes=", "bytes=-", "bytes=-0", "bytes=10-", "bytes=10-11", "bytes=5-4", "bytes=a-b", "bytes=1-2,4-5", "bytes=--5",
		"bytes= 1-2", "bytes=+1-2", "bytes=0x1-2", "items=1-2", "bytes=99999999999999999999-", "bytes=1.0-2", strings.Repeat("9", 5000),
	} {
		if text == "" {
			continue // no range
		}
		got := a.send(request{method: "GET", path: path, header: http.Header{"Range": {text}}})
		got.refused(416, "invalid_value", "Range")
		if got.header.Get("Content-Range") != "bytes */10" {
			t.Errorf("range %s: Content-Range %q", text, got.header.Get("Content-Range"))
		}
	}
}

func TestOutputGap(t *testing.T) {
	t.Parallel()
	a := ready(t)
	call := a.shellCall("", "out 0123456789; gap 3 6")
	path := streamPath(call.ID, 0, "stdout")
	got := a.call(request{method: "GET", path: path}, nil)
	if string(got.body) != "0126789" || got.header.Get("X-Shelld-Gap") != "3-6" {
		t.Errorf("stream with a gap %q, %q", got.body, got.header.Get("X-Shelld-Gap"))
	}
	for text, ok := range map[string]bool{"bytes=0-2": true, "bytes=6-9": true, "bytes=2-3": false, "bytes=5-6": false, "bytes=3-5": false, "bytes=0-": false, "bytes=-5": false} {
		got := a.send(request{method: "GET", path: path, header: http.Header{"Range": {text}}})
		if ok && got.status != http.StatusPartialContent {
			t.Errorf("range %s beside the gap: %d", text, got.status)
		} else if !ok {
			got.refused(416, "invalid_value", "Range")
		}
	}
}

// A follower gets each piece when it comes.
func TestFollow(t *testing.T) {
	t.Parallel()
	a := ready(t)
	var call rpc.ShellCall
	a.post("/v1/shell_calls", callBody("", `,"background":true,"stdin":"stream"`, "out first; cat"), &call)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+streamPath(call.ID, 0, "stdout")+"?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it is only read
	piece := make([]byte, 5)
	if _, err := io.ReadFull(resp.Body, piece); err != nil || string(piece) != "first" {
		t.Errorf("first piece %q, %v", piece, err)
	}
	var written rpc.StdinWritten
	a.call(request{
		method: "PUT", path: streamPath(call.ID, 0, "stdin"), body: "second",
		header: http.Header{"Content-Type": {"application/octet-stream"}},
	}, &written)
	if written.Bytes != 6 {
		t.Errorf("%d bytes written, want 6", written.Bytes)
	}
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "second" {
		t.Errorf("the rest %q, %v", rest, err)
	}
	a.send(request{method: "PUT", path: streamPath(call.ID, 0, "stdin"), body: "x"}).refused(409, "in_use", "")
}

// Standard input may come slowly: the budget of bodies is not for it.
func TestSlowStdin(t *testing.T) {
	t.Parallel()
	a := impatient(t)
	var call rpc.ShellCall
	a.post("/v1/shell_calls", callBody("", `,"background":true,"stdin":"stream"`, "cat"), &call)
	reader, writer := io.Pipe()
	go func() {
		for range 3 {
			<-time.After(testBodyBudget / 2)
			_, _ = writer.Write([]byte("x"))
		}
		_ = writer.Close()
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, a.url+streamPath(call.ID, 0, "stdin"), reader)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() // it is only read
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != `{"bytes":3}` {
		t.Errorf("answer %s, %v", body, err)
	}
}

// Who waits for a call longer than a body may take is not taken for silent.
func TestWaitLongerThanBudget(t *testing.T) {
	t.Parallel()
	a := impatient(t)
	call := a.shellCall("", "sleep "+strconv.FormatInt((2*testBodyBudget).Milliseconds(), 10)+"ms; out done")
	if call.Status != "completed" || call.Output.Output[0].Stdout != "done" {
		t.Errorf("call %+v", call)
	}
}

func TestDaemon(t *testing.T) {
	t.Parallel()
	a := ready(t)
	a.container()
	var info rpc.Info
	a.get("/v1/info", &info)
	if !info.Ready || info.NotReady != nil || info.Containers != 1 || info.Object != "info" {
		t.Errorf("info %+v", info)
	}
	a.get("/healthz", nil)
	a.get("/readyz", nil)
	if got := a.call(request{method: "GET", path: "/openapi.yaml"}, nil); string(got.body) != string(rpc.OpenAPI) {
		t.Error("another document is served")
	}
	for body, want := range map[string]bool{"": false, "{}": false, `{"sandboxes":true}`: true} {
		a.call(request{method: "POST", path: "/v1/shutdown", body: body}, nil)
		if got := <-a.stops; got != want {
			t.Errorf("shutdown with %q stops sandboxes: %t", body, got)
		}
	}
}

func TestNotReady(t *testing.T) {
	t.Parallel()
	a := serve(t)
	a.manager.SetNotReady(sandbox.Unavailable(sandbox.CodeEngineUnavailable, nil, "no user namespaces; run this to fix it"))
	got := a.send(request{method: "GET", path: "/readyz"})
	got.refused(503, "engine_unavailable", "")
	if got.header.Get("Retry-After-Ms") == "" {
		t.Error("no advice when to try again")
	}
	a.send(request{method: "POST", path: "/v1/containers", body: `{"name":"x"}`}).refused(503, "engine_unavailable", "")
	a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody("", "", "true")}).refused(503, "engine_unavailable", "")
	var info rpc.Info
	a.get("/v1/info", &info)
	if info.Ready || info.NotReady == nil {
		t.Errorf("info %+v", info)
	}
	a.get("/healthz", nil)
}

// Each class of failure below has its status, and nothing of an unknown one is
// told.
func TestFailures(t *testing.T) {
	t.Parallel()
	a := ready(t)
	full := &sandbox.Error{Class: sandbox.ErrStorageFull, Code: sandbox.CodeStorageFull, Message: "the disk is full; free some space"}
	for _, test := range []struct {
		err    error
		status int
		code   string
	}{
		{sandboxtest.ErrBroken, 500, "internal"},
		{full, 507, "storage_full"},
		{sandbox.Unavailable(sandbox.CodeEngineUnavailable, nil, "the engine is away"), 503, "engine_unavailable"},
	} {
		a.world.Backend.On(sandboxtest.OpCreate, sandboxtest.Fail(test.err))
		got := a.send(request{method: "POST", path: "/v1/containers", body: `{"name":"x"}`}).refused(test.status, test.code, "")
		if test.status == 500 && strings.Contains(got.Message, test.err.Error()) {
			t.Errorf("the message tells what is inside: %s", got.Message)
		}
	}
	a.world.Backend.On(sandboxtest.OpCreate, nil)
	var last rpc.Container
	for range 4 {
		last = a.container()
	}
	got := a.send(request{method: "POST", path: "/v1/containers", body: `{"name":"x"}`})
	got.refused(429, "too_many_containers", "")
	if got.header.Get("Retry-After-Ms") == "" {
		t.Error("no advice when to try again")
	}
	two := strings.Fields(strings.Repeat("hang ", 64))
	a.post("/v1/shell_calls", callBody(last.ID, `,"background":true`, two...), nil)
	a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody(last.ID, "", two...)}).refused(429, "too_many_runs", "action.commands")
	a.world.Boxes.Box(sandbox.ID(last.ID)).Lose(sandboxtest.ErrBroken)
	eventually(t, "the container has failed", func() bool {
		var c rpc.Container
		a.get("/v1/containers/"+last.ID, &c)
		return c.Status == "failed" && c.StatusReason != nil
	})
	a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody(last.ID, "", "true")}).refused(400, "container_failed", "")
}

// Texts stay as they are, for people who read the JSON.
func TestReadableTexts(t *testing.T) {
	t.Parallel()
	a := ready(t)
	got := a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody("", "", "out <a> & 'b'")})
	if !strings.Contains(string(got.body), `"stdout":"<a> & 'b'"`) {
		t.Errorf("answer %s", got.body)
	}
}

// A note is one short line, whatever the error says that it carries.
func TestNotes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ note, want string }{
		"plain":   {"it was killed", "it was killed"},
		"lines":   {"one\r\n two\u2028three\x1b[31m\tfour\x00\x7f", "one two three [31m four"},
		"bytes":   {"caf\xe9 é", "caf? é"},
		"nothing": {" \n", ""},
		"long":    {strings.Repeat("ü", 1000), strings.Repeat("ü", 390) + "…"},
		"longest": {strings.Repeat("ü", 391), strings.Repeat("ü", 391)},
	} {
		if got := oneLine(test.note); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	a := ready(t)
	a.world.Boxes.On(sandboxtest.OpStart, sandboxtest.Fail(errors.New("first\nsecond "+strings.Repeat("x", 500))))
	call := a.shellCall("", "out x")
	line, rest, _ := strings.Cut(call.Output.Output[0].Stderr, "\n")
	if n := len([]rune(line)); n != 400 || rest != "" || !strings.Contains(line, "first second x") || *call.Results[0].Note != strings.TrimPrefix(line, "[shelld] ") {
		t.Errorf("%d characters in %q, then %q", n, line, rest)
	}
}

// What is said in other words already is taken; what is not served is refused.
func TestNeutralFields(t *testing.T) {
	t.Parallel()
	a := ready(t)
	c := a.container()
	var call rpc.ShellCall
	for _, more := range []string{
		`,"stream":false,"keep_background":true,"limits":{},"background":false,"stdin":"none","network_policy":{"type":"disabled"},"env":{"KEY":"value"},"working_directory":"/mnt/data"`,
		`,"stream":null,"keep_background":null,"limits":null`,
	} {
		a.post("/v1/shell_calls", callBody(c.ID, more, "out x"), &call)
	}
	for param, more := range map[string]string{
		"stream": `,"stream":true`, "keep_background": `,"keep_background":false`, "limits": `,"limits":{"memory":"512m"}`,
	} {
		a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody(c.ID, more, "out x")}).refused(400, "unsupported", param)
	}
	a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody(c.ID, `,"limits":3`, "out x")}).refused(400, "invalid_value", "limits")
}

// What must not be sent again says so: the SDKs would.
func TestNotTwice(t *testing.T) {
	t.Parallel()
	a := ready(t)
	c := a.container()
	started := a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody(c.ID, "", "hang", "nostart")})
	started.refused(429, "too_many_runs", "")
	none := a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody(c.ID, "", "nostart")})
	none.refused(429, "too_many_runs", "")
	if started.header.Get("X-Should-Retry") != "false" || started.header.Get("Retry-After-Ms") != "" || none.header.Get("X-Should-Retry") != "" || none.header.Get("Retry-After-Ms") == "" {
		t.Errorf("headers of a call taken back %v, of one that did not start %v", started.header, none.header)
	}

	stopped := make(chan answer)
	go func() {
		stopped <- a.send(request{method: "POST", path: "/v1/shell_calls", body: callBody(c.ID, `,"call_id":"twice"`, "hang")})
	}()
	var list rpc.List[rpc.ShellCall]
	eventually(t, "the call runs", func() bool {
		a.get("/v1/shell_calls?status=in_progress", &list)
		return len(list.Data) == 1 && a.world.Boxes.Count(sandboxtest.OpStart) == 4
	})
	a.stop()
	got := <-stopped
	if e := got.refused(503, "not_ready", ""); got.header.Get("X-Should-Retry") != "false" || !strings.Contains(e.Message, "/v1/shell_calls/"+list.Data[0].ID) {
		t.Errorf("answer at the stop: %v, %q", got.header, e.Message)
	}
}

// A sandbox that did not come up is the engine's trouble and may come up the
// next time, however the failure is dressed.
func TestBrokenSandbox(t *testing.T) {
	t.Parallel()
	a := ready(t)
	for name, err := range map[string]error{
		"plain":      errors.Join(errors.New("hello"), sandbox.ErrBroken),
		"classified": &sandbox.Error{Class: sandbox.ErrBroken, Code: sandbox.CodeContainerFailed, Message: "it is gone"},
	} {
		a.world.Boxes.On(sandboxtest.OpOpen, sandboxtest.Fail(err))
		got := a.send(request{method: "POST", path: "/v1/containers", body: `{"name":"x"}`})
		got.refused(503, "engine_unavailable", "")
		if got.header.Get("Retry-After-Ms") == "" || got.header.Get("X-Should-Retry") != "" {
			t.Errorf("%s: headers %v advise against another try", name, got.header)
		}
	}
	a.world.Boxes.On(sandboxtest.OpOpen, nil)
	a.container()
}
