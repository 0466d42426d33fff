package output

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const (
	// DefaultHead is the size of the head region. Unit: bytes.
	DefaultHead int64 = 64 << 20
	// DefaultRing is the size of the ring region. Unit: bytes. Larger rings
	// fall out of the processor's caches and make endless output dearer.
	DefaultRing int64 = 1 << 20

	// budgetStep is how much head is reserved at once. Unit: bytes.
	budgetStep int64 = 256 << 10
)

// ErrBusy says that another Consume of the same spool is still running.
var ErrBusy = errors.New("spool has a consumer already")

// Options sets the bounds of a [Spool].
type Options struct {
	// HeadMax caps the head region. Unit: bytes. Zero: [DefaultHead].
	HeadMax int64
	// Ring is the size of the ring region. Unit: bytes. Zero: [DefaultRing].
	// [Open] takes it from the [Meta] when that has one.
	Ring int64
	// Budget limits the heads of many spools together. Nil: no common limit.
	Budget Budget
}

// Meta describes the content of a spool's file. Stored by the caller once the
// stream has ended, it lets [Open] read the file later. The zero value
// describes an empty, unfinished stream.
type Meta struct {
	// Produced is the number of bytes that the command has written.
	Produced int64 `json:"produced"`
	// Head is the number of bytes kept from the beginning of the stream.
	Head int64 `json:"head"`
	// Tail is the offset from which on the end of the stream is kept. It
	// equals Head when nothing is lost.
	Tail int64 `json:"tail"`
	// Ring is the size of the ring region behind the head. Unit: bytes.
	Ring int64 `json:"ring"`
	// Complete says that no byte will follow.
	Complete bool `json:"complete"`
}

// Gap returns the range of offsets that is lost; it is empty when from == to.
func (m Meta) Gap() (from, to int64) { return m.Head, m.Tail }

// Lost returns the number of bytes in the gap.
func (m Meta) Lost() int64 { return m.Tail - m.Head }

// A Spool stores one stream. It is made by [New] or [Open] and must be closed.
// All methods are safe for concurrent use.
type Spool struct {
	path   string
	budget Budget
	done   chan struct{} // closed when complete

	// mu guards everything below and is never held across a system call.
	mu   sync.Mutex
	meta Meta // Tail is the floor set by lost bytes; see tailLocked
	// headMax is where the head ends. Once frozen it is meta.Head, or less if a
	// write to the head was on its way then, which still counts.
	headMax int64
	// inFlight is how many bytes behind meta.Produced the writer may be
	// overwriting in the file right now.
	inFlight int64
	toHead   bool // they go to the head
	// changed is closed at the next change of state. Nil: nobody waits.
	changed   chan struct{}
	file      *os.File // nil before the first byte
	refs      int      // users of file; the last one closes it
	consuming bool
	closed    bool
	charged   int64 // what is reserved of budget, at least meta.Head
	err       error // first storage error
}

// New returns an empty spool that will store its bytes in the file path. The
// file and the directories above it are made when the first byte arrives; a
// file that is there already is overwritten. New itself touches nothing.
func New(path string, opts Options) *Spool {
	s := &Spool{path: path, budget: opts.Budget, done: make(chan struct{}), headMax: opts.HeadMax, refs: 1}
	s.meta.Ring = opts.Ring
	if s.headMax <= 0 {
		s.headMax = DefaultHead
	}
	if s.meta.Ring <= 0 {
		s.meta.Ring = DefaultRing
	}
	return s
}

// Open returns the spool in the file path, as meta describes it. The file must
// exist if meta says that it holds bytes (else an error that matches
// [fs.ErrNotExist]). opts.Budget, if any, must count meta.Head already (see
// [Quota.Adopt]).
//
// If meta is not complete, [Spool.Consume] goes on where it ended. While the
// stream is still in its head the size of the file counts, so the bytes stored
// after meta was taken are found, and a zero meta will do. Once the ring is in
// use meta must have been taken after Consume had returned: the position in the
// ring is not in the file. A file longer than opts.HeadMax for which meta knows
// no ring is therefore read as a head and an unknown tail, and its produced
// count is a lower bound.
func Open(path string, meta Meta, opts Options) (*Spool, error) {
	if meta.Head < 0 || meta.Tail < meta.Head || meta.Produced < meta.Tail || meta.Ring < 0 {
		return nil, fmt.Errorf("open spool %s: impossible description %+v", path, meta)
	}
	if meta.Ring > 0 {
		opts.Ring = meta.Ring
	}
	s := New(path, opts)
	ring := s.meta.Ring
	s.meta = meta
	s.meta.Ring = ring
	stored := meta.Head + meta.Produced - meta.Tail
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	switch {
	case err == nil:
		s.file = file
	case stored > 0 || !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("open spool: %w", err)
	}
	if s.file != nil && !meta.Complete && meta.Produced == meta.Head {
		if err := s.trustSize(); err != nil {
			return nil, errors.Join(err, s.file.Close())
		}
	}
	if s.meta.Produced > s.meta.Head {
		s.headMax = s.meta.Head
	}
	s.charged = s.meta.Head
	if meta.Complete {
		close(s.done)
	}
	return s, nil
}

// trustSize takes the bytes that the file has beyond meta as part of the head.
func (s *Spool) trustSize() error {
	info, err := s.file.Stat()
	if err != nil {
		return fmt.Errorf("open spool: %w", err)
	}
	if size := info.Size(); size > s.meta.Produced {
		s.meta.Produced, s.meta.Tail = size, size
		s.meta.Head = min(size, max(s.headMax, s.meta.Head))
	}
	return nil
}

// Meta returns the present state of the stream.
func (s *Spool) Meta() Meta {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metaLocked()
}

func (s *Spool) metaLocked() Meta {
	m := s.meta
	m.Tail = s.tailLocked()
	return m
}

// tailLocked returns the offset from which on the end is stored.
func (s *Spool) tailLocked() int64 {
	return max(s.meta.Head, s.meta.Tail, s.meta.Produced-s.meta.Ring)
}

// Produced returns the number of bytes that the command has written so far.
func (s *Spool) Produced() int64 { return s.Meta().Produced }

// Gap returns the range of offsets lost so far; it is empty when from == to.
func (s *Spool) Gap() (from, to int64) { return s.Meta().Gap() }

// Done returns a channel that is closed when the stream is complete.
func (s *Spool) Done() <-chan struct{} { return s.done }

// Err returns the first error of storing bytes, nil if there was none. Bytes
// lost by it are in the gap.
func (s *Spool) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// freezeLocked ends the growth of the head: bytes that follow go to the ring.
func (s *Spool) freezeLocked() {
	if s.meta.Head < s.headMax {
		s.headMax = s.meta.Head
	}
}

// Finish declares the stream complete although its pipe is not at its end, as
// when the sandbox is gone. Followers come to their end. It must not be called
// while Consume runs. Further calls do nothing.
func (s *Spool) Finish() {
	s.mu.Lock()
	spare := int64(0)
	if !s.meta.Complete {
		s.meta.Complete = true
		close(s.done)
		if s.charged > s.meta.Head {
			spare = s.charged - s.meta.Head
			s.charged = s.meta.Head
		}
		s.wakeLocked()
	}
	s.mu.Unlock()
	if spare > 0 {
		s.budget.Release(spare)
	}
}

// wakeLocked tells whoever waits that the state has changed.
func (s *Spool) wakeLocked() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// waitLocked returns the channel that the next change closes.
func (s *Spool) waitLocked() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// Close gives the file up. A running Consume and open followers go on and
// close it at their end; nothing else can be read then. Further calls do
// nothing.
func (s *Spool) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	return s.release()
}

// acquire keeps the file open until release.
func (s *Spool) acquire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("spool %s: %w", s.path, fs.ErrClosed)
	}
	s.refs++
	return nil
}

func (s *Spool) release() error {
	s.mu.Lock()
	s.refs--
	var last *os.File
	if s.refs == 0 {
		last, s.file = s.file, nil
	}
	s.mu.Unlock()
	if last == nil {
		return nil
	}
	if err := last.Close(); err != nil {
		return fmt.Errorf("close spool: %w", err)
	}
	return nil
}

// create makes the file, and its directories if they are missing.
func (s *Spool) create() (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC | syscall.O_NOFOLLOW
	file, err := os.OpenFile(s.path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
			return nil, fmt.Errorf("create spool: %w", err)
		}
		file, err = os.OpenFile(s.path, flags, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	s.mu.Lock()
	s.file = file
	s.mu.Unlock()
	return file, nil
}
