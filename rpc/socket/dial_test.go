package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nobody is a user that owns nothing here.
const nobody = 65534

func itoa(n int) string { return strconv.Itoa(n) }

func testBinary() string {
	path, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	return path
}

func TestDialNotRunning(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	dead := filepath.Join(dir, "dead")
	leaveDead(t, dead)
	for _, path := range []string{dead, filepath.Join(dir, "none"), filepath.Join(dir, "no", "folder")} {
		_, err := Dial(t.Context(), path)
		if !errors.Is(err, ErrNotRunning) {
			t.Errorf("Dial(%s) = %v, want ErrNotRunning", path, err)
		}
		if e, ok := errors.AsType[*NotRunningError](err); !ok || e.Path != path || !strings.Contains(err.Error(), path) {
			t.Errorf("Dial(%s) = %#v, want the path", path, err)
		}
	}
}

func TestDialRefuses(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file: "is a file, not a socket", dir: "is a folder, not a socket", "": "empty",
		"/" + strings.Repeat("x", MaxPath): "has 108 bytes and the kernel allows 107", "@x": "no path of a file",
	} {
		_, err := Dial(t.Context(), path)
		if err == nil || errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), want) {
			t.Errorf("Dial(%q) = %v, want %q", path, err, want)
		}
	}
}

func TestDialWaitsForABusyServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	accept := fillQueue(t, path)

	reason := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*dialPause, reason)
	defer cancel()
	if _, err := Dial(ctx, path); !errors.Is(err, reason) || errors.Is(err, ErrNotRunning) {
		t.Errorf("Dial = %v, want the context's cause", err)
	}

	accepted := make(chan error, 1)
	timer := time.AfterFunc(5*dialPause, func() { accepted <- accept() })
	defer timer.Stop()
	conn, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	if err := errors.Join(conn.Close(), <-accepted); err != nil {
		t.Error(err)
	}
}

func TestDefaultPath(t *testing.T) {
	t.Setenv("SHELLD_SOCKET", "/x/y")
	if got, err := DefaultPath(); got != "/x/y" || err != nil {
		t.Errorf("DefaultPath = %q, %v", got, err)
	}
	t.Setenv("SHELLD_SOCKET", "")
	t.Setenv("XDG_RUNTIME_DIR", "/r")
	want := "/r/shelld/shelld.sock"
	if os.Geteuid() == 0 {
		want = "/run/shelld/shelld.sock"
	}
	if got, err := DefaultPath(); got != want || err != nil {
		t.Errorf("DefaultPath = %q, %v; want %q", got, err, want)
	}
}

func TestPeer(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	l := listenAt(t, path)
	answers := make(chan Peer, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			ctx := ConnContext(t.Context(), conn)
			peer, _ := PeerFrom(ctx)
			answers <- peer
			text := "welcome"
			if err := Authorize(ctx); err != nil {
				text = err.Error()
			}
			_, _ = conn.Write([]byte(text))
			_ = conn.Close()
		}
	}()
	defer func() { _ = l.Close(); <-done }()

	own := start(t, "dial", path, nil)
	if got := own.line(t); got != "welcome" {
		t.Errorf("our own client: %q", got)
	}
	want := Peer{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), PID: int32(own.Process.Pid)}
	if got := <-answers; got != want {
		t.Errorf("peer = %+v, want %+v", got, want)
	}

	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	asNobody := func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	locked := start(t, "dial", path, asNobody)
	if got := locked.line(t); !strings.Contains(got, path+" belongs to another user") {
		t.Errorf("a foreign client: %q", got)
	}
	// Even if the modes let somebody in, the peer is known.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	foreign := start(t, "dial", path, asNobody)
	if got, want := foreign.line(t), "foreign peer: this shelld serves user 0 and you are user 65534; start your own"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := <-answers; got.UID != nobody || got.PID != int32(foreign.Process.Pid) {
		t.Errorf("peer = %+v", got)
	}
}

func TestAuthorizeWithoutPeer(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	if err := Authorize(ConnContext(t.Context(), server)); !errors.Is(err, ErrForeignPeer) {
		t.Errorf("Authorize = %v, want ErrForeignPeer", err)
	}
}
