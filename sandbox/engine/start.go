package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shelld/shelld/sandbox"
)

// startHolder starts a holder and returns when it answers: in the namespaces
// that live sandboxes of ours hold, else in new ones.
func (h *host) startHolder(ctx context.Context) (holderState, error) {
	output, err := os.OpenFile(filepath.Join(h.Run, "holder.out"), os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return holderState{}, fmt.Errorf("open holder output: %w", err)
	}
	defer output.Close()
	cmd, err := h.joinLive(output)
	if errors.Is(err, errNoShim) {
		cmd, err = h.newNamespaces(output)
	}
	if err != nil {
		return holderState{}, err
	}
	return h.awaitHolder(ctx, cmd, output.Name())
}

// awaitHolder waits until the process answers as a holder, or ends. The
// process is waited for by a goroutine that lives as long as it does.
func (h *host) awaitHolder(ctx context.Context, cmd *exec.Cmd, output string) (holderState, error) {
	ended := make(chan error, 1)
	// Not owned by this call: it is what keeps the child from becoming a
	// zombie, and ends with the child, which outlives us by design.
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeoutCause(ctx, holderStart, errors.New("the holder did not answer in time"))
	defer cancel()
	tick := time.NewTicker(holderPoll)
	defer tick.Stop()
	for {
		if state, err := h.client.state(ctx); err == nil {
			return state, nil
		}
		select {
		case err := <-ended:
			return holderState{}, sandbox.Unavailable(sandbox.CodeNotReady, err,
				"the engine's holder ended at once: %s", lastLine(output, h.log()))
		case <-ctx.Done():
			// A holder that hangs must not keep the lock.
			err := errors.Join(context.Cause(ctx), cmd.Process.Kill(), ignoreExit(<-ended))
			return holderState{}, fmt.Errorf("start holder: %w", err)
		case <-tick.C:
		}
	}
}

// lastLine is the last line that is not empty of the first of the files that
// has one. A program that cannot go on says why at the end.
func lastLine(files ...string) string {
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		text := strings.TrimSpace(string(data))
		if line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]); line != "" {
			return line
		}
	}
	return "it left no message"
}

// command is a holder's command line for the given stage.
func (h *host) command(s stage) []string {
	args := holderArgs{dirs: h.Dirs, mode: h.mode, stage: s}
	return append(h.HolderCommand[:len(h.HolderCommand):len(h.HolderCommand)], args.args()...)
}

// newNamespaces starts a holder in new namespaces.
func (h *host) newNamespaces(output *os.File) (*exec.Cmd, error) {
	if h.mode == ModeRoot {
		cmd := detached(h.command(stageFresh), output)
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("start holder: %w", err)
		}
		return cmd, nil
	}
	host, err := h.Host.withDefaults()
	if err != nil {
		return nil, err
	}
	uids, gids, err := subordinateIDs(host)
	if err != nil {
		return nil, err
	}
	ready, tell, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	defer tell.Close()
	cmd := detached(h.command(stageUnmapped), output)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS
	cmd.ExtraFiles = []*os.File{ready} // mapsFD
	err = cmd.Start()
	if err := errors.Join(err, ready.Close()); err != nil {
		return nil, sandbox.Unavailable(sandbox.CodeNotReady, err, "the kernel refuses a user namespace; check the limits user.max_user_namespaces and kernel.unprivileged_userns_clone")
	}
	err = writeMaps(cmd.Process.Pid, host, uids, gids)
	if err == nil {
		_, err = tell.Write([]byte{0})
	}
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), ignoreExit(cmd.Wait()))
	}
	return cmd, nil
}

// writeMaps has the set-user-id helpers write the id maps of a process.
func writeMaps(pid int, host Host, uids, gids []subRange) error {
	for _, m := range []struct {
		tool string
		args []string
	}{
		{"newuidmap", mapArgs(host.UID, uids)},
		{"newgidmap", mapArgs(host.GID, gids)},
	} {
		out, err := exec.Command(m.tool, append([]string{strconv.Itoa(pid)}, m.args...)...).CombinedOutput() //nolint:noctx // it ends at once
		if err != nil {
			return sandbox.Unavailable(sandbox.CodeNotReady, err, "%s refuses the id map: %s; check that it is set-user-id root and that /etc/subuid and /etc/subgid fit", m.tool, bytes.TrimSpace(out))
		}
	}
	return nil
}

// detached is a command that outlives this process and its terminal.
func detached(argv []string, output *os.File) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // no context of ours ends it
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// ignoreExit drops the error that says that a process ended unsuccessfully.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}
