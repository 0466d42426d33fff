package daemon

import (
	"context"
	"os"
	"os/exec"
	"syscall"
)

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
	return cmd.Process.Pid, cmd.Process.Release()
}
