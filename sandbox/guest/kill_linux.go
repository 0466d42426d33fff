package guest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killBudget bounds one kill. What it leaves is reported.
const killBudget = 5 * time.Second

// rescan is how long a kill waits for the killed to be reaped before it looks
// again whether something is left.
const rescan = 10 * time.Millisecond

// maxListed caps a list of processes, to fit into a message.
const maxListed = 4096

// kill ends all that an anchored run started and answers when it is gone. A
// run that is being started is killed once it is, and a forgotten one if any
// of it still lives.
func (c *session) kill(id string) {
	r, a := c.server.find(id)
	switch {
	case r == nil && a == nil:
		c.fail(opKill, id, &StartError{Stage: StageRequest, Errno: syscall.ESRCH})
	case c.mode != Anchored:
		c.fail(opKill, id, &StartError{Stage: StageRequest, Errno: syscall.EOPNOTSUPP})
	default:
		// In a goroutine of its own: others may want to be killed as well.
		c.workers.Go(func() { c.reply(kindKilled, killedMessage{ID: id, Left: c.server.killRun(r, id)}) })
	}
}

// processes answers with what an anchored run has left running.
func (c *session) processes(id string) {
	_, a := c.server.find(id)
	c.workers.Go(func() {
		m := processesMessage{ID: id, PIDs: []int{}}
		if a != nil {
			for _, p := range a.below() {
				if len(m.PIDs) < maxListed {
					m.PIDs = append(m.PIDs, p.pid)
				}
			}
		}
		c.reply(kindProcesses, m)
	})
}

// find returns the record of a run and its anchor, each nil when there is none.
func (s *server) find(id string) (*run, *anchor) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id], s.anchors[id]
}

// killRun kills what the run started and returns how much is left.
func (s *server) killRun(r *run, id string) (left int) {
	deadline := time.Now().Add(killBudget)
	if r != nil && r.settled != nil {
		select {
		case <-r.settled:
		case <-time.After(killBudget):
			return 1
		}
	}
	if _, a := s.find(id); a != nil {
		return a.killBelow(deadline)
	}
	return 0
}

// below returns the living descendants of the anchor, none when it has ended
// and its process id may be another's.
func (a *anchor) below() []process {
	below := descendants(a.pid)
	select {
	case <-a.gone:
		return nil
	default:
		return below
	}
}

// killBelow kills the descendants of the anchor and returns how many are left
// after all. It stops before it kills, or a fork storm would get away: what is
// stopped can't fork, so once a look round finds only stopped processes it
// has found all.
func (a *anchor) killBelow(deadline time.Time) (left int) {
	stopped := make(map[process]bool)
	for time.Now().Before(deadline) {
		below := a.below()
		fresh := false
		for _, p := range below {
			if !stopped[p] {
				stopped[p], fresh = true, true
				p.signal(unix.SIGSTOP)
			}
		}
		if fresh {
			continue
		}
		for _, p := range below {
			p.signal(unix.SIGKILL)
		}
		select {
		case <-a.gone:
			return 0
		case <-time.After(rescan):
		}
	}
	return len(a.below())
}

// A process is one for good: ids come round again, but not within the clock
// tick that a start time counts.
type process struct {
	pid   int
	start uint64 // in clock ticks since boot
}

// signal sends sig to p unless p is gone, and never to another process that
// got its id: the descriptor holds on to one, and that one is then looked at.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd) //nolint:errcheck // nothing to lose
	if _, now, ok := stat(p.pid); ok && now == p {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0) // gone meanwhile: all the better
	}
}

// descendants returns the living processes below pid; zombies are none.
func descendants(pid int) []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1) // what could be read
	_ = dir.Close()
	children := make(map[int][]process)
	for _, name := range names {
		id, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent, p, ok := stat(id); ok {
			children[parent] = append(children[parent], p)
		}
	}
	var below []process
	for todo := children[pid]; len(todo) > 0; {
		p := todo[0]
		todo = append(todo[1:], children[p.pid]...)
		below = append(below, p)
	}
	return below
}

// stat reads the parent and the start time of a process that is no zombie.
func stat(pid int) (parent int, p process, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, process{}, false
	}
	// The name, second and in parentheses, may contain anything.
	_, rest, found := bytes.Cut(b[max(0, bytes.LastIndexByte(b, ')')):], []byte(" "))
	fields := bytes.Fields(rest)
	const state, ppid, starttime = 0, 1, 19 // fields 3, 4 and 22 of proc_pid_stat(5)
	if !found || len(fields) <= starttime || fields[state][0] == 'Z' || fields[state][0] == 'X' {
		return 0, process{}, false
	}
	parent, err = strconv.Atoi(string(fields[ppid]))
	if err != nil {
		return 0, process{}, false
	}
	start, err := strconv.ParseUint(string(fields[starttime]), 10, 64)
	if err != nil {
		return 0, process{}, false
	}
	return parent, process{pid: pid, start: start}, true
}
