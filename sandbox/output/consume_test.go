package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

func TestEmptyStreamTouchesNothing(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{})
	fill(t, s, nil)
	if got, want := s.Meta(), (Meta{Ring: DefaultRing, Complete: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := os.Stat(filepath.Dir(s.path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("directory was made: %v", err)
	}
	select {
	case <-s.Done():
	default:
		t.Error("not done")
	}
	if n, err := s.ReadAt(make([]byte, 1), 0); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read: %d, %v", n, err)
	}
}

// Any sizes of head, ring, writes: what the description promises is there, by
// splice and by copy.
func TestRandomChunks(t *testing.T) {
	t.Parallel()
	for _, copying := range []bool{false, true} {
		for seed := range uint64(60) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			data := randomBytes(rnd, rnd.IntN(300<<10))
			opts := Options{HeadMax: rnd.Int64N(100<<10) + 1, Ring: rnd.Int64N(40<<10) + 1}
			s := newSpool(t, opts)
			r, w := newPipe(t)
			ended := make(chan error, 1)
			go func() { ended <- s.consume(t.Context(), r, &writer{spool: s, copying: copying}) }()
			for rest := data; len(rest) > 0; {
				n, err := w.Write(rest[:min(len(rest), rnd.IntN(20<<10)+1)])
				if err != nil {
					t.Fatal(err)
				}
				rest = rest[n:]
			}
			_ = w.Close()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			m := s.Meta()
			if want := min(opts.HeadMax, int64(len(data))); m.Head != want {
				t.Fatalf("seed %d: head %d, want %d", seed, m.Head, want)
			}
			if want := min(opts.Ring, int64(len(data))-m.Head); m.Produced-m.Tail != want {
				t.Fatalf("seed %d: tail of %d, want %d", seed, m.Produced-m.Tail, want)
			}
			verifyContent(t, s, data)
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A file opened for appending refuses splices with EINVAL, as some file
// systems do.
func TestSpliceRefused(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{})
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "append"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETFL, unix.O_APPEND); err != nil {
		t.Fatal(err)
	}
	s.file = file
	data := pattern(1 << 20)
	fill(t, s, data)
	verifyContent(t, s, data)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}

func TestBusyPipeIsEnlarged(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{})
	r, w := newPipe(t)
	small := pipeSize(t, r)
	wait := consume(t.Context(), t, s, r)
	data := pattern(4 << 20)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if got := pipeSize(t, w); got <= small {
		t.Errorf("capacity is still %d", got)
	}
	_ = w.Close()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	verifyContent(t, s, data)
}

func TestRealProcesses(t *testing.T) {
	t.Parallel()
	// One line of 60 MB, and then some more than the head takes.
	const size = 60_000_000
	s := newSpool(t, Options{})
	spoolCommand(t, s, "sh", "-c", "head -c 60000000 /dev/zero | tr '\\0' x")
	verifyContent(t, s, bytes.Repeat([]byte("x"), size))
	r, err := Cut(s, newSpool(t, Options{}), 10)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Stdout.Text, "xxxxx ... 59999990 chars truncated ... xxxxx"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}

	s = newSpool(t, Options{HeadMax: 1 << 20, Ring: 64 << 10})
	spoolCommand(t, s, "seq", "1", "2000000")
	var want bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "seq", "1", "2000000")
	cmd.Stdout = &want
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	verifyContent(t, s, want.Bytes())
	if s.Meta().Lost() == 0 {
		t.Error("no gap")
	}
}

// The shell ends, its background process writes on: the consumer goes on too,
// and the counts of a result taken meanwhile stay what they were.
func TestBackgroundWriter(t *testing.T) {
	t.Parallel()
	s, empty := newSpool(t, Options{}), newSpool(t, Options{})
	r, w := newPipe(t)
	gateR, gateW := newPipe(t)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo now; (read x; echo later) <&3 & exit 0")
	cmd.Stdout = w
	cmd.ExtraFiles = []*os.File{gateR}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	wait := consume(t.Context(), t, s, r)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	awaitProduced(t, s, 4)
	res, err := Cut(s, empty, 100)
	if err != nil {
		t.Fatal(err)
	}
	if res.Stdout.Text != "now\n" || res.Stdout.Bytes != 4 || s.Meta().Complete {
		t.Errorf("at the end of the shell: %+v, %+v", res.Stdout, s.Meta())
	}
	if _, err := gateW.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	verifyContent(t, s, []byte("now\nlater\n"))
}

func TestCancelAndGoOn(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{HeadMax: 100, Ring: 50})
	r, w := newPipe(t)
	data := pattern(300)
	cause := errors.New("enough")
	for i := range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := consume(ctx, t, s, r)
		if _, err := w.Write(data[i*100 : (i+1)*100]); err != nil {
			t.Fatal(err)
		}
		awaitProduced(t, s, int64(i+1)*100)
		if err := s.Consume(t.Context(), r); !errors.Is(err, ErrBusy) {
			t.Errorf("second consumer: %v", err)
		}
		cancel(cause)
		if err := wait(); !errors.Is(err, cause) {
			t.Errorf("got %v, want the cause", err)
		}
	}
	if s.Meta().Complete {
		t.Error("complete after cancel")
	}
	s.Finish()
	s.Finish()
	verifyContent(t, s, data)
	if err := s.Consume(t.Context(), r); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("consume after the end: %v", err)
	}
}

// A write on its way to the head when that is frozen still belongs to it.
func TestFreezeDuringWrite(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{HeadMax: 100, Ring: 10})
	_, room := s.next()
	s.announce(room)
	freeze(s)
	s.stored(60)
	if got, want := s.Meta(), (Meta{Produced: 60, Head: 60, Tail: 60, Ring: 10}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if at, room := s.next(); at != 60 || room > 10 {
		t.Errorf("next write of %d at %d is not in the ring", room, at)
	}
}

// The end of the context is seen although the pipe is never empty.
func TestCancelFullPipe(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{})
	r, w := newPipe(t)
	_, _ = w.WriteString("still here")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(nil)
	pump := writer{spool: s}
	if !pump.pump(ctx, int(r.Fd())) || pump.atEnd || s.Produced() != 0 {
		t.Errorf("took %d bytes", s.Produced())
	}
}

// A writer that never pauses does not keep Consume from ending.
func TestCancelEndlessWriter(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{HeadMax: 1 << 20, Ring: 1 << 20})
	r, w := newPipe(t)
	cmd := exec.CommandContext(t.Context(), "yes")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	wait := consume(ctx, t, s, r)
	awaitProduced(t, s, 8<<20)
	cancel(nil)
	if err := wait(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	m := s.Meta()
	verifyContent(t, s, []byte(strings.Repeat("y\n", int(m.Produced+1)/2))[:m.Produced])
}

func TestConsumeRefusesWhatCannotWait(t *testing.T) {
	t.Parallel()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r, w := os.NewFile(uintptr(fds[0]), "r"), os.NewFile(uintptr(fds[1]), "w")
	defer func() { _, _ = r.Close(), w.Close() }()
	s := newSpool(t, Options{})
	if err := s.Consume(t.Context(), r); err == nil {
		t.Error("no error for a blocking pipe")
	}
}

func TestFreezeAndBudget(t *testing.T) {
	t.Parallel()
	t.Run("freeze", func(t *testing.T) {
		t.Parallel()
		s := newSpool(t, Options{HeadMax: 1 << 20, Ring: 10})
		r, w := newPipe(t)
		wait := consume(t.Context(), t, s, r)
		data := pattern(200)
		_, _ = w.Write(data[:50])
		awaitProduced(t, s, 50)
		freeze(s)
		_, _ = w.Write(data[50:])
		_ = w.Close()
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		if from, to := s.Gap(); from != 50 || to != 190 {
			t.Errorf("gap %d to %d, want 50 to 190", from, to)
		}
		verifyContent(t, s, data)
	})
	t.Run("budget", func(t *testing.T) {
		t.Parallel()
		const limit = 3 * budgetStep
		q := NewQuota(limit)
		a := newSpool(t, Options{Ring: 100, Budget: q})
		b := newSpool(t, Options{Ring: 100, Budget: q})
		data := pattern(4 * int(budgetStep))
		fill(t, a, data[:100])
		if got := q.used.Load(); got != 100 {
			t.Errorf("used %d after 100 bytes", got)
		}
		fill(t, b, data)
		verifyContent(t, b, data)
		if m := b.Meta(); m.Head != 2*budgetStep {
			t.Errorf("head %d, want %d", m.Head, 2*budgetStep)
		}
		if got := q.used.Load(); got != 100+2*budgetStep {
			t.Errorf("used %d", got)
		}
	})
}

// A full disk costs bytes, never the command: the writer comes to its end, the
// loss is counted, and once there is room again the tail is kept.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		if errors.Is(err, syscall.EPERM) {
			t.Skip("mounting needs root")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	const ballast = 128 << 10
	if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, ballast), 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(filepath.Join(dir, "a", "stdout"), Options{HeadMax: 1 << 20, Ring: 16 << 10})
	defer s.Close()
	r, w := newPipe(t)
	wait := consume(t.Context(), t, s, r)
	data := pattern(2 << 20)
	if _, err := w.Write(data[:1<<20]); err != nil {
		t.Fatal(err)
	}
	awaitProduced(t, s, 1<<20)
	if err := s.Err(); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("error %v, want ENOSPC", err)
	}
	m := s.Meta()
	if m.Head == 0 || m.Head > 256<<10-ballast || m.Tail != m.Produced {
		t.Errorf("with a full disk: %+v", m)
	}
	verifyContent(t, s, data[:1<<20])
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data[1<<20:]); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	if got := s.Meta(); got.Head != m.Head || got.Produced-got.Tail != 16<<10 {
		t.Errorf("with room again: %+v", got)
	}
	verifyContent(t, s, data)
}

// TestBlockingPipe: a guest may set the pipe, whose description it shares, to
// blocking mode. Consume must come to its end all the same, whatever becomes of
// the bytes.
func TestBlockingPipe(t *testing.T) {
	t.Parallel()
	notDir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Spool{
		"stored": newSpool(t, Options{}),
		"lost":   New(filepath.Join(notDir, "stdout"), Options{}),
	} {
		t.Run(name, func(t *testing.T) {
			r, w := newPipe(t)
			conn, err := r.SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var unset error
			if err := conn.Control(func(fd uintptr) { unset = unix.SetNonblock(int(fd), false) }); err != nil || unset != nil {
				t.Fatal(err, unset)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			wait := consume(ctx, t, s, r)
			data := pattern(100)
			if _, err := w.Write(data); err != nil {
				t.Fatal(err)
			}
			awaitProduced(t, s, 100)
			enough := errors.New("enough")
			cancel(enough)
			if err := wait(); !errors.Is(err, enough) {
				t.Errorf("consume: %v", err)
			}
		})
	}
}

// Where no file can be made at all the bytes are lost, and said to be.
func TestNoFile(t *testing.T) {
	t.Parallel()
	notDir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := New(filepath.Join(notDir, "stdout"), Options{})
	defer s.Close()
	data := pattern(300 << 10)
	fill(t, s, data)
	verifyContent(t, s, data)
	if m := s.Meta(); m.Lost() != int64(len(data)) || !errors.Is(s.Err(), syscall.ENOTDIR) {
		t.Errorf("%+v, %v", m, s.Err())
	}
	r, err := Cut(s, s, 1000)
	if want := " ... 307200 chars truncated ... "; err != nil || r.Stdout.Text != want || r.Stdout.LostBytes != 300<<10 {
		t.Errorf("got %+v, %v", r.Stdout, err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 50, 100, 140, 1000} {
		opts := Options{HeadMax: 100, Ring: 64}
		s := newSpool(t, opts)
		data := pattern(size)
		fill(t, s, data)
		meta := s.Meta()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReadAt(make([]byte, 1), 0); err == nil {
			t.Error("read after close")
		}
		s2, err := Open(s.path, meta, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s2.Meta(); got != meta {
			t.Errorf("got %+v, want %+v", got, meta)
		}
		verifyContent(t, s2, data)
		<-s2.Done()
		if err := s2.Close(); err != nil {
			t.Error(err)
		}
		if err := os.Remove(s.path); err != nil && (size > 0 || !errors.Is(err, fs.ErrNotExist)) {
			t.Error(err)
		}
		s3, err := Open(s.path, meta, Options{})
		if size == 0 {
			if err != nil {
				t.Error(err)
			} else {
				_ = s3.Close()
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open of a removed file: %v", err)
		}
	}
	if _, err := Open("x", Meta{Head: 5}, Options{}); err == nil {
		t.Error("impossible meta accepted")
	}
}

// A new daemon goes on with the pipe of a run that is still writing. Of the old
// one only the file is left while the stream is in its head; later its Meta.
func TestGoOnAfterRestart(t *testing.T) {
	t.Parallel()
	data := pattern(2000)
	for _, cut := range []int{1, 99, 100, 101, 150, 500, 1999} {
		opts := Options{HeadMax: 100, Ring: 64}
		s := newSpool(t, opts)
		r, w := newPipe(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		wait := consume(ctx, t, s, r)
		_, _ = w.Write(data[:cut])
		awaitProduced(t, s, int64(cut))
		cancel(nil)
		_ = wait()
		meta := Meta{}
		if cut > 100 {
			meta = s.Meta()
		}
		_ = s.Close()
		s, err := Open(s.path, meta, opts)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Produced(); got != int64(cut) {
			t.Fatalf("found %d bytes, want %d", got, cut)
		}
		wait = consume(t.Context(), t, s, r)
		_, _ = w.Write(data[cut:])
		_ = w.Close()
		if err := wait(); err != nil {
			t.Fatal(err)
		}
		verifyContent(t, s, data)
		if m := s.Meta(); m.Head != 100 || m.Tail != 2000-64 {
			t.Errorf("%+v", m)
		}
		_ = s.Close()
	}
}

// Case C08: endless output costs no memory, while it runs and when it is cut.
func TestEndlessOutputConstantMemory(t *testing.T) {
	// Not parallel: it measures what the whole process allocates.
	s, empty := newSpool(t, Options{HeadMax: 8 << 20}), newSpool(t, Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	spoolCommand(t, s, "sh", "-c", "yes | head -c 300000000")
	r, err := Cut(s, empty, 4096)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := utf8.RuneCountInString(r.Stdout.Text); got > 4096+len(" ... 299995904 chars truncated ... ") || r.Stdout.Chars != 300_000_000 {
		t.Errorf("%d characters of %d", got, r.Stdout.Chars)
	}
	// The copy of the ring, a buffer for the count, and small things.
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 3<<20 {
		t.Errorf("allocated %d bytes", grown)
	}
}
