package guest

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// AnchorArg is the argument with which the guest executes its own program to
// get an anchor; that program calls [RunAnchor] then.
const AnchorArg = "--anchor"

// anchorFD is the descriptor of the anchor's connection to the guest.
const anchorFD = 3

// An anchor is the guest's view of the process above an anchored run.
type anchor struct {
	pid  int
	link *link
	// gone is closed when the process has ended, which it does when it has
	// no descendants left.
	gone chan struct{}
	exit exitMessage // valid when gone is closed
}

// exited implements [exitHandler] for the anchor's own process.
func (a *anchor) exited(exit exitMessage) {
	a.exit = exit
	close(a.gone)
}

// startAnchored starts the run under an anchor, and is done when it has
// answered.
func (c *session) startAnchored(r *run, m *startMessage, cmd *command) {
	a, err := c.server.newAnchor()
	if err != nil {
		r.pipes.closeCommandEnds()
		c.drop(r, cmd, &StartError{Stage: StageFork, Errno: errnoOf(err), Text: "anchor"})
		return
	}
	err = a.link.send(kindStart, m, maxToGuest, cmd.files[:]...)
	r.pipes.closeCommandEnds()
	var started startedMessage
	if err == nil {
		started, err = a.awaitStart()
	}
	if err != nil {
		a.link.close()
		c.drop(r, cmd, err)
		return
	}
	c.server.mu.Lock()
	r.pid = started.PID
	c.server.anchors[r.id] = a
	c.server.mu.Unlock()
	c.server.relays.Go(func() { a.relay(r) })
	r.announce(c)
}

// newAnchor executes the guest's own program as an anchor.
func (s *server) newAnchor() (*anchor, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	attr := syscall.ProcAttr{
		Env:   []string{"GOMAXPROCS=1"},
		Files: []uintptr{uintptr(s.null), uintptr(s.null), uintptr(s.null), uintptr(pair[1])},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	a := &anchor{link: newLink(pair[0], maxFromGuest, 0), gone: make(chan struct{})}
	seq := s.reaper.begin()
	a.pid, err = syscall.ForkExec("/proc/self/exe", []string{"shelld-init", AnchorArg}, &attr)
	_ = unix.Close(pair[1])
	if err != nil {
		s.reaper.abort(seq)
		a.link.close()
		return nil, err
	}
	if exit, ended := s.reaper.commit(seq, a.pid, a); ended {
		a.exited(exit)
	}
	return a, nil
}

// awaitStart returns the anchor's answer to the start message.
func (a *anchor) awaitStart() (startedMessage, error) {
	var m startedMessage
	f, err := a.link.next()
	if err != nil {
		return m, &StartError{Stage: StageFork, Errno: syscall.EIO, Text: "anchor: " + err.Error()}
	}
	if f.kind == kindStarted {
		return m, f.decode(&m)
	}
	var fail failedMessage
	if err := f.decode(&fail); err != nil {
		return m, err
	}
	return m, &StartError{Stage: fail.Stage, Errno: syscall.Errno(fail.Errno), Text: fail.Text}
}

// relay waits for the command's exit and then for the anchor's. An anchor that
// ends without telling was killed, and all below it may live on; the run then
// ended as its anchor did.
func (a *anchor) relay(r *run) {
	defer a.link.close()
	f, err := a.link.next()
	var m exitedMessage
	if err == nil {
		err = f.decode(&m)
	}
	if err != nil {
		<-a.gone
		m.exitMessage = a.exit
	}
	r.exited(m.exitMessage)
	<-a.gone
	r.server.mu.Lock()
	if r.server.anchors[r.id] == a { // the id may have come again
		delete(r.server.anchors, r.id)
	}
	r.server.mu.Unlock()
}

// RunAnchor is the main function of an anchor. It starts the one command that
// the guest asks for, says how it ends, and returns when nothing that the
// command started is left: as a subreaper the anchor becomes the parent of
// whatever loses its own.
func RunAnchor() error {
	// Commands run as another user, so none can signal or trace an anchor.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set non-dumpable: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	unix.CloseOnExec(anchorFD)
	l := newLink(anchorFD, maxToGuest, 3)
	f, err := l.next()
	if err != nil {
		return err
	}
	var m startMessage
	if err := f.decode(&m); err != nil {
		return err
	}
	if len(f.fds) != 3 {
		return fmt.Errorf("%w: %d descriptors for an anchor", errFrame, len(f.fds))
	}
	if err := setCapabilities(startCapabilities, startCapabilities, 0); err != nil {
		return fmt.Errorf("drop inheritable capabilities: %w", err)
	}
	cmd := &command{
		argv: m.Argv, env: m.Env, dir: m.Dir, uid: m.UID, gid: m.GID, cgroup: -1,
		files: [3]int{f.fds[0], f.fds[1], f.fds[2]},
	}
	pid, err := spawn(cmd)
	f.close()
	if err != nil {
		fail := diagnose(cmd, err)
		return l.send(kindFailed, failedMessage{Op: opStart, ID: m.ID, Stage: fail.Stage, Errno: int(fail.Errno), Text: fail.Text}, maxFromGuest)
	}
	if err := setCapabilities(0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := l.send(kindStarted, startedMessage{ID: m.ID, PID: pid}, maxFromGuest); err != nil {
		return err
	}
	return reapAll(func(child int, exit exitMessage) {
		if child == pid {
			_ = l.send(kindExited, exitedMessage{ID: m.ID, exitMessage: exit}, maxFromGuest) // the guest is process 1: it is there
		}
	})
}

// reapAll reaps until there are no children.
func reapAll(reaped func(pid int, exit exitMessage)) error {
	for {
		pid, exit, err := waitAny()
		switch {
		case err == nil:
			reaped(pid, exit)
		case errors.Is(err, syscall.ECHILD):
			return nil
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("wait: %w", err)
		}
	}
}
