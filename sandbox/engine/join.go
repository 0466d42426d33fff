package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"golang.org/x/sys/unix"
)

// errNoShim says that no sandbox of ours is alive.
var errNoShim = errors.New("no live shim")

// joinLive starts a holder in the namespaces of a live shim of ours. It returns
// [errNoShim] when there is none.
//
// A Go process cannot enter a user namespace itself, because it has several
// threads (setns(2)); nsenter(1) can.
func (h *host) joinLive(output *os.File) (*exec.Cmd, error) {
	ours, err := shimsOf(h.Dirs, h.mode)
	if err != nil {
		return nil, err
	}
	pids, err := ours.candidates()
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		user, mount, err := ours.namespaces(pid)
		if err != nil {
			h.Logger.Warn("process looks like a shim and cannot be joined", "pid", pid, "err", err)
			continue
		}
		h.Logger.Info("joining the namespaces of live sandboxes", "shim", pid)
		return h.enter(user, mount, output)
	}
	return nil, errNoShim
}

// enter starts a holder in the namespaces, which it closes.
func (h *host) enter(user, mount, output *os.File) (*exec.Cmd, error) {
	command := h.command(stageJoined)
	// Opened here: in a foreign namespace the path may lead elsewhere.
	program, err := openProgram(command[0])
	if err != nil {
		return nil, errors.Join(err, user.Close(), mount.Close())
	}
	files := []*os.File{program, mount, user}
	passed := func(i int) string { return "/proc/self/fd/" + strconv.Itoa(firstFD+i) }
	argv := []string{"nsenter", "--preserve-credentials", "--mount=" + passed(1)}
	if h.mode == ModeRootless {
		argv = append(argv, "--user="+passed(2))
	}
	argv = append(argv, "--", passed(0))
	cmd := detached(append(argv, command[1:]...), output)
	cmd.ExtraFiles = files
	err = cmd.Start()
	for _, file := range files {
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("start holder in live namespaces: %w", err)
	}
	return cmd, nil
}

// openProgram opens an executable to be run by way of its descriptor.
func openProgram(name string) (*os.File, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, fmt.Errorf("find holder program: %w", err)
	}
	file, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("open holder program: %w", err)
	}
	return file, nil
}
