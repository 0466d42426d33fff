package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/client/clienttest"
	"github.com/shelld/shelld/rpc"
)

// patience bounds every wait of these tests.
const patience = 20 * time.Second

var errPatience = errors.New("the test's patience is over")

func start(t *testing.T) (*clienttest.Server, *client.Client, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errPatience)
	server, err := clienttest.Start()
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(client.Options{Socket: server.Socket})
	t.Cleanup(func() {
		cancel()
		c.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, c, ctx
}

func commands(texts ...string) rpc.ShellCallCreate {
	return rpc.ShellCallCreate{
		Action:      &rpc.ShellAction{Commands: texts},
		Environment: &rpc.Environment{Type: "container_auto", DeleteAfter: true},
	}
}

func TestContainers(t *testing.T) {
	t.Parallel()
	_, c, ctx := start(t)
	memory := "256m"
	made, err := c.CreateContainer(ctx, rpc.ContainerCreate{Name: "one", MemoryLimit: &memory, Labels: map[string]string{"k": "v"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Container(ctx, made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, made); diff != "" {
		t.Errorf("retrieved container (-got +want):\n%s", diff)
	}
	for range 4 {
		if _, err := c.CreateContainer(ctx, rpc.ContainerCreate{Name: "more"}); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for container, err := range c.AllContainers(ctx, client.ContainerList{Page: client.Page{Limit: 2}}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, container.Name)
	}
	if want := []string{"more", "more", "more", "more", "one"}; !slices.Equal(names, want) {
		t.Errorf("all pages have %q, want %q", names, want)
	}
	list, err := c.Containers(ctx, client.ContainerList{Name: "one"})
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != made.ID {
		t.Errorf("list by name = %+v, %v, want only %s", list, err, made.ID)
	}
	if err := c.DeleteContainer(ctx, made.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteContainer(ctx, made.ID); !errors.Is(err, rpc.WithCode("not_found")) {
		t.Errorf("second delete = %v, want not_found", err)
	}
}

func TestCreateShellCall(t *testing.T) {
	t.Parallel()
	server, c, ctx := start(t)
	req := commands("printf out; printf err >&2; exit 3", "kill -KILL $$", "sleep 60", clienttest.Lost)
	timeout := int64(200)
	req.Action.TimeoutMS = &timeout
	call, err := c.CreateShellCall(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for _, r := range call.Results {
		reasons = append(reasons, r.Reason)
	}
	if want := []string{"exit", "signal", "timeout", "lost"}; !slices.Equal(reasons, want) {
		t.Errorf("reasons = %q, want %q", reasons, want)
	}
	if first := call.Output.Output[0]; first.Stdout != "out" || first.Stderr != "err" || *first.Outcome.ExitCode != 3 {
		t.Errorf("first chunk = %+v, want out, err, 3", first)
	}
	again, err := c.ShellCall(ctx, call.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(again, call); diff != "" {
		t.Errorf("retrieved call (-got +want):\n%s", diff)
	}
	list, err := c.ShellCalls(ctx, client.ShellCallList{ContainerID: call.ContainerID, Status: "failed"})
	if err != nil || len(list.Data) != 1 {
		t.Errorf("list of failed calls = %+v, %v, want one", list, err)
	}
	if err := server.Await(ctx, "container deleted"); err != nil {
		t.Error(err)
	}
}

// A reference must carry nothing but the id, and a container's empty name must
// not be sent: the server holds requests against the contract.
func TestEnvironmentOnTheWire(t *testing.T) {
	t.Parallel()
	_, c, ctx := start(t)
	container, err := c.CreateContainer(ctx, rpc.ContainerCreate{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	for name, env := range map[string]*rpc.Environment{
		"none":      nil,
		"auto":      {Type: "container_auto"},
		"named":     {Type: "container_auto", ContainerCreate: rpc.ContainerCreate{Name: "n"}},
		"local":     {Type: "local"},
		"reference": {Type: "container_reference", ContainerID: container.ID},
	} {
		req := commands("true")
		req.Environment = env
		call, err := c.CreateShellCall(ctx, req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if name == "reference" && call.ContainerID != container.ID {
			t.Errorf("%s: ran in %s, want %s", name, call.ContainerID, container.ID)
		}
	}
}

func TestStreamsWhileRunning(t *testing.T) {
	t.Parallel()
	_, c, ctx := start(t)
	req := commands("cat; echo end >&2")
	stream := "stream"
	req.Stdin = &stream
	call, err := c.StartShellCall(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	if call.CallID == "" || call.ContainerID == "" {
		t.Fatalf("announced %q in %q, want two ids", call.CallID, call.ContainerID)
	}
	stdout, err := c.Output(ctx, call.CallID, 0, client.Stdout, client.OutputRange{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()

	in, feed := io.Pipe()
	written := make(chan error, 1)
	go func() {
		n, err := c.WriteStdin(ctx, call.CallID, 0, in)
		if err == nil && n != 6 {
			err = errors.New("the pipe took another number of bytes than 6")
		}
		written <- err
	}()
	buf := make([]byte, 100)
	for _, text := range []string{"abc", "def"} { // each is seen before the next is sent
		if _, err := io.WriteString(feed, text); err != nil {
			t.Fatal(err)
		}
		n, err := io.ReadAtLeast(stdout, buf, len(text))
		if err != nil || string(buf[:n]) != text {
			t.Fatalf("read %q, %v, want %q", buf[:n], err, text)
		}
	}
	select {
	case <-call.Done():
		t.Error("the call ended before its input")
	default:
	}
	if err := feed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Errorf("WriteStdin: %v", err)
	}
	if rest, err := io.ReadAll(stdout); err != nil || len(rest) != 0 {
		t.Errorf("rest of stdout = %q, %v, want a clean end", rest, err)
	}
	ended, err := call.Wait(ctx)
	if err != nil || ended.Status != "completed" || ended.Results[0].StdoutBytes != 6 {
		t.Errorf("Wait = %+v, %v", ended, err)
	}
	part, err := c.Output(ctx, call.CallID, 0, client.Stdout, client.OutputRange{From: 1, To: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer part.Close()
	if got, err := io.ReadAll(part); err != nil || string(got) != "bcd" {
		t.Errorf("bytes 1-4 = %q, %v, want bcd", got, err)
	}
}

func TestOutputGapAndClose(t *testing.T) {
	t.Parallel()
	_, c, ctx := start(t)
	call, err := c.CreateShellCall(ctx, commands(clienttest.Gap))
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.Output(ctx, call.ID, 0, client.Stdout, client.OutputRange{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if got, err := io.ReadAll(out); err != nil || string(got) != "01289" || out.Gap() != "3-7" {
		t.Errorf("read %q, %v, gap %q, want 01289 and 3-7", got, err, out.Gap())
	}

	running, err := c.StartShellCall(ctx, commands("sleep 60"))
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	open, err := c.Output(ctx, running.CallID, 0, client.Stdout, client.OutputRange{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := open.Read(make([]byte, 1))
		failed <- err
	}()
	_ = open.Close()
	if err := <-failed; err == nil || err == io.EOF { //nolint:errorlint // io.EOF would claim a clean end
		t.Errorf("a read cut by Close = %v, want an error that is not io.EOF", err)
	}
}

func TestLeavingCancels(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(context.Context, *testing.T, *client.Client){
		"close": func(ctx context.Context, t *testing.T, c *client.Client) {
			t.Helper()
			call, err := c.StartShellCall(ctx, commands("sleep 60"))
			if err != nil {
				t.Fatal(err)
			}
			call.Close()
			if _, err := call.Wait(ctx); err == nil {
				t.Error("Wait after Close succeeds")
			}
		},
		"context": func(ctx context.Context, t *testing.T, c *client.Client) {
			t.Helper()
			errGone := errors.New("gone")
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(200*time.Millisecond, func() { cancel(errGone) })
			if _, err := c.CreateShellCall(ctx, commands("sleep 60")); !errors.Is(err, errGone) {
				t.Errorf("error = %v, want the cause", err)
			}
		},
		"cancel": func(ctx context.Context, t *testing.T, c *client.Client) {
			t.Helper()
			call, err := c.StartShellCall(ctx, commands("sleep 60"))
			if err != nil {
				t.Fatal(err)
			}
			defer call.Close()
			if _, err := c.CancelShellCall(ctx, call.CallID); err != nil {
				t.Error(err)
			}
			if ended, err := call.Wait(ctx); err != nil || ended.Results[0].Reason != "canceled" {
				t.Errorf("Wait = %+v, %v, want canceled", ended, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c, ctx := start(t)
			leave(ctx, t, c)
			for _, what := range []string{"call canceled", "container deleted"} {
				if err := server.Await(ctx, what); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestStartIsBoundByItsContext(t *testing.T) {
	t.Parallel()
	server, c, ctx := start(t)
	errGone := errors.New("gone")
	begun, cancel := context.WithCancelCause(ctx)
	go func() {
		_ = server.Await(ctx, "request POST /v1/shell_calls")
		cancel(errGone)
	}()
	if _, err := c.StartShellCall(begun, commands(clienttest.Unannounced)); !errors.Is(err, errGone) {
		t.Errorf("error = %v, want the cause", err)
	}

	begun, cancel = context.WithCancelCause(ctx)
	call, err := c.StartShellCall(begun, commands("sleep 0.3"))
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	cancel(errGone) // the start is over: no effect
	if ended, err := call.Wait(ctx); err != nil || ended.Status != "completed" {
		t.Errorf("Wait = %+v, %v, want completed", ended, err)
	}
	if _, err := call.Wait(begun); err != nil && !errors.Is(err, errGone) {
		t.Errorf("Wait with an ended context = %v", err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	_, c, ctx := start(t)
	for name, tc := range map[string]struct {
		command string
		want    rpc.Error
	}{
		"envelope": {clienttest.Refused, rpc.Error{Status: 429, RetryAfter: 1500 * time.Millisecond, RequestID: "req_standin"}},
		"foreign":  {clienttest.Garbled, rpc.Error{Status: 502, RequestID: "req_standin", Message: "<h1>no</h1>"}},
	} {
		_, err := c.StartShellCall(ctx, commands(tc.command))
		var got *rpc.Error
		if !errors.As(err, &got) {
			t.Errorf("%s: error %v is no *rpc.Error", name, err)
			continue
		}
		if got.Status != tc.want.Status || got.RetryAfter != tc.want.RetryAfter || got.RequestID != tc.want.RequestID {
			t.Errorf("%s: got %+v, want %+v", name, got, tc.want)
		}
		if tc.want.Message != "" && got.Message != tc.want.Message {
			t.Errorf("%s: message %q, want %q", name, got.Message, tc.want.Message)
		}
	}
	call, err := c.StartShellCall(ctx, commands(clienttest.Cut))
	if err == nil {
		_, err = call.Wait(ctx)
		call.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "was cut") {
		t.Errorf("cut call: %v, want it to say so", err)
	}
	for _, id := range []string{"", ".", "..", "../info", "a/b", "a?b", "é"} {
		if _, err := c.Container(ctx, id); !errors.Is(err, rpc.WithCode("not_found")) {
			t.Errorf("container %q: %v, want not_found", id, err)
		}
	}
	if _, err := c.StartShellCallItem(ctx, json.RawMessage(`{"action":{"commands":["true"]},"bogus":1}`)); !errors.Is(err, rpc.WithCode("invalid_value")) {
		t.Errorf("item with an unknown field: %v, want it refused", err)
	}
}

func TestDaemon(t *testing.T) {
	t.Parallel()
	server, c, ctx := start(t)
	info, err := c.Info(ctx)
	if err != nil || info.Version != "1.2.3" || info.Cgroup.Version != 1 {
		t.Errorf("Info = %+v, %v", info, err)
	}
	if err := errors.Join(c.Ready(ctx), c.Healthy(ctx)); err != nil {
		t.Error(err)
	}
	if doc, err := c.OpenAPI(ctx); err != nil || !slices.Equal(doc, rpc.OpenAPI) {
		t.Errorf("OpenAPI gives %d bytes, %v, want the document", len(doc), err)
	}
	if err := c.Shutdown(ctx, rpc.Shutdown{Sandboxes: true}); err != nil {
		t.Error(err)
	}
	if err := server.Await(ctx, "shutdown true"); err != nil {
		t.Error(err)
	}
}

func TestNotRunning(t *testing.T) {
	dir, err := os.MkdirTemp("", "shelld-client-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	t.Setenv("SHELLD_SOCKET", path)
	var c client.Client // the zero value honours SHELLD_SOCKET
	if got, err := c.Socket(); err != nil || got != path {
		t.Errorf("Socket = %q, %v, want %q", got, err, path)
	}
	if _, err := c.Info(t.Context()); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("without a socket: %v, want ErrNotRunning", err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Info(t.Context()); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("with a dead socket: %v, want ErrNotRunning", err)
	}
}

// The client dials again after the daemon was replaced.
func TestOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	server, c, ctx := start(t)
	if _, err := c.Info(ctx); err != nil {
		t.Fatal(err)
	}
	second, err := clienttest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Close(); err != nil {
			t.Error(err)
		}
	})
	// The connection that waits is cut, the path leads to another daemon.
	if err := os.Rename(second.Socket, server.Socket); err != nil {
		t.Fatal(err)
	}
	server.CutConnections()
	if err := c.Shutdown(ctx, rpc.Shutdown{}); err != nil {
		t.Fatal(err)
	}
	if err := second.Await(ctx, "shutdown false"); err != nil {
		t.Error(err)
	}
}

func TestOwnHTTPClient(t *testing.T) {
	t.Parallel()
	server, _, ctx := start(t)
	var dials int
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials++
		var d net.Dialer
		return d.DialContext(ctx, "unix", server.Socket)
	}}
	defer transport.CloseIdleConnections()
	c := client.New(client.Options{HTTPClient: &http.Client{Transport: transport}})
	for range 3 {
		if _, err := c.Info(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if dials != 1 {
		t.Errorf("3 requests dialed %d times, want one connection kept alive", dials)
	}
}
