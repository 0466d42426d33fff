package guest

import (
	"golang.org/x/sys/unix"
)

// pipes are the ends of one run's pipes that the guest holds; -1: closed.
type pipes struct {
	stdinRead, stdinWrite   int
	stdoutRead, stdoutWrite int
	stderrRead, stderrWrite int
}

// openPipes makes stdout, stderr and, if asked for, stdin. The ends for
// shelld are non-blocking, those for the command are not.
func openPipes(stdin bool) (*pipes, error) {
	p := &pipes{-1, -1, -1, -1, -1, -1}
	err := openPipe(&p.stdoutRead, &p.stdoutWrite)
	if err == nil {
		err = openPipe(&p.stderrRead, &p.stderrWrite)
	}
	if err == nil && stdin {
		err = openPipe(&p.stdinRead, &p.stdinWrite)
	}
	if err == nil {
		for _, fd := range []int{p.stdoutRead, p.stderrRead, p.stdinWrite} {
			if fd >= 0 && err == nil {
				err = unix.SetNonblock(fd, true)
			}
		}
	}
	if err != nil {
		p.closeCommandEnds()
		p.closeStdin()
		p.closeOutput()
		return nil, err
	}
	return p, nil
}

func openPipe(read, write *int) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	*read, *write = fds[0], fds[1]
	// The pipe belongs to the guest's user, and without this the command's
	// user could not open /dev/stdout or /dev/stdin.
	return unix.Fchmod(fds[0], 0o666)
}

// closeCommandEnds closes what the command has its own descriptors of.
func (p *pipes) closeCommandEnds() {
	closeEnd(&p.stdinRead)
	closeEnd(&p.stdoutWrite)
	closeEnd(&p.stderrWrite)
}

// closeStdin closes the guest's writing end, so that shelld's is the only one
// and closing it is the end of the command's input.
func (p *pipes) closeStdin() { closeEnd(&p.stdinWrite) }

// closeOutput closes the guest's duplicates of the reading ends.
func (p *pipes) closeOutput() {
	closeEnd(&p.stdoutRead)
	closeEnd(&p.stderrRead)
}

// dupOutput duplicates the reading ends.
func (p *pipes) dupOutput() ([]int, error) {
	var fds []int
	for _, fd := range []int{p.stdoutRead, p.stderrRead} {
		dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			closeAll(fds)
			return nil, err
		}
		fds = append(fds, dup)
	}
	return fds, nil
}

func closeEnd(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd) // a pipe: nothing to lose
		*fd = -1
	}
}
