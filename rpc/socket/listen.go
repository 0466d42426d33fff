package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/shelld/shelld/rpc/socket/flock"
)

// ErrInUse says that another process serves the path.
var ErrInUse = errors.New("socket is in use")

const (
	// lockSuffix makes the name of the lock that the owner of a path holds.
	lockSuffix = ".lock"

	// Whoever answers at a path whose lock is free is a foreign program, or a
	// daemon of ours that was just killed and whose descriptors the kernel is
	// still closing one by one. So it is asked a few times.
	probes     = 5
	probePause = 20 * time.Millisecond
)

// Listener accepts connections of clients. Its methods are safe for
// concurrent use.
type Listener struct {
	*net.UnixListener

	path string
	// lock is nil for a socket from systemd, which we neither own nor remove.
	lock  *flock.Lock
	file  fs.FileInfo
	close func() error
}

// Listen returns the socket that systemd passed to this process, used as it
// is, or makes one at path, which must be absolute. The folder of path is made
// or checked as [EnsureDir] says, and the socket gets mode 0600.
//
// What a dead daemon left at path is replaced. Anything else there stays as it
// is: for a live daemon, stopped ones included, the error matches [ErrInUse];
// a file, folder or link is named. Beside the socket stays a lock file, which
// is held until Close or the end of the process. Listen takes 2 s to refuse a
// second daemon, in case that the first is about to end.
func Listen(ctx context.Context, path string) (*Listener, error) {
	passed, err := activated()
	if err != nil {
		return nil, fmt.Errorf("take socket from systemd: %w", err)
	}
	if passed != nil {
		return passed, nil
	}
	l, err := listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

func listen(ctx context.Context, path string) (*Listener, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("the socket's path %q is not absolute", path)
	}
	if err := EnsureDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	lock, err := flock.Take(ctx, path+lockSuffix)
	if errors.Is(err, flock.ErrHeld) {
		return nil, fmt.Errorf("%w: another shelld is serving %s; use it, stop it, or start with another --run and --root", ErrInUse, path)
	}
	if err != nil {
		return nil, err
	}
	l, err := bind(ctx, path)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	l.lock = lock
	return l, nil
}

// bind makes the socket. The caller holds the lock of path.
func bind(ctx context.Context, path string) (*Listener, error) {
	if err := makeRoom(ctx, path); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	ln, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	unixListener, ok := ln.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("got a listener of type %T", ln), ln.Close())
	}
	// Ours to remove in Close, and only if it is still the same file.
	unixListener.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, os.Remove(path), ln.Close())
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	l := &Listener{UnixListener: unixListener, path: path, file: info}
	l.close = sync.OnceValue(l.shut)
	return l, nil
}

// makeRoom removes the socket of a dead daemon and nothing else. The caller
// holds the lock of path.
func makeRoom(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is %s, not a socket; shelld does not remove it: move it away or choose another path", path, kind(info.Mode()))
	}
	for range probes {
		conn, err := connect(ctx, path)
		switch {
		case errors.Is(err, syscall.ECONNREFUSED):
			return os.Remove(path)
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err == nil:
			err = conn.Close()
		case errors.Is(err, syscall.EAGAIN): // alive, but with a full queue
			err = nil
		}
		if err != nil {
			return fmt.Errorf("look whether %s is served: %w", path, err)
		}
		if err := pause(ctx, probePause); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: another program is serving %s; stop it or choose another path", ErrInUse, path)
}

// Path returns the path at which clients reach the socket; for one from
// systemd, the path that systemd chose.
func (l *Listener) Path() string { return l.path }

// Activated reports whether systemd passed the socket.
func (l *Listener) Activated() bool { return l.lock == nil }

// Close stops listening, removes the socket from its path if it is still the
// one that Listen made, and gives up the lock. A socket from systemd stays.
// Further calls return what the first returned.
func (l *Listener) Close() error { return l.close() }

func (l *Listener) shut() error {
	if l.Activated() {
		return l.UnixListener.Close()
	}
	// First the path, so that clients see "not running" rather than a socket
	// that refuses; last the lock, so that a successor finds the path free.
	return errors.Join(l.unlink(), l.UnixListener.Close(), l.lock.Close())
}

func (l *Listener) unlink() error {
	info, err := os.Lstat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove socket: %w", err)
	}
	if !same(info, l.file) {
		return nil
	}
	return os.Remove(l.path)
}

// same reports whether both are one file. The time tells a new file with the
// number of a removed one; a chmod does not change it.
func same(a, b fs.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime())
}

// pause waits for d, or returns the cause of an earlier end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
