package limit

import (
	"context"
	"os"
	"slices"
)

// Run is the cgroup of one command and of all that it starts. Its methods are
// safe for concurrent use. Once the cgroup is gone it has no processes, and
// killing it does nothing.
type Run struct {
	box   *Sandbox
	group group
	name  string
}

// Run hands out a run cgroup that nothing was ever in. The caller ends with
// [Run.Release]. It matches [sandbox.ErrUnavailable] after the sandbox was
// removed or the tree closed.
func (s *Sandbox) Run() (*Run, error) { return s.take() }

// Name is the name of the cgroup, unique in the life of the sandbox. Keep it
// with the record of the run: [Sandbox.Adopt] finds the run by it.
func (r *Run) Name() string { return r.name }

// Open opens what the guest needs to start the command in the cgroup: on v2
// the directory, on v1 the tasks file of each hierarchy, to which one thread
// writes "0" in the order given. The caller closes the files.
func (r *Run) Open() ([]*os.File, error) { return r.group.open() }

// PIDs returns the processes of the run as shelld sees them. The guest, one of
// whose threads is inside for a moment on v1, is left out.
func (r *Run) PIDs() ([]int, error) {
	pids, err := r.group.pids()
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == r.box.guest }), err
}

// Populated reports whether anything is in the cgroup: processes of the run,
// or on v1 a thread of the guest.
func (r *Run) Populated() (bool, error) { return r.group.populated() }

// Kill ends all processes of the run, however they were started, and returns
// when the cgroup is empty. On v1 it leaves the guest alone and waits until
// none of its threads is inside. When ctx ends first the error wraps its
// cause. Do not call it before the guest has answered that the command is
// started: an empty cgroup may be one that the command is yet to enter.
func (r *Run) Kill(ctx context.Context) error {
	// If it was released before, it can be removed now.
	defer r.box.tree.nudge()
	return r.group.kill(ctx, r.box.guest)
}

// SetLimits caps the run.
func (r *Run) SetLimits(l Limits) (Report, error) { return r.group.setLimits(l) }

// OOMKills returns how many processes of the run the kernel has killed because
// a memory limit was reached. It is 0 where memory cannot be limited.
func (r *Run) OOMKills() (int64, error) { return r.group.oomKills() }

// Release says that the command has ended. An empty cgroup is removed. With
// processes left in it, it stays until they end or [Run.Kill] ends them, and
// is then removed in the background.
func (r *Run) Release() error {
	gone, err := r.tryRemove()
	r.box.mu.Lock()
	delete(r.box.taken, r.name)
	if !gone && err == nil {
		r.box.left[r.name] = r
	}
	r.box.mu.Unlock()
	r.box.tree.nudge()
	return err
}
