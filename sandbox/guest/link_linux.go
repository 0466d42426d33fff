package guest

import (
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sendTimeout is how long the guest waits for shelld to take a message before
// it gives the connection up. Unit: seconds.
const sendTimeout = 10

// A link is the guest's side of one connection. It uses blocking system calls
// rather than the runtime's poller: the thread that waits is the one that
// works, which saves a wake-up per message.
type link struct {
	fd int

	rx receiver // owned by whoever holds the reading role

	wmu    sync.Mutex // guards tx and closing fd
	tx     encoder
	closed bool

	over atomic.Bool // no more frames are to be taken
}

func newLink(fd, maxPayload, maxFDs int) *link {
	l := &link{fd: fd}
	l.rx = receiver{recv: l.recv, maxPayload: maxPayload, maxFDs: maxFDs}
	return l
}

func (l *link) recv(p, oob []byte) (n, oobn, flags int, err error) {
	for {
		n, oobn, flags, _, err = unix.Recvmsg(l.fd, p, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			return n, oobn, flags, err
		}
	}
}

// next returns the next frame, or io.EOF after shutdown.
func (l *link) next() (frame, error) {
	if l.over.Load() {
		return frame{}, io.EOF
	}
	f, err := l.rx.next()
	if err == nil && l.over.Load() {
		f.close()
		return frame{}, io.EOF
	}
	return f, err
}

// send sends one frame whole. When it can't, the connection is shut down.
func (l *link) send(k kind, message any, limit int, fds ...int) error {
	l.wmu.Lock()
	defer l.wmu.Unlock()
	return l.sendLocked(k, message, limit, fds)
}

func (l *link) sendLocked(k kind, message any, limit int, fds []int) error {
	if l.closed {
		return unix.EPIPE
	}
	b, err := l.tx.encode(k, message, len(fds), limit)
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for len(b) > 0 {
		n, err := unix.SendmsgN(l.fd, b, oob, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			l.shutdown()
			return err
		}
		b, oob = b[n:], nil
	}
	runtime.KeepAlive(fds)
	return nil
}

// shutdown makes every call on the link, also those under way, end.
func (l *link) shutdown() {
	l.over.Store(true)
	_ = unix.Shutdown(l.fd, unix.SHUT_RDWR) // fails only when it is down already
}

// close frees the descriptor. Nobody may be reading any more.
func (l *link) close() {
	l.shutdown()
	l.wmu.Lock()
	defer l.wmu.Unlock()
	if !l.closed {
		l.closed = true
		_ = unix.Close(l.fd) // a socket that was shut down
		l.rx.close()
	}
}
