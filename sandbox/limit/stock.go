package limit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// stockMin is how many run cgroups of a sandbox are ready ahead of need at
	// first. Making one takes as long as a fifth of a short command.
	stockMin = 4
	// stockMax is how far the stock of a busy sandbox grows: it doubles
	// whenever it is found empty.
	stockMax = 32
	// leftInterval is how often a cgroup that processes were left in is looked
	// at, to remove it when they are gone. Nobody waits for that.
	leftInterval = 2 * time.Second
)

// nudge wakes the background work. It never blocks.
func (t *Tree) nudge() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// tend refills the stocks and removes cgroups that have become empty, until
// ctx ends. It sleeps as long as there is nothing to do.
func (t *Tree) tend(ctx context.Context) {
	for {
		var again <-chan time.Time
		if t.tendAll() {
			again = time.After(leftInterval)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		case <-again:
		}
	}
}

// tendAll looks after each sandbox once and reports whether any has cgroups
// that wait to become empty.
func (t *Tree) tendAll() bool {
	t.mu.Lock()
	boxes := maps.Clone(t.boxes)
	t.mu.Unlock()
	waiting := false
	for key, s := range boxes {
		if err := s.refill(); err != nil && !isGone(err) {
			t.log.Warn("cannot make run cgroups ahead", "sandbox", key, "err", err)
		}
		left, err := s.reap()
		if err != nil {
			t.log.Warn("cannot remove run cgroups", "sandbox", key, "err", err)
		}
		waiting = waiting || left
	}
	return waiting
}

// refill makes run cgroups until the stock is full.
func (s *Sandbox) refill() error {
	for {
		done, err := s.refillOne()
		if done || err != nil {
			return err
		}
	}
}

func (s *Sandbox) refillOne() (done bool, err error) {
	s.making.Lock()
	defer s.making.Unlock()
	s.mu.Lock()
	done = s.closed || len(s.ready) >= s.want
	s.mu.Unlock()
	if done {
		return true, nil
	}
	r, err := s.makeRun()
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	s.ready = append(s.ready, r)
	s.mu.Unlock()
	return false, nil
}

// makeRun makes a run cgroup under a name that was never used before, since
// the caller's records of earlier runs go by it. It needs s.making.
func (s *Sandbox) makeRun() (*Run, error) {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	r := &Run{box: s, name: "r" + hex.EncodeToString(id[:])}
	r.group = s.runs.child(r.name)
	if err := r.group.create(); err != nil {
		return nil, errors.Join(err, r.group.remove())
	}
	if r.group.v2() {
		if err := errors.Join(r.group.dieTogether(), s.letGuestClone(r.group)); err != nil {
			return nil, errors.Join(err, r.group.remove())
		}
	}
	var err error
	if r.ahead, err = r.group.open(); err != nil {
		return nil, errors.Join(err, r.group.remove())
	}
	return r, nil
}

// take hands out a run cgroup, from the stock if it has one.
func (s *Sandbox) take() (*Run, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	if n := len(s.ready); n > 0 {
		r := s.ready[n-1]
		s.ready = s.ready[:n-1]
		s.taken[r.name] = r
		s.mu.Unlock()
		// Otherwise the stock is refilled when a run ends: now the guest needs
		// the kernel's cgroup lock to start the command.
		if n-1 <= stockMin/4 {
			s.tree.nudge()
		}
		return r, nil
	}
	s.want = min(2*s.want, stockMax)
	s.mu.Unlock()
	s.tree.nudge()
	return s.takeFresh()
}

func (s *Sandbox) takeFresh() (*Run, error) {
	s.making.Lock()
	defer s.making.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	r, err := s.makeRun()
	if err != nil {
		return nil, fmt.Errorf("make run cgroup: %w", err)
	}
	s.mu.Lock()
	s.taken[r.name] = r
	s.mu.Unlock()
	return r, nil
}

// reap removes the cgroups that processes were left in and that are empty now.
// It reports whether others remain.
func (s *Sandbox) reap() (waiting bool, err error) {
	s.mu.Lock()
	left := slices.Collect(maps.Values(s.left))
	if s.closed {
		left = nil
	}
	s.mu.Unlock()
	for _, r := range left {
		switch gone, e := r.tryRemove(); {
		case e != nil:
			err = errors.Join(err, e)
			fallthrough
		case gone:
			s.mu.Lock()
			delete(s.left, r.name)
			s.mu.Unlock()
		default:
			waiting = true
		}
	}
	return waiting, err
}

// tryRemove removes the cgroup unless processes are in it.
func (r *Run) tryRemove() (gone bool, err error) {
	populated, err := r.group.populated()
	if err != nil || populated {
		return false, err
	}
	err = r.group.remove()
	if errors.Is(err, unix.EBUSY) {
		return false, nil
	}
	return err == nil, err
}
