package guest

import (
	"errors"
	"fmt"
	"syscall"
)

// A run is a command that was started and not yet forgotten.
type run struct {
	server *server
	id     string
	pipes  *pipes
	// settled is closed when the run is announced or dropped; nil unless it is
	// anchored.
	settled chan struct{}

	// Guarded by server.mu.
	pid       int // 0 while it is being started
	exit      *exitMessage
	announced bool // shelld was sent the started message
	forgotten bool // before it was announced; what announces it drops it
}

// exited records how the command ended and tells shelld, unless it has not
// heard yet that the command started: then that message says both.
func (r *run) exited(exit exitMessage) {
	r.server.mu.Lock()
	r.exit = &exit
	l := r.server.link
	tell := r.announced && !r.forgotten
	r.server.mu.Unlock()
	if tell {
		// When this fails shelld connects again and finds it in the list.
		_ = l.send(kindExited, exitedMessage{ID: r.id, exitMessage: exit}, maxFromGuest)
	}
}

// announce tells shelld that the command runs, and passes its pipes.
func (r *run) announce(c *session) {
	r.server.mu.Lock()
	m := startedMessage{ID: r.id, PID: r.pid, Exit: r.exit}
	r.server.mu.Unlock()

	fds := []int{r.pipes.stdoutRead, r.pipes.stderrRead}
	if r.pipes.stdinWrite >= 0 {
		fds = append(fds, r.pipes.stdinWrite)
	}
	c.reply(kindStarted, m, fds...)
	r.pipes.closeStdin()

	r.server.mu.Lock()
	r.announced = true
	r.settleLocked()
	exit, forgotten := r.exit, r.forgotten
	r.server.mu.Unlock()
	switch {
	case forgotten:
		r.server.forget(r.id)
	case m.Exit == nil && exit != nil:
		c.reply(kindExited, exitedMessage{ID: r.id, exitMessage: *exit})
	}
}

func (r *run) settleLocked() {
	if r.settled != nil {
		close(r.settled)
	}
}

// reserve checks a start message and enters its run, so that messages that
// follow find it. It returns nil for an id that is taken. An error ends the
// connection.
func (c *session) reserve(m *startMessage, cgroup []int) (*run, error) {
	if c.mode == "" {
		return nil, fmt.Errorf("%w: start before setup", errFrame)
	}
	want := len(c.home)
	if c.mode == CgroupV2 {
		want = 1
	}
	if len(cgroup) != want {
		return nil, fmt.Errorf("%w: start with %d descriptors, not %d", errFrame, len(cgroup), want)
	}
	if len(m.Argv) == 0 || m.ID == "" || len(m.ID) > maxIDLen {
		return nil, fmt.Errorf("%w: start of %q with %d arguments", errFrame, m.ID, len(m.Argv))
	}
	r := &run{server: c.server, id: m.ID}
	if c.mode == Anchored {
		r.settled = make(chan struct{})
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.server.runs[m.ID] != nil {
		return nil, nil //nolint:nilnil // said above
	}
	c.server.runs[m.ID] = r
	return r, nil
}

// start starts the command of a reserved run and answers. An error ends the
// connection.
func (c *session) start(r *run, m *startMessage, cgroup []int) error {
	if r == nil {
		c.fail(opStart, m.ID, &StartError{Stage: StageRequest, Errno: syscall.EEXIST})
		return nil
	}
	cmd := &command{argv: m.Argv, env: m.Env, dir: m.Dir, uid: m.UID, gid: m.GID, cgroup: -1}
	p, err := openPipes(m.Stdin)
	if err != nil {
		c.drop(r, cmd, &StartError{Stage: StagePipe, Errno: errnoOf(err)})
		return nil
	}
	r.pipes = p
	cmd.files = [3]int{c.server.null, p.stdoutWrite, p.stderrWrite}
	if m.Stdin {
		cmd.files[0] = r.pipes.stdinRead
	}
	if c.mode == Anchored {
		c.workers.Go(func() { c.startAnchored(r, m, cmd) })
		return nil
	}

	seq := c.server.reaper.begin()
	var pid int
	if c.mode == CgroupV1 {
		pid, err = spawnV1(cmd, cgroup)
	} else {
		cmd.cgroup = cgroup[0]
		pid, err = spawn(cmd)
	}
	r.pipes.closeCommandEnds()
	if pid <= 0 {
		c.server.reaper.abort(seq)
		c.drop(r, cmd, err)
	} else {
		c.commit(r, pid, seq)
	}
	if c.mode == CgroupV1 {
		return goHome(c.home)
	}
	return nil
}

// commit makes the child of fork seq the run's process and announces it.
func (c *session) commit(r *run, pid int, seq uint64) {
	c.server.mu.Lock()
	r.pid = pid
	c.server.mu.Unlock()
	if exit, ended := c.server.reaper.commit(seq, pid, r); ended {
		r.exited(exit)
	}
	r.announce(c)
}

// drop forgets a run that was not started and answers with the reason.
func (c *session) drop(r *run, cmd *command, err error) {
	c.server.mu.Lock()
	c.server.dropLocked(r)
	c.server.mu.Unlock()
	var fail *StartError
	if !errors.As(err, &fail) {
		fail = diagnose(cmd, err)
	}
	c.fail(opStart, r.id, fail)
}

// attach passes the output pipes of a run again. It works for one that has
// ended, too, because the pipes may hold what nobody has read.
func (c *session) attach(id string) {
	c.server.mu.Lock()
	r := c.server.runs[id]
	if r == nil || !r.announced {
		c.server.mu.Unlock()
		c.fail(opAttach, id, &StartError{Stage: StageRequest, Errno: syscall.ENOENT})
		return
	}
	m := startedMessage{ID: r.id, PID: r.pid, Exit: r.exit}
	fds, err := r.pipes.dupOutput() // a forget may close the run's own meanwhile
	c.server.mu.Unlock()
	if err != nil {
		c.fail(opAttach, id, &StartError{Stage: StagePipe, Errno: errnoOf(err)})
		return
	}
	c.reply(kindAttached, m, fds...)
	closeAll(fds)
}

func (c *session) fail(op, id string, e *StartError) {
	c.reply(kindFailed, failedMessage{Op: op, ID: id, Stage: e.Stage, Errno: int(e.Errno), Text: e.Text})
}

// forget drops the record and the pipes of a run. Its process, if there still
// is one, is reaped all the same.
func (s *server) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[id]
	switch {
	case r == nil:
	case !r.announced:
		r.forgotten = true
	default:
		s.dropLocked(r)
	}
}

func (s *server) dropLocked(r *run) {
	delete(s.runs, r.id)
	if !r.announced {
		r.settleLocked()
	}
	if r.pipes != nil {
		r.pipes.closeStdin()
		r.pipes.closeOutput()
	}
}
