package guest

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// maxStarters is how many goroutines take messages and fork at most; more
// than processors would only wait for each other.
const maxStarters = 4

// helloRuns is how many runs one hello lists. Each takes less than 200 bytes.
const helloRuns = 256

// A server is the guest's end: it starts commands for one connection at a
// time and remembers them across connections.
type server struct {
	reaper *reaper
	null   int // /dev/null, the input of commands that get none
	// prepare readies the process for a mode. Nil: nothing to do.
	prepare func(Mode) error

	mu   sync.Mutex // taken before link.wmu
	runs map[string]*run
	// anchors are those that live, by run, also when that is forgotten.
	anchors map[string]*anchor
	link    *link // the newest connection; nil before the first

	relays sync.WaitGroup // the goroutines that wait for anchors
}

func newServer() (*server, error) {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/null: %w", err)
	}
	return &server{reaper: newReaper(), null: null, runs: make(map[string]*run), anchors: make(map[string]*anchor)}, nil
}

// serve accepts connections on the listening socket until accepting fails;
// each connection ends the one before.
func (s *server) serve(listener int) error {
	done := make(chan struct{})
	var reaping sync.WaitGroup
	reaping.Go(func() { s.reaper.loop(done) })
	defer reaping.Wait()
	defer close(done)
	defer s.relays.Wait()

	var current *session
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			if current != nil {
				current.end()
			}
			return fmt.Errorf("accept: %w", err)
		}
		// What the older connection was starting is in the list that the
		// newer one gets, because its session ends first.
		if current != nil {
			current.end()
		}
		current = s.attach(fd)
	}
}

// attach makes fd the current connection and starts its session.
func (s *server) attach(fd int) *session {
	timeout := unix.Timeval{Sec: sendTimeout}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout) // without it, a stuck shelld delays its successor
	l := newLink(fd, maxToGuest, maxFDsToGuest)

	// From here on exits go to the new link; they wait for the list.
	l.wmu.Lock()
	s.mu.Lock()
	s.link = l
	list := make([]startedMessage, 0, len(s.runs))
	for _, r := range s.runs {
		list = append(list, startedMessage{ID: r.id, PID: r.pid, Exit: r.exit})
	}
	s.mu.Unlock()
	var err error
	for more := true; more && err == nil; {
		n := min(len(list), helloRuns)
		more = n < len(list)
		err = l.sendLocked(kindHello, helloMessage{Version: Version, Runs: list[:n], More: more}, maxFromGuest, nil)
		list = list[n:]
	}
	l.wmu.Unlock()

	c := &session{server: s, link: l}
	if err == nil {
		c.workers.Go(c.work)
	}
	return c
}

// A session is what the server does for one connection.
type session struct {
	server  *server
	link    *link
	reading sync.Mutex // the reading role
	workers sync.WaitGroup

	// Set by the setup message before other workers start.
	mode Mode
	home []int // cgroup v1: tasks files of the guest itself
}

// end shuts the connection down and returns when nothing works for it.
func (c *session) end() {
	c.link.shutdown()
	c.workers.Wait()
	c.link.close()
	closeAll(c.home)
	c.home = nil
}

// work takes messages, one worker at a time, and starts commands, all workers
// at once: whoever has read a message lets another read on, so that a message
// is never handed between goroutines. What is no start is carried out before
// the next message is read, so that the order in which shelld sent it counts.
func (c *session) work() {
	for {
		err := c.step()
		if err == nil {
			continue
		}
		c.link.shutdown()
		if c.mode == CgroupV1 && !errors.Is(err, errStranded) {
			// Without this the thread ends with the goroutine.
			runtime.UnlockOSThread()
		}
		return
	}
}

func (c *session) step() error {
	c.reading.Lock()
	message, fds, err := c.read()
	start, ok := message.(*startMessage)
	var r *run
	switch {
	case err != nil:
	case ok:
		// What shelld sends next may be about this run.
		if r, err = c.reserve(start, fds); err != nil {
			closeAll(fds)
		}
	default:
		err = c.handle(message, fds)
	}
	c.reading.Unlock()
	if err == nil && ok {
		err = c.start(r, start, fds)
		closeAll(fds)
	}
	return err
}

// read reads one message. The caller has the reading role.
func (c *session) read() (message any, fds []int, err error) {
	f, err := c.link.next()
	if err != nil {
		return nil, nil, err
	}
	switch f.kind {
	case kindSetup:
		message = &setupMessage{}
	case kindStart:
		message = &startMessage{}
	case kindKill:
		message = &killMessage{}
	case kindForget:
		message = &forgetMessage{}
	case kindAttach:
		message = &attachMessage{}
	case kindList:
		message = &listMessage{}
	case kindPing:
		message = &pingMessage{}
	default:
		err = fmt.Errorf("%w: %s for the guest", errFrame, f.kind)
	}
	if err == nil {
		err = f.decode(message)
	}
	if err == nil && len(f.fds) > 0 && f.kind != kindSetup && f.kind != kindStart {
		err = fmt.Errorf("%w: %s with descriptors", errFrame, f.kind)
	}
	if err != nil {
		f.close()
		return nil, nil, err
	}
	return message, f.fds, nil
}

// handle carries a message out that is no start. An error ends the connection.
func (c *session) handle(message any, fds []int) error {
	switch m := message.(type) {
	case *setupMessage:
		return c.setUp(m, fds)
	case *killMessage:
		c.kill(m.ID)
	case *forgetMessage:
		c.server.forget(m.ID)
	case *attachMessage:
		c.attach(m.ID)
	case *listMessage:
		c.processes(m.ID)
	case *pingMessage:
		c.reply(kindPong, m)
	}
	return nil
}

func (c *session) setUp(m *setupMessage, fds []int) error {
	if c.mode != "" {
		closeAll(fds)
		return fmt.Errorf("%w: second setup", errFrame)
	}
	c.home = fds
	known := m.Mode == CgroupV1 || m.Mode == CgroupV2 || m.Mode == Anchored
	if !known || (m.Mode == CgroupV1) != (len(fds) > 0) {
		return fmt.Errorf("%w: setup for %q with %d descriptors", errFrame, m.Mode, len(fds))
	}
	if c.server.prepare != nil {
		if err := c.server.prepare(m.Mode); err != nil {
			c.fail(opSetup, "", &StartError{Stage: StageRequest, Errno: errnoOf(err), Text: "prepare"})
			return nil
		}
	}
	c.mode = m.Mode
	if err := c.settle(); err != nil {
		c.mode = ""
		c.fail(opSetup, "", &StartError{Stage: StageCgroup, Errno: errnoOf(err)})
		return nil
	}
	for range min(maxStarters, runtime.NumCPU()) - 1 {
		c.workers.Go(c.assist)
	}
	c.reply(kindReady, readyMessage{})
	return nil
}

// settle makes the calling worker fit for the mode. On cgroup v1 it is to be
// one thread, at home there.
func (c *session) settle() error {
	if c.mode != CgroupV1 {
		return nil
	}
	runtime.LockOSThread()
	if err := enter(c.home); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	return nil
}

// assist is a further worker.
func (c *session) assist() {
	if c.settle() != nil {
		return // the first worker could; one less is no failure
	}
	c.work()
}

// reply answers on this connection, whether it is the current one or not.
func (c *session) reply(k kind, message any, fds ...int) {
	_ = c.link.send(k, message, maxFromGuest, fds...) // a failed link is replaced by shelld
}
