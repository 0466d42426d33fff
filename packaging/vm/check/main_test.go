//go:build vm

// Package check looks, from inside the test machine, at whether our installed
// software does on a desktop what it promises: as an ordinary user, under
// systemd, with limits that cgroup v2 enforces. `make test-vm` runs it; nowhere
// else does it build.
//
// Each check stands alone: whatever the one before has left, the first request
// starts what is needed by socket activation.
package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc"
)

const (
	// patience bounds each wait. The machine is some thirty times slower than
	// a real one.
	patience = 90 * time.Second
	// poll is the pause between two looks at what has no event to wait for.
	poll = 100 * time.Millisecond

	socketUnit = "shelld.socket"
	daemonUnit = "shelld.service"
	engineUnit = "shelld-engine.service"
)

func TestMain(m *testing.M) {
	if out, err := exec.Command("systemctl", "--user", "enable", "--now", socketUnit).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "enable %s: %v\n%s", socketUnit, err, out)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
	m.Run()
}

func socketPath() string { return filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "shelld", "shelld.sock") }

// await returns when done reports true, and fails the test when that takes too
// long.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	end := time.After(patience)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !done() {
		select {
		case <-end:
			t.Fatalf("%s: not within %s", what, patience)
		case <-tick.C:
		}
	}
}

// systemctl talks to the user's systemd and returns what it prints.
func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemctl", append([]string{"--user"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// property is a property of a unit.
func property(t *testing.T, unit, name string) string {
	t.Helper()
	return systemctl(t, "show", "--value", "--property="+name, unit)
}

// api is a client of the daemon under test.
var api = &http.Client{Timeout: patience, Transport: &http.Transport{
	DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socketPath())
	},
	// A restarted daemon has closed what was kept.
	DisableKeepAlives: true,
}}

// request returns the status and decodes the answer into out unless that is
// nil.
func request(t *testing.T, method, path string, in, out any) (int, error) {
	t.Helper()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, "http://localhost"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := api.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return resp.StatusCode, err
	}
	if resp.StatusCode >= 300 {
		return resp.StatusCode, fmt.Errorf("%s", data)
	}
	if out == nil {
		return resp.StatusCode, nil
	}
	return resp.StatusCode, json.Unmarshal(data, out)
}

// must is request for what has to work.
func must(t *testing.T, method, path string, in, out any) {
	t.Helper()
	if status, err := request(t, method, path, in, out); err != nil {
		t.Fatalf("%s %s: %d %v", method, path, status, err)
	}
}

// ready returns when the daemon serves calls, which the first request starts.
func ready(t *testing.T) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Log("last answer:", last)
		}
	}()
	await(t, "shelld is ready", func() bool {
		status, err := request(t, http.MethodGet, "/readyz", nil, nil)
		last = fmt.Sprint(status, err)
		return err == nil
	})
}

func info(t *testing.T) rpc.Info {
	t.Helper()
	var i rpc.Info
	must(t, http.MethodGet, "/v1/info", nil, &i)
	return i
}
