package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// ErrNotRunning says that no daemon serves the path. The error that matches it
// is a [*NotRunningError].
var ErrNotRunning = errors.New("shelld is not running")

const (
	// dialPatience is how long [Dial] waits for room in the queue of a daemon
	// that is alive but does not accept. Unit: nanoseconds.
	dialPatience = 5 * time.Second
	// dialPause is the time between two tries. Unit: nanoseconds.
	dialPause = 10 * time.Millisecond
)

var errBusy = errors.New("shelld does not accept connections; it may be stopped or overloaded")

// NotRunningError tells at which path no daemon was found.
type NotRunningError struct {
	// Path is the socket's path.
	Path string
	// Err is what the kernel said.
	Err error
}

func (e *NotRunningError) Error() string {
	return fmt.Sprintf("no shelld is serving %s", e.Path)
}

// Is reports whether target is [ErrNotRunning].
func (e *NotRunningError) Is(target error) bool { return target == ErrNotRunning }

func (e *NotRunningError) Unwrap() error { return e.Err }

// Dial connects to the daemon that serves path. The error matches
// [ErrNotRunning] if there is nothing at path or only what a dead daemon left.
// A daemon whose queue of connections is full is waited for, at most 5 s or
// until ctx ends.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	if err := checkPath(path); err != nil {
		return nil, fmt.Errorf("connect to shelld: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, dialPatience, errBusy)
	defer cancel()
	for {
		conn, err := connect(ctx, path)
		switch {
		case err == nil:
			return conn, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("connect to %s: %w", path, context.Cause(ctx))
		case errors.Is(err, syscall.EAGAIN):
			if err := pause(ctx, dialPause); err != nil {
				return nil, fmt.Errorf("connect to %s: %w", path, err)
			}
		default:
			return nil, classify(path, err)
		}
	}
}

func connect(ctx context.Context, path string) (net.Conn, error) {
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", path)
}

// classify makes the kernel's answer readable. It refuses connections to dead
// sockets and to what never was one alike.
func classify(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &NotRunningError{Path: path, Err: err}
	case errors.Is(err, syscall.ECONNREFUSED):
		if info, statErr := os.Stat(path); statErr == nil && info.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("connect to shelld: %s is %s, not a socket", path, kind(info.Mode()))
		}
		return &NotRunningError{Path: path, Err: err}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("connect to shelld: %s belongs to another user; start your own shelld or run as that user: %w", path, syscall.EACCES)
	default:
		return fmt.Errorf("connect to shelld: %w", err)
	}
}
