package guest

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A Process is a command that was started. Its fields don't change; the files
// belong to whoever got the Process, who closes them.
type Process struct {
	// ID is the id of the run, from the request.
	ID string
	// PID is the process id in the sandbox's own pid namespace, as the guest
	// says; outside it means nothing.
	PID int
	// Stdout and Stderr are the reading ends of the command's pipes. They
	// are at their end when all that have the other ends closed them. The
	// guest holds duplicates until [Client.Forget].
	Stdout, Stderr *os.File
	// Stdin is the writing end of the command's input, whose end is when it
	// is closed. Nil unless the request asked for it, and after
	// [Client.Attach].
	Stdin *os.File

	done chan struct{}
	once sync.Once
	exit Exit
	err  error
}

// Done is closed when the command has ended or nobody can tell any more
// because the connection ended; [Process.Exit] says which.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit waits for Done and returns how the command ended. The error is that of
// [Client.Err] when the connection ended first; the command may run on then.
func (p *Process) Exit() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Close closes the files. It does not end the command.
func (p *Process) Close() error {
	var errs []error
	for _, f := range []*os.File{p.Stdin, p.Stdout, p.Stderr} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func (p *Process) finish(exit Exit, err error) {
	p.once.Do(func() {
		p.exit, p.err = exit, err
		close(p.done)
	})
}

// newProcess checks the descriptors that came with the message, two or three,
// and makes the process of them. It takes the descriptors in any case.
func newProcess(m *startedMessage, fds []int) (*Process, error) {
	for i, fd := range fds {
		access := unix.O_RDONLY
		if i == 2 {
			access = unix.O_WRONLY
		}
		if err := checkPipe(fd, access); err != nil {
			closeAll(fds)
			return nil, fmt.Errorf("%w: descriptor %d for run %q: %w", ErrViolation, i, m.ID, err)
		}
	}
	p := &Process{
		ID: m.ID, PID: m.PID, done: make(chan struct{}),
		Stdout: os.NewFile(uintptr(fds[0]), "stdout"),
		Stderr: os.NewFile(uintptr(fds[1]), "stderr"),
	}
	if len(fds) > 2 {
		p.Stdin = os.NewFile(uintptr(fds[2]), "stdin")
	}
	if m.Exit != nil {
		p.finish(m.Exit.exit(), nil)
	}
	return p, nil
}

// checkPipe makes sure that fd is an end of a pipe with the given access mode
// and sets it non-blocking. Close-on-exec it was received.
func checkPipe(fd, access int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return fmt.Errorf("mode %#o is no pipe", st.Mode)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if flags&(unix.O_ACCMODE|unix.O_PATH) != access {
		return fmt.Errorf("flags %#x", flags)
	}
	if flags&unix.O_NONBLOCK == 0 {
		return unix.SetNonblock(fd, true)
	}
	return nil
}
