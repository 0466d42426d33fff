package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc"
)

// object is a JSON object of a request.
type object = map[string]any

// send makes a request; body nil sends none, a reader is sent as it is.
func (i *instance) send(ctx context.Context, method, path string, body any) (status int, answer []byte, err error) {
	resp, err := i.open(ctx, method, path, body, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// open makes a request and returns as soon as the answer begins.
func (i *instance) open(ctx context.Context, method, path string, body any, header http.Header) (*http.Response, error) {
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case io.Reader:
		reader = body
	default:
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://shelld"+path, reader)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, values := range header {
		req.Header[name] = values
	}
	return i.http.Do(req)
}

// ready returns nil when the daemon is ready.
func (i *instance) ready() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 2*time.Second, errors.New("no answer"))
	defer cancel()
	status, body, err := i.send(ctx, http.MethodGet, "/readyz", nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%d %s", status, body)
	}
	return err
}

// get asks for an object, which must be there.
func get[T any](t *testing.T, i *instance, path string) (v T) {
	t.Helper()
	return ask[T](t, i, http.MethodGet, path, nil)
}

// ask makes a request that must succeed.
func ask[T any](t *testing.T, i *instance, method, path string, body any) (v T) {
	t.Helper()
	status, answer, err := i.send(t.Context(), method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if err := json.Unmarshal(answer, &v); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, answer)
	}
	return v
}

// refused makes a request that must fail, and returns how.
func refused(t *testing.T, i *instance, method, path string, body any) (status int, code, param, message string) {
	t.Helper()
	status, answer, err := i.send(t.Context(), method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	var envelope rpc.ErrorResponse
	if err := json.Unmarshal(answer, &envelope); err != nil || status < 400 {
		t.Fatalf("%s %s: got %d %s, want an error (%v)", method, path, status, answer, err)
	}
	e := envelope.Error
	if e.Code != nil {
		code = *e.Code
	}
	if e.Param != nil {
		param = *e.Param
	}
	return status, code, param, e.Message
}

// create makes a container that is deleted with the test.
func create(t *testing.T, i *instance) string {
	t.Helper()
	c := ask[rpc.Container](t, i, http.MethodPost, "/v1/containers", object{"name": "e2e"})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.Context()), patience, errors.New("no answer to delete"))
		defer cancel()
		if !i.running() {
			return // takeDown sees to it
		}
		status, body, err := i.send(ctx, http.MethodDelete, "/v1/containers/"+c.ID, nil)
		if err != nil || status != http.StatusOK && status != http.StatusNotFound {
			t.Errorf("delete container: %d %s %v", status, body, err)
		}
	})
	return c.ID
}

// in is the body of a call of these commands in the container.
func in(container string, commands ...string) object {
	return object{
		"action":      object{"commands": commands},
		"environment": object{"type": "container_reference", "container_id": container},
	}
}

// timeout sets the time limit of a call's body.
func timeout(body object, limit time.Duration) object {
	body["action"].(object)["timeout_ms"] = limit.Milliseconds()
	return body
}

// with returns the body with one more field.
func with(body object, name string, value any) object {
	body[name] = value
	return body
}

// call makes a call that must come to an end, within 30 s.
func call(t *testing.T, i *instance, body object) rpc.ShellCall {
	t.Helper()
	started := time.Now()
	c := ask[rpc.ShellCall](t, i, http.MethodPost, "/v1/shell_calls", body)
	if took := time.Since(started); took > 30*time.Second {
		t.Errorf("the call took %s", took)
	}
	if c.Output == nil || len(c.Output.Output) != len(c.Action.Commands) || len(c.Results) != len(c.Action.Commands) {
		t.Fatalf("the call has not one output and result for each command: %+v", c)
	}
	return c
}

// sh runs one command, which must exit with 0, and returns what it printed.
func sh(t *testing.T, i *instance, container, text string) string {
	t.Helper()
	c := call(t, i, in(container, text))
	if out := c.Output.Output[0]; exitCode(out) != "0" {
		t.Fatalf("%s: %s, stdout %q, stderr %q", text, exitCode(out), out.Stdout, out.Stderr)
	}
	return c.Output.Output[0].Stdout
}

// exitCode is the outcome in short: the exit code, or "timeout".
func exitCode(out rpc.OutputChunk) string {
	if out.Outcome.ExitCode == nil {
		return out.Outcome.Type
	}
	return fmt.Sprint(*out.Outcome.ExitCode)
}

// pending is a call that runs.
type pending struct {
	id, container string
	// leave is how a client goes away.
	leave context.CancelFunc
	done  chan rpc.ShellCall // gets the result, or is closed without one
}

// begin makes a call and returns as soon as its commands run.
func begin(t *testing.T, i *instance, body object) *pending {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	p := &pending{leave: func() { cancel(errors.New("the client leaves")) }, done: make(chan rpc.ShellCall, 1)}
	resp, err := i.open(ctx, http.MethodPost, "/v1/shell_calls", body, http.Header{"X-Shelld-Announce": {"1"}})
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		t.Fatalf("call: %d %s", resp.StatusCode, text)
	}
	p.id, p.container = resp.Header.Get("X-Shelld-Call"), resp.Header.Get("X-Shelld-Container")
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		defer close(p.done)
		defer resp.Body.Close()
		var c rpc.ShellCall
		if json.NewDecoder(resp.Body).Decode(&c) == nil {
			p.done <- c
		}
	}()
	t.Cleanup(func() { p.leave(); <-reading })
	return p
}

// result waits for the call's answer; false when the connection broke.
func (p *pending) result(t *testing.T) (rpc.ShellCall, bool) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case c, ok := <-p.done:
		return c, ok
	case <-timer.C:
		t.Fatal("the call does not end")
		return rpc.ShellCall{}, false
	}
}

// stdoutOf reads the raw bytes that a command has written so far.
func stdoutOf(t *testing.T, i *instance, callID string, index int) string {
	t.Helper()
	status, body, err := i.send(t.Context(), http.MethodGet, fmt.Sprintf("/v1/shell_calls/%s/commands/%d/stdout", callID, index), nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("read output: %d %s %v", status, body, err)
	}
	return string(body)
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, limit time.Duration, condition func() bool) {
	t.Helper()
	if !poll(limit, condition) {
		t.Fatalf("waited %s in vain until %s", limit, what)
	}
}

// within fails the test when f takes longer than limit.
func within(t *testing.T, limit time.Duration, what string, f func()) {
	t.Helper()
	started := time.Now()
	f()
	if took := time.Since(started); took > limit {
		t.Errorf("%s took %s, more than %s", what, took.Round(time.Millisecond), limit)
	}
}

// lines splits a text into its lines.
func lines(text string) []string { return strings.Split(strings.TrimRight(text, "\n"), "\n") }
