package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

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
		ctx, cancel := context.WithTimeoutCause(ctx, scopeBudget, errors.New("systemd did not answer in time"))
		defer cancel()
		parent, err := limit.StartScope(ctx, limit.ScopeOptions{Unit: scope, Hold: d.holdScope})
		if err != nil {
			d.log.WarnContext(ctx, "no scope of systemd for the sandboxes", "err", err)
		} else {
			opts.Parent, d.scope = parent, scope
		}
	}
	return limit.Open(ctx, opts)
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
