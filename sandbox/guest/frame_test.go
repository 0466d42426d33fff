package guest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// linkPair returns a link and a descriptor of its peer.
func linkPair(tb testing.TB, maxPayload, maxFDs int) (l *link, peer int) {
	tb.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	l, peer = newLink(fds[0], maxPayload, maxFDs), fds[1]
	tb.Cleanup(func() {
		l.close()
		_ = unix.Close(peer)
	})
	return l, peer
}

// pipeEnds returns n descriptors.
func pipeEnds(tb testing.TB, n int) (fds []int) {
	tb.Helper()
	for len(fds) < n {
		r, w, err := os.Pipe()
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { _, _ = r.Close(), w.Close() })
		fds = append(fds, int(r.Fd()))
	}
	return fds
}

func TestFramesArriveAsSent(t *testing.T) {
	t.Parallel()
	a, bfd := linkPair(t, maxToGuest, maxFDsToGuest)
	b := newLink(bfd, maxToGuest, maxFDsToGuest)
	long := strings.Repeat("<&> \x01é", 100_000)
	sent := make(chan error, 1)
	go func() {
		for i := range 50 {
			if err := b.send(kindKill, killMessage{ID: strings.Repeat("<", i)}, maxToGuest); err != nil {
				sent <- err
				return
			}
			if err := b.send(kindStart, startMessage{ID: long[:i*10_000]}, maxToGuest, pipeEnds(t, i%maxFDsToGuest)...); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range 50 {
		var kill killMessage
		f, err := a.next()
		if err != nil || f.kind != kindKill || len(f.fds) != 0 || f.decode(&kill) != nil || len(kill.ID) != i {
			t.Fatalf("frame %d: %s with %d descriptors, id of %d bytes, %v", i, f.kind, len(f.fds), len(kill.ID), err)
		}
		var start startMessage
		f, err = a.next()
		if err != nil || f.kind != kindStart || len(f.fds) != i%maxFDsToGuest || f.decode(&start) != nil {
			t.Fatalf("frame %d: %s with %d descriptors, %v", i, f.kind, len(f.fds), err)
		}
		if want := strings.ToValidUTF8(long[:i*10_000], "\uFFFD"); start.ID != want {
			t.Errorf("frame %d: text of %d bytes changed", i, len(want))
		}
		for _, fd := range f.fds {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor flags %#x, %v", flags, err)
			}
		}
		f.close()
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	b.shutdown()
	if _, err := a.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	err := a.send(kindStart, startMessage{ID: long}, 1000)
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("above the limit: %v", err)
	}
}

func TestMalformedFrames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		data []byte
		fds  int
		want error
	}{
		{"too long", []byte{0, 1, 0, 1, 67, 0}, 0, errFrame},
		{"longest length", []byte{255, 255, 255, 255, 67, 0}, 0, errFrame},
		{"too many announced", []byte{0, 0, 0, 0, 67, 4}, 3, errFrame},
		{"fewer than announced", []byte{0, 0, 0, 0, 67, 3}, 2, errFrame},
		{"more than announced", []byte{0, 0, 0, 0, 67, 1}, 2, errFrame},
		{"not announced", []byte{0, 0, 0, 0, 67, 0}, 1, errFrame},
		{"more than fit", []byte{0, 0, 0, 0, 67, 3}, 40, errFrame},
		{"cut header", []byte{0, 0, 0}, 0, io.ErrUnexpectedEOF},
		{"cut payload", []byte{0, 0, 0, 9, 67, 0, '{'}, 0, io.ErrUnexpectedEOF},
		{"cut payload with fd", []byte{0, 0, 0, 9, 67, 1, '{'}, 1, io.ErrUnexpectedEOF},
		{"nothing", nil, 0, io.EOF},
	} {
		l, peer := linkPair(t, maxFromGuest, maxFDsFromGuest)
		pipe := pipeEnds(t, 1)[0]
		var fds []int
		for range c.fds {
			fds = append(fds, pipe)
		}
		if len(c.data) > 0 {
			if err := unix.Sendmsg(peer, c.data, unix.UnixRights(fds...), nil, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := unix.Shutdown(peer, unix.SHUT_WR); err != nil {
			t.Fatal(err)
		}
		if _, err := l.next(); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// TestRefusedDescriptorsAreClosed is not parallel to anything that pipes.
func TestRefusedDescriptorsAreClosed(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l, peer := linkPair(t, maxFromGuest, maxFDsFromGuest)
	for _, b := range [][]byte{{0, 0, 0, 9, 67, 1, '{'}} {
		if err := unix.Sendmsg(peer, b, unix.UnixRights(int(w.Fd())), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Shutdown(peer, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if _, err := l.next(); err == nil {
		t.Error("no error")
	}
	l.close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	// With any writing end left, this would not end.
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
}

// FuzzReceiver feeds arbitrary bytes in arbitrary pieces.
func FuzzReceiver(f *testing.F) {
	var tx encoder
	for _, m := range []struct {
		k kind
		v any
	}{
		{kindStart, startMessage{ID: "a", Argv: []string{"/bin/sh"}}},
		{kindExited, exitedMessage{ID: "a"}},
		{kindHello, helloMessage{Version: 1, Runs: []startedMessage{{ID: "b", Exit: &exitMessage{}}}}},
	} {
		b, err := tx.encode(m.k, m.v, 0, maxToGuest)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(b), uint8(3))
	}
	f.Add([]byte{0, 0, 255, 255, 1, 0}, uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		rest, total := data, 0
		rx := receiver{maxPayload: maxFromGuest, maxFDs: maxFDsFromGuest}
		rx.recv = func(p, _ []byte) (int, int, int, error) {
			n := copy(p, rest[:min(len(rest), int(piece)+1)])
			rest = rest[n:]
			return n, 0, 0, nil
		}
		for {
			got, err := rx.next()
			if len(rx.buf) > 2*(maxFromGuest+headerLen) {
				t.Fatalf("buffer of %d bytes", len(rx.buf))
			}
			if err != nil {
				return
			}
			if n := headerLen + len(got.payload); !bytes.Equal(got.payload, data[total+headerLen:total+n]) {
				t.Fatal("payload differs")
			} else {
				total += n
			}
		}
	})
}

// FuzzMessages gives both ends arbitrary payloads of every kind.
func FuzzMessages(f *testing.F) {
	for k := range 256 {
		f.Add(uint8(k), []byte(`{"id":"a","argv":["x"],"mode":"v2","version":1,"runs":[{"id":"b"}],"op":"start","exit":{"status":1}}`))
	}
	f.Fuzz(func(t *testing.T, k uint8, payload []byte) {
		c := &Client{calls: make(map[call]*pending), processes: make(map[string]*Process)}
		if err := c.dispatch(frame{kind: kind(k), payload: payload}); err != nil && !errors.Is(err, ErrViolation) {
			t.Errorf("client: %v", err)
		}
		if len(payload) > maxFromGuest {
			return
		}
		l, peer := linkPair(t, maxToGuest, maxFDsToGuest)
		head := []byte{0, 0, byte(len(payload) >> 8), byte(len(payload)), k, 0}
		if _, err := unix.Write(peer, append(head, payload...)); err != nil {
			t.Fatal(err)
		}
		s := &session{link: l}
		if _, _, err := s.read(); err != nil && !errors.Is(err, errFrame) {
			t.Errorf("guest: %v", err)
		}
	})
}
