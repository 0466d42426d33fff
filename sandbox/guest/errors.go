package guest

import (
	"errors"
	"fmt"
	"syscall"
)

var (
	// ErrViolation says that the guest sent what no honest guest sends. It is
	// to be killed with its sandbox.
	ErrViolation = errors.New("guest violated the protocol")
	// ErrDisconnected says that the guest ended the connection, or that it
	// did not take or answer a message in time. A new connection may do.
	ErrDisconnected = errors.New("guest disconnected")
	// ErrClosed says that [Client.Close] was called.
	ErrClosed = errors.New("guest connection closed")
	// ErrTooLarge says that a request does not fit into one message.
	ErrTooLarge = errors.New("message too large")
)

// StartError says why the guest could not do what it was asked, which is
// mostly to start a command.
type StartError struct {
	// Stage is the step that failed.
	Stage Stage
	// Errno is the system's reason.
	Errno syscall.Errno
	// Text has details for the log; may be empty.
	Text string
}

func (e *StartError) Error() string {
	if e.Text != "" {
		return fmt.Sprintf("%s: %s (%s)", e.Stage, e.Errno.Error(), e.Text)
	}
	return fmt.Sprintf("%s: %s", e.Stage, e.Errno.Error())
}

// Unwrap returns the errno, so that errors.Is(err, fs.ErrNotExist) works.
func (e *StartError) Unwrap() error { return e.Errno }
