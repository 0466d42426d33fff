package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// ErrGap is matched by every [GapError].
var ErrGap = errors.New("output is not stored any more")

// A GapError says that a range of the stream is lost. It matches [ErrGap].
type GapError struct {
	// From and To are the lost offsets; To is the first that is there again.
	From, To int64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("bytes %d to %d of the output are not stored", e.From, e.To)
}

// Is reports whether target is [ErrGap].
func (e *GapError) Is(target error) bool { return target == ErrGap }

// ReadAt reads from offset off of the stream, with the contract of
// [io.ReaderAt]. At the last byte produced so far it returns [io.EOF], also
// when more may follow. Where the bytes are lost it returns those before and a
// [*GapError]. What it returns is never mixed with bytes written meanwhile.
func (s *Spool) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read spool %s: negative offset %d", s.path, off)
	}
	for n < len(p) {
		got, err := s.readPart(p[n:], off+int64(n))
		n += got
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// readPart reads at least one byte, as many as lie together in the file.
func (s *Spool) readPart(p []byte, off int64) (int, error) {
	at, err := s.locate(off)
	if err != nil {
		return 0, err
	}
	if at.file == nil {
		return 0, fmt.Errorf("read spool %s: %w", s.path, fs.ErrClosed)
	}
	n, err := at.file.ReadAt(p[:min(int64(len(p)), at.room)], at.pos)
	if at.ring {
		if err := s.verify(off); err != nil {
			return 0, err
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // somebody has shortened the file
	}
	if err != nil {
		return n, fmt.Errorf("read spool %s: %w", s.path, err)
	}
	return n, nil
}

// place is where bytes of the stream are in the file.
type place struct {
	file *os.File // nil once the spool is closed
	pos  int64
	room int64 // how many bytes lie together from pos on
	ring bool  // they may be overwritten
}

// locate returns the place of the byte off of the stream.
func (s *Spool) locate(off int64) (place, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.metaLocked()
	switch {
	case off >= m.Produced:
		return place{}, io.EOF
	case off < m.Head:
		return place{file: s.file, pos: off, room: m.Head - off}, nil
	case off < m.Tail:
		return place{}, &GapError{From: m.Head, To: m.Tail}
	}
	pos := (off - m.Head) % m.Ring
	return place{file: s.file, pos: m.Head + pos, room: min(m.Produced-off, m.Ring-pos), ring: true}, nil
}

// verify is called after a read from the ring and reports whether the bytes
// from off on could have been overwritten before it. While the writer is just
// at that place it waits for it; a write into the ring is short.
func (s *Spool) verify(off int64) error {
	for {
		s.mu.Lock()
		m := s.metaLocked()
		if off < m.Tail {
			s.mu.Unlock()
			return &GapError{From: m.Head, To: m.Tail}
		}
		if off >= m.Produced+s.inFlight-m.Ring {
			s.mu.Unlock()
			return nil
		}
		changed := s.waitLocked()
		s.mu.Unlock()
		<-changed
	}
}
