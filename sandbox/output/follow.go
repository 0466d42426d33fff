package output

import (
	"context"
	"errors"
	"io"
)

// A Follower reads a stream from an offset to its end and waits for bytes that
// are still to come. It is made by [Spool.Follow]. One goroutine uses it at a
// time; many followers of one spool are independent of each other.
type Follower struct {
	spool *Spool
	off   int64
	// overtaken says that the last read ended at a gap.
	overtaken bool
	closed    bool
}

// Follow returns a follower that begins at offset off, which may lie beyond
// what is produced so far. The caller closes it. It keeps the spool readable
// even when that is closed or removed. The error matches [io/fs.ErrClosed] when
// the spool is closed already.
func (s *Spool) Follow(off int64) (*Follower, error) {
	if err := s.acquire(); err != nil {
		return nil, err
	}
	return &Follower{spool: s, off: max(off, 0)}, nil
}

// ReadContext reads the next bytes, waiting until there are some. It returns
// [io.EOF] at the end of the complete stream and the cause of ctx when that
// ends first. When the bytes at its place are lost it returns a [*GapError]
// once, with the range that this follower misses; the next read goes on behind
// it. A follower that is overtaken again before it could read anything is put
// into the middle of the ring, so that it gets some way.
func (f *Follower) ReadContext(ctx context.Context, p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := f.spool.readPart(p, f.off)
		f.off += int64(n)
		var gap *GapError
		switch {
		case n > 0:
			f.overtaken = false
			return n, nil // an error comes again with the next read
		case errors.As(err, &gap):
			return 0, f.skip(gap)
		case !errors.Is(err, io.EOF):
			return 0, err
		}
		if err := f.wait(ctx); err != nil {
			return 0, err
		}
	}
}

// skip moves to the end of the gap.
func (f *Follower) skip(gap *GapError) error {
	to := gap.To
	if f.overtaken {
		to += max(0, f.spool.Produced()-to) / 2
	}
	missed := &GapError{From: f.off, To: to}
	f.off, f.overtaken = to, true
	return missed
}

// wait returns nil when there may be something to read at f.off.
func (f *Follower) wait(ctx context.Context) error {
	s := f.spool
	s.mu.Lock()
	if s.meta.Produced > f.off {
		s.mu.Unlock()
		return nil
	}
	if s.meta.Complete {
		s.mu.Unlock()
		return io.EOF
	}
	changed := s.waitLocked()
	s.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Offset returns where the next read begins.
func (f *Follower) Offset() int64 { return f.off }

// Close ends the follower. Further calls do nothing.
func (f *Follower) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	return f.spool.release()
}
