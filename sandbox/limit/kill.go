package limit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// freezeBudget is how long a v1 kill waits until all processes stand
	// still. One that sleeps in the kernel without end would never do so; then
	// the kill goes on without, and comes back for what was forked meanwhile.
	freezeBudget = 50 * time.Millisecond
	// roundBudget is how long a v1 kill waits for killed processes to be gone
	// before it looks for new ones.
	roundBudget = 30 * time.Millisecond
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
		err := round(ctx, spare)
		if err != nil {
			return fmt.Errorf("kill cgroup %s: %w", g.rel, err)
		}
		wait, cancel := context.WithTimeoutCause(ctx, roundBudget, errRoundBudget)
		err = until(wait, g.empty)
		cancel()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			left, _ := g.pidsBelow()
			return fmt.Errorf("kill cgroup %s: %d processes left: %w", g.rel, len(left), context.Cause(ctx))
		case !errors.Is(err, errRoundBudget):
			return fmt.Errorf("kill cgroup %s: %w", g.rel, err)
		}
	}
}

func (g group) empty() (bool, error) {
	populated, err := g.populated()
	return !populated, err
}

// killUnified lets the kernel kill the cgroup at once, with whatever forks in
// it at that moment. There is nothing to spare: a guest on v2 is never inside
// a run.
func (g group) killUnified(context.Context, int) error {
	err := writeFile(filepath.Join(g.dir(), "cgroup.kill"), "1")
	if gone(err) {
		return nil
	}
	return err
}

// killFrozen makes all processes stand still, so that none can fork and no pid
// can change its owner between listing and killing, kills them, and lets them
// go, since a frozen process does not die on v1.
func (g group) killFrozen(ctx context.Context, spare int) (err error) {
	pids, err := g.pidsBelow()
	if err != nil || !others(pids, spare) {
		return err
	}
	if err := g.setFrozen(true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.setFrozen(false)) }()
	wait, cancel := context.WithTimeoutCause(ctx, freezeBudget, errFreezeBudget)
	defer cancel()
	if err := until(wait, g.frozen); err != nil && wait.Err() == nil {
		return err
	}
	pids, err = g.pidsBelow()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if pid == spare {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

func others(pids []int, spare int) bool {
	for _, pid := range pids {
		if pid != spare {
			return true
		}
	}
	return false
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
