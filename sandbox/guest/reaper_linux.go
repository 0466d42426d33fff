package guest

import (
	"errors"
	"sync"
	"syscall"
)

// A reaper waits for every child of the process, its own and those that it
// inherits as process 1, and tells the owners of those that were registered.
//
// A child may end before the goroutine that forked it could register it.
// Forks are not serialised with reaping for that; instead each fork is
// numbered when it begins, and exits of unknown children are kept while a
// fork is under way that began before them. A process id can't come round
// again within one fork, so a match is the fork's own child.
type reaper struct {
	mu       sync.Mutex
	seq      uint64
	forking  map[uint64]struct{} // begun and neither committed nor aborted
	children map[int]exitHandler
	early    map[int]earlyExit

	// wake tells loop that there may be children again.
	wake chan struct{}
}

// An exitHandler is told, once, how its child ended. It is called from the
// reaper's goroutine.
type exitHandler interface {
	exited(exitMessage)
}

type earlyExit struct {
	seq  uint64
	exit exitMessage
}

func newReaper() *reaper {
	return &reaper{
		forking:  make(map[uint64]struct{}),
		children: make(map[int]exitHandler),
		early:    make(map[int]earlyExit),
		wake:     make(chan struct{}, 1),
	}
}

// begin announces a fork. Its result goes to commit or abort.
func (r *reaper) begin() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seq++
	r.forking[r.seq] = struct{}{}
	return r.seq
}

// commit registers the child of fork seq. When the child has ended already it
// returns how, and the handler will not be called.
func (r *reaper) commit(seq uint64, pid int, h exitHandler) (exit exitMessage, ended bool) {
	r.mu.Lock()
	if e, ok := r.early[pid]; ok && e.seq >= seq {
		exit, ended = e.exit, true
	} else {
		r.children[pid] = h
	}
	r.finishLocked(seq)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return exit, ended
}

// abort ends a fork that made no child.
func (r *reaper) abort(seq uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finishLocked(seq)
}

// finishLocked drops the early exits that no fork can claim any more.
func (r *reaper) finishLocked(seq uint64) {
	delete(r.forking, seq)
	if len(r.early) == 0 {
		return
	}
	oldest := r.seq + 1
	for s := range r.forking {
		oldest = min(oldest, s)
	}
	for pid, e := range r.early {
		if e.seq < oldest {
			delete(r.early, pid)
		}
	}
}

func (r *reaper) reaped(pid int, exit exitMessage) {
	r.mu.Lock()
	h, known := r.children[pid]
	switch {
	case known:
		delete(r.children, pid)
	case len(r.forking) > 0:
		r.early[pid] = earlyExit{seq: r.seq, exit: exit}
	}
	r.mu.Unlock()
	if known {
		h.exited(exit)
	}
}

// loop reaps until done is closed, which it notices when it has no children
// left. It sleeps in wait4 itself: that is one wake-up from the end of a
// command to its message, where SIGCHLD through the runtime takes three.
//
// Without children it sleeps until the next commit. Orphans can't be missed
// by that: they come from descendants, so there is a child before.
func (r *reaper) loop(done <-chan struct{}) {
	for {
		pid, exit, err := waitAny()
		switch {
		case err == nil:
			r.reaped(pid, exit)
		case errors.Is(err, syscall.EINTR):
		default: // ECHILD
			select {
			case <-r.wake:
			case <-done:
				return
			}
		}
	}
}

// waitAny waits for any child to end.
func waitAny() (pid int, exit exitMessage, err error) {
	var status syscall.WaitStatus
	var usage syscall.Rusage
	pid, err = syscall.Wait4(-1, &status, 0, &usage)
	return pid, exitMessage{
		Status: uint32(status),
		UTime:  usage.Utime.Nano() / 1000,
		STime:  usage.Stime.Nano() / 1000,
	}, err
}
