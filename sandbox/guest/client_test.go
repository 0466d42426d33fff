package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fakeGuest returns a client whose guest is the test.
func fakeGuest(t *testing.T, hello any) (*Client, *link, error) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(fds[0], maxToGuest, maxFDsToGuest)
	t.Cleanup(l.close)
	if err := l.send(kindHello, hello, 1<<30); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[1]), "peer")
	conn, err := net.FileConn(file) // duplicates
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(conn.(*net.UnixConn))
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, l, err
}

func TestViolations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	regular, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	path, err := unix.Open(fifo, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	both, err := unix.Open(fifo, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _, _ = regular.Close(), r.Close(), w.Close()
		closeAll([]int{sockets[0], sockets[1], path, both})
	})
	read, write, file := int(r.Fd()), int(w.Fd()), int(regular.Fd())
	ok := startedMessage{ID: "a", PID: 2}

	for _, c := range []struct {
		name  string
		kind  kind
		m     any
		fds   []int
		stdin bool
	}{
		{"regular file", kindStarted, ok, []int{read, file}, false},
		{"directory of the host", kindStarted, ok, []int{read, unix.Stdin}, false},
		{"socket", kindStarted, ok, []int{sockets[0], read}, false},
		{"writing end", kindStarted, ok, []int{read, write}, false},
		{"reading end for stdin", kindStarted, ok, []int{read, read, read}, true},
		{"path", kindStarted, ok, []int{path, read}, false},
		{"read and write", kindStarted, ok, []int{both, read}, false},
		{"too many", kindStarted, ok, []int{read, read, write}, false},
		{"too few", kindStarted, ok, []int{read}, false},
		{"none", kindStarted, ok, nil, false},
		{"stdin missing", kindStarted, ok, []int{read, read}, true},
		{"far too many", kindStarted, ok, []int{read, read, read, read, read, read}, false},
		{"other id", kindStarted, startedMessage{ID: "b"}, []int{read, read}, false},
		{"no id", kindExited, "text", nil, false},
		{"descriptors with an exit", kindExited, exitedMessage{ID: "a"}, []int{read}, false},
		{"unasked pong", kindPong, pingMessage{Seq: 1}, nil, false},
		{"unasked ready", kindReady, readyMessage{}, nil, false},
		{"unasked attach", kindAttached, ok, []int{read, read}, false},
		{"second hello", kindHello, helloMessage{Version: Version}, nil, false},
		{"shelld's own message", kindStart, startMessage{ID: "a"}, nil, false},
		{"too long", kindFailed, failedMessage{Op: opStart, ID: "a", Text: strings.Repeat("x", maxFromGuest)}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, guest, err := fakeGuest(t, helloMessage{Version: Version})
			if err != nil {
				t.Fatal(err)
			}
			failed := make(chan error, 1)
			go func() {
				_, err := client.Start(t.Context(), StartRequest{ID: "a", Argv: []string{"x"}, Stdin: c.stdin})
				failed <- err
			}()
			if f, err := guest.next(); err != nil || f.kind != kindStart {
				t.Fatalf("%s, %v", f.kind, err)
			}
			if err := guest.send(c.kind, c.m, 1<<30, c.fds...); err != nil && !errors.Is(err, unix.EPIPE) {
				t.Fatal(err)
			}
			<-client.Done()
			if err := client.Err(); !errors.Is(err, ErrViolation) {
				t.Errorf("got %v", err)
			}
			if err := <-failed; !errors.Is(err, ErrViolation) {
				t.Errorf("start: got %v", err)
			}
			if _, err := guest.next(); err == nil {
				t.Error("connection still open")
			}
		})
	}
}

func TestBadHello(t *testing.T) {
	t.Parallel()
	for name, hello := range map[string]any{
		"other version": helloMessage{Version: Version + 1},
		"no object":     []int{1},
		"too long":      strings.Repeat("x", maxFromGuest),
	} {
		if _, _, err := fakeGuest(t, hello); !errors.Is(err, ErrViolation) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestLongHello(t *testing.T) {
	t.Parallel()
	l, peer := linkPair(t, maxToGuest, maxFDsToGuest)
	s, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll([]int{s.null}) })
	own, err := unix.Dup(peer) // the session closes it
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3*helloRuns + 1 {
		id := strings.Repeat("x", maxIDLen-4) + string(rune('A'+i/100)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10))
		s.runs[id] = &run{id: id, pid: 1 << 30, exit: &exitMessage{1 << 31, 1 << 60, 1 << 60}}
	}
	session := s.attach(own)
	defer session.end()
	count := 0
	for more := true; more; {
		f, err := l.next()
		if err != nil {
			t.Fatal(err)
		}
		var m helloMessage
		if err := f.decode(&m); err != nil {
			t.Fatal(err)
		}
		if len(f.payload) > maxFromGuest {
			t.Errorf("hello of %d bytes", len(f.payload))
		}
		count, more = count+len(m.Runs), m.More
	}
	if want := 3*helloRuns + 1; count != want {
		t.Errorf("got %d runs, want %d", count, want)
	}
	l.shutdown()
}

// TestAbandonedStart lets the answer come when nobody waits any more.
func TestAbandonedStart(t *testing.T) {
	t.Parallel()
	client, guest, err := fakeGuest(t, helloMessage{Version: Version})
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("caller gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := client.Start(ctx, StartRequest{ID: "a", Argv: []string{"x"}}); !errors.Is(err, gone) {
		t.Fatalf("got %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.send(kindStarted, startedMessage{ID: "a", PID: 2}, maxFromGuest, int(r.Fd()), int(r.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := guest.send(kindExited, exitedMessage{ID: "a"}, maxFromGuest); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	// Only when the client has closed its ends, too, writing is in vain.
	eventually(t, "the unwanted pipes to be closed", func() bool {
		_, err := w.Write([]byte("x"))
		return errors.Is(err, unix.EPIPE)
	})
	if err := errors.Join(w.Close(), client.Close()); err != nil {
		t.Error(err)
	}
	if err := client.Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	if err := client.Ping(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("ping of a closed connection: %v", err)
	}
}

func TestDisconnect(t *testing.T) {
	t.Parallel()
	client, guest, err := fakeGuest(t, helloMessage{Version: Version, Runs: []startedMessage{{ID: "old", PID: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	if runs := client.Runs(); len(runs) != 1 || runs[0].ID != "old" || runs[0].PID != 7 {
		t.Errorf("got %+v", runs)
	}
	failed := make(chan error, 1)
	go func() { failed <- client.Ping(t.Context()) }()
	if f, err := guest.next(); err != nil || f.kind != kindPing {
		t.Fatalf("%s, %v", f.kind, err)
	}
	guest.shutdown()
	if err := <-failed; !errors.Is(err, ErrDisconnected) || !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}
