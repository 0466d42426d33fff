package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	path, err := exec.LookPath(command[0])
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the holder's program: %w", err), user.Close(), mount.Close())
	}
	// Not by its path, which may lead elsewhere in another mount namespace; the
	// folder, so that the process has the program's name.
	folder, err := openFolder(path)
	if err != nil {
		return nil, errors.Join(err, user.Close(), mount.Close())
	}
	files := []*os.File{folder, mount, user}
	passed := func(i int) string { return "/proc/self/fd/" + strconv.Itoa(firstFD+i) }
	argv := []string{"nsenter", "--preserve-credentials", "--mount=" + passed(1)}
	if h.mode == ModeRootless {
		argv = append(argv, "--user="+passed(2))
	}
	argv = append(argv, "--", filepath.Join(passed(0), filepath.Base(path)))
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

// openFolder opens the folder that holds a program. What is looked up from the
// descriptor is found as it is here, whatever lies there in other namespaces.
func openFolder(path string) (*os.File, error) {
	folder, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open folder of the holder's program: %w", err)
	}
	return folder, nil
}
