package limit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// freezeBudget is how long a v1 kill waits until all processes stand
	// still. One that sleeps in the kernel without end would never do so; then
	// the kill goes on without, and comes back for what was forked meanwhile.
	freezeBudget = 50 * time.Millisecond
	// roundBudget is how long a kill waits for killed processes to be gone
	// before it starts again from the beginning.
	roundBudget = time.Second
	// killChunk is how many processes are held at once, each by a descriptor.
	killChunk = 64
)

var (
	errFreezeBudget = errors.New("processes do not freeze")
	errRoundBudget  = errors.New("processes do not die")
)

// kill ends every process in the cgroup and below it but spare, and returns
// when none is left, spare neither: on v1 that is the guest while one of its
// threads is inside to fork, and what it forks must not get away. When ctx
// ends first the error wraps its cause.
func (g group) kill(ctx context.Context, spare int) error {
	round := g.killFrozen
	if g.v2() {
		round = g.killUnified
	}
	for {
		again, cancel := context.WithTimeoutCause(ctx, roundBudget, errRoundBudget)
		empty, err := round(again, spare)
		cancel()
		switch {
		case empty:
			return nil
		case ctx.Err() != nil:
			left, _ := g.pidsBelow()
			return fmt.Errorf("kill cgroup %s: %d processes left: %w", g.rel, len(left), context.Cause(ctx))
		case err != nil && !errors.Is(err, errRoundBudget):
			return fmt.Errorf("kill cgroup %s: %w", g.rel, err)
		}
	}
}

// killUnified lets the kernel kill the cgroup at once, with whatever forks in
// it at that moment, and waits until it is empty. There is nothing to spare: a
// guest on v2 is never inside a run.
func (g group) killUnified(ctx context.Context, _ int) (empty bool, err error) {
	err = writeFile(filepath.Join(g.dir(), "cgroup.kill"), "1")
	if gone(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	err = until(ctx, func() (bool, error) {
		populated, err := g.populated()
		return !populated, err
	})
	return err == nil, err
}

// killFrozen kills what is in a v1 cgroup now and waits until it is empty or
// something new is in it.
func (g group) killFrozen(ctx context.Context, spare int) (empty bool, err error) {
	pids, err := g.pidsBelow()
	if err != nil {
		return false, err
	}
	var killed []int
	if slices.ContainsFunc(pids, func(pid int) bool { return pid != spare }) {
		if killed, err = g.killStill(ctx, spare); err != nil {
			return false, err
		}
	}
	err = until(ctx, func() (bool, error) {
		pids, err := g.pidsBelow()
		empty = len(pids) == 0
		fresh := slices.ContainsFunc(pids, func(pid int) bool { return pid != spare && !slices.Contains(killed, pid) })
		return empty || fresh, err
	})
	return empty, err
}

// killStill makes all processes stand still, so that none can fork and no pid
// can change its owner between listing and killing, kills them, and lets them
// go, since a frozen process does not die on v1. It returns whom it killed.
func (g group) killStill(ctx context.Context, spare int) (killed []int, err error) {
	if err := g.setFrozen(true); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.setFrozen(false)) }()
	wait, cancel := context.WithTimeoutCause(ctx, freezeBudget, errFreezeBudget)
	defer cancel()
	if err := until(wait, g.frozen); err != nil && wait.Err() == nil {
		return nil, err
	}
	killed, err = g.pidsBelow()
	if err != nil {
		return nil, err
	}
	killed = slices.DeleteFunc(killed, func(pid int) bool { return pid == spare })
	for some := range slices.Chunk(killed, killChunk) {
		if err := g.killMembers(some); err != nil {
			return nil, err
		}
	}
	return killed, nil
}

// killMembers kills those of the processes that are in the cgroup. What does
// not stand still may end, and its id be that of any process of the machine
// then: a descriptor holds on to one process, which is a member if its id is
// listed afterwards.
func (g group) killMembers(pids []int) error {
	held := make(map[int]int, len(pids)) // descriptors by process id
	defer func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
			continue // gone, or a thread's id by now
		}
		if err != nil {
			return fmt.Errorf("hold process %d: %w", pid, err)
		}
		held[pid] = fd
	}
	members, err := g.pidsBelow()
	if err != nil {
		return err
	}
	for _, pid := range members {
		fd, ok := held[pid]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

// setFrozen freezes or thaws a v1 cgroup with all below it.
func (g group) setFrozen(frozen bool) error {
	state := "THAWED"
	if frozen {
		state = "FROZEN"
	}
	if err := writeFile(g.file(ctlFreezer, "freezer.state"), state); err != nil && !gone(err) {
		return fmt.Errorf("set freezer: %w", err)
	}
	return nil
}

// frozen reports whether all processes of a v1 cgroup stand still. One that is
// gone has none that moves.
func (g group) frozen() (bool, error) {
	text, err := os.ReadFile(g.file(ctlFreezer, "freezer.state"))
	if gone(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read freezer: %w", err)
	}
	return strings.TrimSpace(string(text)) == "FROZEN", nil
}
