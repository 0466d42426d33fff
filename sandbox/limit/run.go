package limit

import (
	"context"
	"fmt"
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
	// ahead are the files of Open, opened ahead of need; nil once they were
	// handed out. Whoever has the run uses them, one after the other.
	ahead []*os.File
}

// Run hands out a run cgroup that nothing was ever in. The caller ends with
// [Run.Release]. It matches [sandbox.ErrUnavailable] after the sandbox was
// removed or the tree closed.
func (s *Sandbox) Run() (*Run, error) { return s.take() }

// Open opens what the guest needs to start the command in the cgroup: on v2
// the directory, on v1 the tasks file of each hierarchy, to which one thread
// writes "0" in the order given. The caller closes the files.
func (r *Run) Open() ([]*os.File, error) {
	if files := r.ahead; files != nil {
		r.ahead = nil
		return files, nil
	}
	return r.group.open()
}

// PIDs returns the processes of the run as shelld sees them. The guest, one of
// whose threads is inside for a moment on v1, is left out.
func (r *Run) PIDs() ([]int, error) {
	pids, err := r.group.pids()
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == r.box.guest }), err
}

// Kill ends all processes of the run, however they were started, and returns
// when the cgroup is empty. On v1 it leaves the guest alone and waits until
// none of its threads is inside. When ctx ends first the error wraps its
// cause. Before the guest has answered that the command is started it does
// not suffice: an empty cgroup may be one that the command is yet to enter, see
// [Run.Discard].
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
	r.leave(gone, err)
	return err
}

// Discard is Release for a run that the guest may yet put a command into: it
// kills what is in the cgroup until that is removed, which nothing can enter
// any more. When ctx ends first the error wraps its cause.
func (r *Run) Discard(ctx context.Context) error {
	var gone bool
	err := until(ctx, func() (bool, error) {
		if err := r.group.kill(ctx, r.box.guest); err != nil {
			return false, err
		}
		var err error
		gone, err = r.tryRemove()
		return gone, err
	})
	r.leave(gone, err)
	if err != nil {
		return fmt.Errorf("discard run cgroup: %w", err)
	}
	return nil
}

// leave says that the caller is done with the run, whose cgroup is gone, or
// could not be removed, or is left with processes in it.
func (r *Run) leave(gone bool, err error) {
	closeAll(r.ahead)
	r.ahead = nil
	r.box.mu.Lock()
	delete(r.box.taken, r.name)
	if !gone && err == nil {
		r.box.left[r.name] = r
	}
	r.box.mu.Unlock()
	r.box.tree.nudge()
}
