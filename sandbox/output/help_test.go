package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a test waits for what should happen at once.
const patience = 30 * time.Second

// newSpool returns a spool below a directory that does not exist yet.
func newSpool(tb testing.TB, opts Options) *Spool {
	tb.Helper()
	s := New(filepath.Join(tb.TempDir(), "run", "stdout"), opts)
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func freeze(s *Spool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freezeLocked()
}

// newPipe returns a pipe whose ends the test closes.
func newPipe(tb testing.TB) (r, w *os.File) {
	tb.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _, _ = r.Close(), w.Close() })
	return r, w
}

// consume starts Consume and returns a function that waits for its result.
func consume(ctx context.Context, tb testing.TB, s *Spool, r *os.File) (wait func() error) {
	tb.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Consume(ctx, r) }()
	return func() error {
		tb.Helper()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			tb.Fatal("consume does not end")
			return nil
		}
	}
}

// fill puts data through a pipe into s.
func fill(tb testing.TB, s *Spool, data []byte) {
	tb.Helper()
	r, w := newPipe(tb)
	wait := consume(tb.Context(), tb, s, r)
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if err := wait(); err != nil {
		tb.Fatal(err)
	}
}

// awaitProduced waits until s has n bytes.
func awaitProduced(tb testing.TB, s *Spool, n int64) {
	tb.Helper()
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		enough, changed := s.meta.Produced >= n, s.waitLocked()
		s.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			tb.Fatalf("spool has %d bytes, want %d", s.Produced(), n)
		}
	}
}

// pattern returns n bytes that tell their offset.
func pattern(n int) []byte {
	p := make([]byte, 0, n+16)
	for i := 0; len(p) < n; i += 8 {
		p = fmt.Appendf(p, "%07x\n", i)
	}
	return p[:n]
}

// randomBytes returns a mix of plain, multi-byte and invalid sequences.
func randomBytes(rnd *rand.Rand, n int) []byte {
	parts := []string{"a", "Z9", "\x00", "é", "日本", "🙂", "\xff", "\x80", "\xe3\x81", "\xf0\x9f\x99", "\xed\xa0\x80", "\xc0\xaf", "plain text that is a bit longer than a word\n"}
	var p []byte
	for len(p) < n {
		p = append(p, parts[rnd.IntN(len(parts))]...)
	}
	return p[:n]
}

// verifyContent checks every way of reading a spool against the stream that
// was written to it.
func verifyContent(tb testing.TB, s *Spool, want []byte) {
	tb.Helper()
	m := s.Meta()
	if m.Produced != int64(len(want)) {
		tb.Fatalf("produced %d bytes, want %d", m.Produced, len(want))
	}
	check := func(from, to int64) {
		tb.Helper()
		p := make([]byte, to-from)
		if n, err := s.ReadAt(p, from); err != nil {
			tb.Fatalf("read %d to %d: %d bytes, %v", from, to, n, err)
		}
		if string(p) != string(want[from:to]) {
			tb.Fatalf("bytes %d to %d differ", from, to)
		}
	}
	check(0, m.Head)
	check(m.Tail, m.Produced)
	p := make([]byte, 10)
	if n, err := s.ReadAt(p, m.Produced); n != 0 || !errors.Is(err, io.EOF) {
		tb.Fatalf("read at the end: %d, %v", n, err)
	}
	if m.Lost() > 0 {
		_, err := s.ReadAt(make([]byte, len(want)), 0)
		gap, ok := errors.AsType[*GapError](err)
		if !ok || gap.From != m.Head || gap.To != m.Tail || !errors.Is(err, ErrGap) {
			tb.Fatalf("read over the gap %d to %d: %v", m.Head, m.Tail, err)
		}
	}
}

// pipeSize returns the capacity of a pipe.
func pipeSize(tb testing.TB, f *os.File) int {
	tb.Helper()
	conn, err := f.SyscallConn()
	if err != nil {
		tb.Fatal(err)
	}
	var size int
	if err := conn.Control(func(fd uintptr) { size, err = unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0) }); err != nil || size == 0 {
		tb.Fatal(err)
	}
	return size
}
