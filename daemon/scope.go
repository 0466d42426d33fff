package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/limit"
)

const (
	sandboxScope = "shelld-sandboxes"
	cgroupMount  = "/sys/fs/cgroup"
	// scopeBudget is how long systemd may take to make the scope.
	scopeBudget = 5 * time.Second
)

// openTree finds this instance's place among the cgroups. On cgroup v2 under
// systemd that is a scope of its own, so that the daemon and the engine can be
// restarted without touching sandboxes.
func (d *daemon) openTree(ctx context.Context) (*limit.Tree, error) {
	name := instanceName(d.opts.Paths.Root)
	opts := limit.Options{Name: name, Logger: d.log}
	var stat unix.Statfs_t
	if unix.Statfs(cgroupMount, &stat) == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC {
		scope := fmt.Sprintf("%s-%s.scope", sandboxScope, name)
		parent, err := d.startScope(ctx, scope)
		if err != nil {
			d.log.WarnContext(ctx, "no scope of systemd for the sandboxes", "err", err)
		} else {
			opts.Parent, d.scope = parent, scope
		}
	}
	return limit.Open(ctx, opts)
}

func (d *daemon) startScope(ctx context.Context, unit string) (parent string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, scopeBudget, errors.New("systemd did not answer in time"))
	defer cancel()
	return limit.StartScope(ctx, limit.ScopeOptions{Unit: unit, Hold: d.holdScope})
}

// scoped is a backend that has the scope made again, which ends when its
// holder is killed and no sandbox lives, or when the user stops it.
type scoped struct {
	sandbox.Backend
	daemon *daemon
	mu     sync.Mutex
}

// Create implements [sandbox.Backend].
func (s *scoped) Create(ctx context.Context, spec sandbox.BoxSpec) (sandbox.Instance, error) {
	if err := s.restore(ctx); err != nil {
		return sandbox.Instance{}, sandbox.Unavailable(sandbox.CodeEngineUnavailable, err,
			"the cgroups of the sandboxes are gone and cannot be made again; the log says why")
	}
	return s.Backend.Create(ctx, spec)
}

func (s *scoped) restore(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.daemon
	if d.scope == "" || !d.tree.Gone() {
		return nil
	}
	d.log.WarnContext(ctx, "scope of the sandboxes is gone, making it again", "unit", d.scope)
	if _, err := d.startScope(ctx, d.scope); err != nil {
		return err
	}
	return d.tree.Restore()
}

// HoldCommand is the hidden subcommand of shelld that waits for ever: a scope
// of systemd ends with its last process, and this one keeps it.
const HoldCommand = "hold"

// holdScope starts the process that keeps the scope of the sandboxes.
func (d *daemon) holdScope(context.Context) (pid int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, HoldCommand) //nolint:noctx // it is to outlive this process
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Dir = "/"
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	// It ends with the process, which outlives us by design unless the scope
	// is stopped, so nobody waits for it. Without it that leaves a zombie.
	go func() { _ = cmd.Wait() }()
	return cmd.Process.Pid, nil
}
