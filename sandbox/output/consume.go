package output

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// headPiece is the most that one splice moves into the head. Unit: bytes.
	headPiece int64 = 1 << 20
	// copyPiece is the size of the buffer where splice does not work, and of
	// what is lost at once when the disk is full. Unit: bytes.
	copyPiece int64 = 64 << 10
	// busyPipe is the filling at which a pipe is worth enlarging: its default
	// capacity, see pipe(7). Unit: bytes.
	busyPipe = 64 << 10
	// bigPipe is the capacity a busy pipe gets. Unit: bytes.
	bigPipe = 256 << 10
)

// Consume stores what comes out of pipe until its end, that is until the last
// writer has closed it; then the stream is complete and Consume returns nil.
// When ctx ends first, Consume returns its cause, no byte is lost, and a later
// Consume of the same pipe (or of a duplicate) goes on. One Consume runs at a
// time; another gets [ErrBusy], and one on a closed or complete spool an error
// that matches [fs.ErrClosed].
//
// The pipe must be in non-blocking mode and known to Go's poller, as an
// [os.NewFile] of a non-blocking descriptor is. It stays the caller's, who
// closes it after Consume has returned. A failing disk is no error of Consume;
// see [Spool.Err].
func (s *Spool) Consume(ctx context.Context, pipe *os.File) error {
	return s.consume(ctx, pipe, &writer{spool: s})
}

func (s *Spool) consume(ctx context.Context, pipe *os.File, w *writer) error {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return fmt.Errorf("consume output: %w", err)
	}
	if err := s.begin(); err != nil {
		return err
	}
	resume := interrupt(ctx, pipe)
	err = conn.Read(func(fd uintptr) bool { return w.pump(ctx, int(fd)) })
	resume()
	s.end()
	w.close()
	if w.atEnd {
		s.Finish()
	}
	closeErr := s.release()
	switch {
	case w.atEnd:
		return closeErr
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil:
		err = w.err
	}
	return fmt.Errorf("consume output: %w", err)
}

// begin claims the writing side and keeps the file open.
func (s *Spool) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed, s.meta.Complete:
		return fmt.Errorf("consume output into %s: %w", s.path, fs.ErrClosed)
	case s.consuming:
		return fmt.Errorf("consume output into %s: %w", s.path, ErrBusy)
	}
	s.consuming = true
	s.refs++
	return nil
}

func (s *Spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.consuming = false
}

// interrupt wakes a read of pipe that waits when ctx ends. The function that
// it returns ends this and makes the pipe usable again.
func interrupt(ctx context.Context, pipe *os.File) (resume func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(woken)
		// Without a poller there is no wait to wake, and Consume says so.
		_ = pipe.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-woken
			_ = pipe.SetReadDeadline(time.Time{})
		}
	}
}

// writer is the state of one Consume.
type writer struct {
	spool *Spool
	file  *os.File // nil until the first byte
	atEnd bool
	err   error // why the pipe cannot be read on
	grown bool  // the pipe was enlarged, or that was refused
	// copying says that the file system does not take splices.
	copying bool
	// failing says that the last bytes could not be stored.
	failing bool
	buf     []byte
	// between is a pipe that copies go through; see take.
	between []int
}

// pump moves bytes until the pipe is empty (false: call again when there is
// more) or there is nothing left to do.
func (w *writer) pump(ctx context.Context, pipe int) (done bool) {
	for ctx.Err() == nil {
		n, err := w.step(pipe)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return false
		case errors.Is(err, unix.EINTR):
		case err != nil:
			w.err = err
			return true
		case n == 0:
			w.atEnd = true
			return true
		case n >= busyPipe && !w.grown:
			w.grown = true
			// Refused beyond the user's share of pipe memory; then it stays small.
			_, _ = unix.FcntlInt(uintptr(pipe), unix.F_SETPIPE_SZ, bigPipe)
		}
	}
	return true
}

// step moves one piece. It returns 0 and no error at the end of the pipe, and
// an error only for a fault of the pipe.
func (w *writer) step(pipe int) (int64, error) {
	if w.file == nil {
		more, err := readable(pipe)
		if err != nil || !more {
			return 0, err
		}
		w.open()
	}
	at, room := w.spool.next()
	if w.copying || w.failing {
		return w.copy(pipe, at, min(room, copyPiece))
	}
	w.spool.announce(room)
	fd := int(w.file.Fd())
	n, err := unix.Splice(pipe, nil, fd, &at, int(room), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	w.spool.stored(max(n, 0))
	switch {
	case err == nil, errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return n, err
	case errors.Is(err, unix.EINVAL):
		w.copying = true
	default:
		// Whether pipe or file is at fault the copy will tell.
		w.failing = true
	}
	return 0, unix.EINTR
}

// readable reports whether pipe has bytes (true) or is at its end (false); if
// neither it returns EAGAIN.
func readable(pipe int) (bool, error) {
	fds := []unix.PollFd{{Fd: int32(pipe), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	switch {
	case err != nil:
		return false, err
	case n == 0:
		return false, unix.EAGAIN
	case fds[0].Revents&unix.POLLIN != 0:
		return true, nil
	case fds[0].Revents&unix.POLLHUP != 0:
		return false, nil
	}
	return false, unix.EBADF
}

// open gets the file of the spool; without one the bytes are lost for now.
func (w *writer) open() {
	s := w.spool
	s.mu.Lock()
	w.file = s.file
	s.mu.Unlock()
	if w.file != nil {
		return
	}
	file, err := s.create()
	if err != nil {
		w.failing = true
		s.lost(0, err)
		return
	}
	w.file = file
}

// take moves up to room bytes from pipe to buf. It never waits, although pipe
// may not be in non-blocking mode any more: whoever else has it can change
// that, and can empty it after it was found readable. A splice can be told not
// to wait, but goes from pipe to pipe only.
func (w *writer) take(pipe int, room int64) (int, error) {
	if w.buf == nil {
		w.buf = make([]byte, copyPiece)
	}
	if w.between == nil {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
			return 0, err
		}
		w.between = ends[:]
	}
	n, err := unix.Splice(pipe, nil, w.between[1], nil, int(room), unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	if n <= 0 || err != nil {
		return 0, err
	}
	for got := 0; got < int(n); {
		m, err := unix.Read(w.between[0], w.buf[got:n])
		if err != nil && !errors.Is(err, unix.EINTR) {
			return 0, err
		}
		got += max(m, 0)
	}
	return int(n), nil
}

// close closes what the writer has opened for itself.
func (w *writer) close() {
	for _, fd := range w.between {
		_ = unix.Close(fd) // empty
	}
	w.between = nil
}

// copy is step through memory. What cannot be stored is lost.
func (w *writer) copy(pipe int, at, room int64) (int64, error) {
	n, err := w.take(pipe, room)
	if n <= 0 || err != nil {
		return 0, err
	}
	kept := 0
	if w.file != nil {
		w.spool.announce(int64(n))
		kept, err = w.file.WriteAt(w.buf[:n], at)
		w.spool.stored(int64(kept))
	}
	w.failing = kept < n
	if w.failing {
		w.spool.lost(int64(n-kept), err)
	}
	return int64(n), nil
}

// next returns where in the file the next bytes go and how many may.
func (s *Spool) next() (at, room int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room = s.headMax - s.meta.Head
	if room > 0 && s.budget != nil {
		if s.charged <= s.meta.Head {
			s.reserveLocked(min(room, budgetStep))
		}
		room = min(s.charged, s.headMax) - s.meta.Head
	}
	s.toHead = room > 0
	if s.toHead {
		return s.meta.Head, min(room, headPiece)
	}
	pos := (s.meta.Produced - s.meta.Head) % s.meta.Ring
	// A part of the ring at a time, so that readers of its rest are safe.
	return s.meta.Head + pos, min(s.meta.Ring-pos, max(s.meta.Ring/4, 1))
}

// reserveLocked asks the budget for n bytes of head, with mu released.
func (s *Spool) reserveLocked(n int64) {
	s.mu.Unlock()
	granted := s.budget.Reserve(n)
	s.mu.Lock()
	if granted {
		s.charged += n
	} else {
		s.freezeLocked()
	}
}

// announce says that the next n bytes of the stream are being written.
func (s *Spool) announce(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = n
}

// stored says that n bytes of those announced are in the file, no others.
func (s *Spool) stored(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = 0
	if s.toHead {
		s.meta.Head += n
		s.meta.Tail = s.meta.Head
	}
	s.meta.Produced += n
	s.wakeLocked()
}

// lost says that n bytes were taken from the pipe but not stored. The head, if
// it still grew, ends here.
func (s *Spool) lost(n int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	if n == 0 {
		return
	}
	s.freezeLocked()
	s.meta.Produced += n
	s.meta.Tail = s.meta.Produced
	s.wakeLocked()
}
