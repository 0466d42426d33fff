package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
)

// readAll reads to the end; gaps are returned and passed over.
func readAll(ctx context.Context, f *Follower, piece int) (got []byte, gaps []GapError, err error) {
	p := make([]byte, piece)
	for {
		n, err := f.ReadContext(ctx, p)
		got = append(got, p[:n]...)
		gap, isGap := errors.AsType[*GapError](err)
		switch {
		case isGap:
			gaps = append(gaps, *gap)
		case errors.Is(err, io.EOF):
			return got, gaps, nil
		case err != nil:
			return got, gaps, err
		}
	}
}

func TestFollowersGetEverything(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{})
	r, w := newPipe(t)
	data := pattern(3 << 20)
	var wg sync.WaitGroup
	for i := range 4 {
		off := int64(i) * 1000
		f, err := s.Follow(off)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer f.Close()
			got, gaps, err := readAll(t.Context(), f, 10_000*(i+1))
			if err != nil || len(gaps) > 0 || !bytes.Equal(got, data[off:]) {
				t.Errorf("follower from %d: %d bytes, gaps %v, %v", off, len(got), gaps, err)
			}
		})
	}
	wait := consume(t.Context(), t, s, r)
	rnd := rand.New(rand.NewPCG(1, 2))
	for rest := data; len(rest) > 0; {
		n, err := w.Write(rest[:min(len(rest), rnd.IntN(50<<10)+1)])
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	_ = w.Close()
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// Readers race with a writer whose ring is tiny. They may lose bytes, but each
// byte they get is the right one, and each they miss is in a gap.
func TestOvertakenFollowers(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{HeadMax: 5000, Ring: 9000})
	r, w := newPipe(t)
	data := pattern(8 << 20)
	var wg sync.WaitGroup
	for i := range 3 {
		f, err := s.Follow(0)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			defer f.Close()
			p := make([]byte, 300*(i+1))
			var at int64
			for {
				n, err := f.ReadContext(t.Context(), p)
				if !bytes.Equal(p[:n], data[at:at+int64(n)]) {
					t.Errorf("wrong bytes at %d", at)
					return
				}
				at += int64(n)
				if gap, ok := errors.AsType[*GapError](err); ok {
					if gap.From != at || gap.To <= at || f.Offset() != gap.To {
						t.Errorf("at %d: gap %+v, offset %d", at, gap, f.Offset())
						return
					}
					at = gap.To
					continue
				}
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			if at != int64(len(data)) {
				t.Errorf("ended at %d", at)
			}
		})
	}
	stop := make(chan struct{})
	wg.Go(func() { // and one that reads and cuts at will
		p := make([]byte, 2000)
		empty := New("", Options{})
		for {
			select {
			case <-stop:
				return
			default:
			}
			off := s.Meta().Tail
			n, err := s.ReadAt(p, off)
			if !bytes.Equal(p[:n], data[off:off+int64(n)]) || err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, ErrGap) {
				t.Errorf("read at %d: %d, %v", off, n, err)
				return
			}
			res, err := Cut(s, empty, 400)
			if err != nil {
				t.Error(err)
				return
			}
			checkCutOf(t, res.Stdout, data, 400)
		}
	})
	wait := consume(t.Context(), t, s, r)
	if _, err := w.Write(data); err != nil {
		t.Error(err)
	}
	_ = w.Close()
	if err := wait(); err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
	verifyContent(t, s, data)
}

// checkCutOf checks a cut of a stream of plain ASCII taken while it grew.
func checkCutOf(t *testing.T, got Text, data []byte, limit int) {
	t.Helper()
	data = data[:got.Bytes]
	if !got.Truncated {
		if got.Text != string(data) || got.LostBytes != 0 {
			t.Errorf("uncut text of %d bytes has %d", len(data), len(got.Text))
		}
		return
	}
	parts := bytes.SplitN([]byte(got.Text), []byte(" ... "), 3)
	if len(parts) != 3 || len(parts[0]) != limit/2 || len(parts[2]) > limit/2 ||
		!bytes.HasPrefix(data, parts[0]) || !bytes.HasSuffix(data, parts[2]) ||
		got.CutChars != int64(len(data)-len(parts[0])-len(parts[2])) {
		t.Errorf("bad cut of %d bytes: %+v", len(data), got)
	}
}

func TestFollowerEnds(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{HeadMax: 10, Ring: 10})
	f, err := s.Follow(0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cause := errors.New("client gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := f.ReadContext(ctx, make([]byte, 1)); !errors.Is(err, cause) {
		t.Errorf("got %v, want the cause", err)
	}
	data := pattern(100)
	fill(t, s, data)
	// The file stays readable for the follower although all others are done.
	if err := errors.Join(s.Close(), os.Remove(s.path)); err != nil {
		t.Fatal(err)
	}
	got, gaps, err := readAll(t.Context(), f, 7)
	if err != nil || string(got) != string(data[:10])+string(data[90:]) || len(gaps) != 1 || gaps[0] != (GapError{10, 90}) {
		t.Errorf("got %q, %v, %v", got, gaps, err)
	}
	if err := errors.Join(f.Close(), f.Close()); err != nil {
		t.Error(err)
	}
	if _, err := s.Follow(0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("follow after close: %v", err)
	}
	if s.file != nil {
		t.Error("file still open")
	}
}

// A pipe that is given up ends its followers.
func TestFinishWakesFollowers(t *testing.T) {
	t.Parallel()
	s := newSpool(t, Options{})
	f, err := s.Follow(3)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := f.ReadContext(t.Context(), make([]byte, 1))
		ended <- err
	}()
	s.Finish()
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
