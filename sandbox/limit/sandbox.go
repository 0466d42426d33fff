package limit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/sandbox"
)

// The cgroups in a sandbox's own.
const (
	initName = "init"
	runsName = "runs"
)

// Sandbox is the cgroups of one sandbox. Its methods are safe for concurrent
// use.
type Sandbox struct {
	tree  *Tree
	group group
	runs  group
	guest int

	// making is held while a run cgroup is made, so that close can wait for
	// the last one.
	making sync.Mutex

	mu     sync.Mutex
	closed bool
	ready  []*Run          // the stock, never used
	want   int             // how many the stock should have
	taken  map[string]*Run // by name; handed out and not released
	left   map[string]*Run // by name; released with processes in them
}

// Sandbox takes over the cgroup that the container runtime made for the
// sandbox with the given key: it makes the cgroups in it, moves the guest
// where it belongs, lets go what an earlier shelld left frozen, and starts the
// stock of run cgroups. guestPID is the guest's process id as shelld sees it.
// Call it after the sandbox was started, and for each one found after a
// restart of shelld; a further call for the same guest returns the same value.
//
// Errors match [sandbox.ErrNotFound] when there is no such cgroup,
// [sandbox.ErrConflict] when the process is not in it, and
// [sandbox.ErrUnavailable] in mode [None] or when the tree is closed.
func (t *Tree) Sandbox(ctx context.Context, key string, guestPID int) (*Sandbox, error) {
	if err := checkName("key", key); err != nil {
		return nil, err
	}
	if t.mode == None {
		return nil, fmt.Errorf("no cgroup for sandbox %s: %s: %w", key, t.reason, sandbox.ErrUnavailable)
	}
	t.mu.Lock()
	known, closed := t.boxes[key], t.closed
	t.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	if known != nil && known.guest == guestPID {
		return known, nil
	}
	g := t.root.child(key)
	s := &Sandbox{
		tree: t, group: g, runs: g.child(runsName), guest: guestPID,
		want: stockMin, taken: make(map[string]*Run), left: make(map[string]*Run),
	}
	if err := s.arrange(ctx); err != nil {
		return nil, fmt.Errorf("arrange cgroups of sandbox %s: %w", key, err)
	}
	return t.keep(key, s)
}

// keep enters the sandbox, unless another call was faster with the same guest.
func (t *Tree) keep(key string, s *Sandbox) (*Sandbox, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, errClosed
	}
	if known := t.boxes[key]; known != nil {
		if known.guest == s.guest {
			return known, nil
		}
		known.close()
	}
	t.boxes[key] = s
	t.nudge()
	return s, nil
}

// arrange brings the cgroups of the sandbox into their shape, from any state
// in which an earlier call may have left them.
func (s *Sandbox) arrange(ctx context.Context) error {
	if !s.group.exists() {
		return fmt.Errorf("cgroup %s: %w", s.group.dir(), sandbox.ErrNotFound)
	}
	home := s.group.child(initName)
	if err := s.holdsGuest(home); err != nil {
		return err
	}
	if !s.group.v2() {
		if err := s.runs.create(); err != nil {
			return err
		}
		return s.thaw()
	}
	// The runtime put the guest, and perhaps helpers of it, into the sandbox's
	// own cgroup, which must be empty to have controllers below.
	if err := s.group.vacate(ctx, home); err != nil {
		return fmt.Errorf("move the guest: %w", err)
	}
	// What cannot be enabled shows as a limit that is not enforced.
	_, _ = s.group.enable(ctlMemory, ctlPids, ctlCPU)
	if err := s.runs.create(); err != nil {
		return err
	}
	_, _ = s.runs.enable(ctlMemory, ctlPids, ctlCPU)
	return s.letGuestClone(s.group)
}

// holdsGuest makes sure that we never touch a process of others: after a
// restart of shelld a recorded pid may be anyone's.
func (s *Sandbox) holdsGuest(home group) error {
	own, err := s.group.pids()
	if err != nil {
		return err
	}
	moved, err := home.pids()
	if err != nil {
		return err
	}
	if !slices.Contains(own, s.guest) && !slices.Contains(moved, s.guest) {
		return fmt.Errorf("process %d is not the guest in cgroup %s: %w", s.guest, s.group.dir(), sandbox.ErrConflict)
	}
	return nil
}

// letGuestClone lets the guest, which does not own the cgroup, start processes
// into it: clone3 wants the caller to be able to write cgroup.procs of the
// target and of the lowest cgroup that holds both. The guest cannot reach the
// file by a path, and commands have neither path nor descriptor.
func (s *Sandbox) letGuestClone(g group) error {
	if err := os.Chmod(filepath.Join(g.dir(), "cgroup.procs"), 0o666); err != nil { //nolint:gosec // not enough for others, see above
		return fmt.Errorf("open cgroup to the guest: %w", err)
	}
	return nil
}

// thaw lets go what a shelld that died in the middle of a kill left frozen.
func (s *Sandbox) thaw() error {
	names, err := s.runs.children()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := s.runs.child(name).setFrozen(false); err != nil {
			return err
		}
	}
	return nil
}

// OpenHome opens the tasks files through which the guest's threads come back
// home on v1, in the same order as those of [Run.Open]. On v2 there are none.
// The caller closes them.
func (s *Sandbox) OpenHome() ([]*os.File, error) {
	if s.group.v2() {
		return nil, nil
	}
	return s.group.open()
}

// SetLimits caps all commands of the sandbox together.
func (s *Sandbox) SetLimits(l Limits) (Report, error) { return s.runs.setLimits(l) }

// Adopt returns the run cgroups that an earlier shelld made and that processes
// live in. It removes the others. Runs of this Sandbox are not touched.
func (s *Sandbox) Adopt() ([]*Run, error) {
	found, err := s.runs.children()
	if err != nil {
		return nil, err
	}
	var (
		adopted []*Run
		errs    []error
	)
	for _, name := range found {
		r := &Run{box: s, group: s.runs.child(name), name: name}
		populated, err := r.group.populated()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !s.claim(r, populated) {
			continue
		}
		if populated {
			adopted = append(adopted, r)
		} else if err := r.group.remove(); err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, err)
		}
	}
	return adopted, errors.Join(errs...)
}

// claim reports whether the cgroup is none that this Sandbox made or adopted,
// and enters it as taken if it is to be kept.
func (s *Sandbox) claim(r *Run, keep bool) bool {
	s.making.Lock() // else one that is being made is in no list
	defer s.making.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[r.name] != nil || s.left[r.name] != nil ||
		slices.ContainsFunc(s.ready, func(o *Run) bool { return o.name == r.name }) {
		return false
	}
	if keep {
		s.taken[r.name] = r
	}
	return true
}

// close ends the making of run cgroups and returns when none is being made.
func (s *Sandbox) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.making.Lock()
	defer s.making.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.ready { // nobody gets them any more
		closeAll(r.ahead)
		r.ahead = nil
	}
}

// isGone reports whether the sandbox's cgroup was removed, as the container
// runtime does when it deletes a container.
func isGone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
