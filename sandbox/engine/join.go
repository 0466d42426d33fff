package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// errNoShim says that no sandbox of ours is alive.
var errNoShim = errors.New("no live shim")

// joinLive starts a holder in the namespaces of a live shim of ours. It returns
// [errNoShim] when there is none.
//
// A Go process cannot enter a user namespace itself, because it has several
// threads (setns(2)); nsenter(1) can.
func (h *host) joinLive(output *os.File) (*exec.Cmd, error) {
	pids, err := liveShims("/proc", h.containerdSocket())
	if err != nil {
		return nil, err
	}
	for _, pid := range pids {
		names := []string{"mnt"}
		if h.mode == ModeRootless {
			names = []string{"user", "mnt"}
		}
		files, err := openNamespaces("/proc", h.containerdSocket(), pid, names)
		if err != nil {
			h.Logger.Warn("shim cannot be joined", "pid", pid, "err", err)
			continue
		}
		h.Logger.Info("joining the namespaces of live sandboxes", "shim", pid)
		return h.enter(files, output)
	}
	return nil, errNoShim
}

// enter starts a holder in the namespaces that the files stand for, which it
// closes.
func (h *host) enter(files []*os.File, output *os.File) (*exec.Cmd, error) {
	argv := []string{"nsenter", "--preserve-credentials"}
	if len(files) == 2 {
		argv = append(argv, "--user=/proc/self/fd/"+strconv.Itoa(firstFD))
	}
	argv = append(argv, "--mount=/proc/self/fd/"+strconv.Itoa(firstFD+len(files)-1), "--")
	cmd := detached(append(argv, h.command(stageJoined)...), output)
	cmd.ExtraFiles = files
	err := cmd.Start()
	for _, file := range files {
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("start holder in live namespaces: %w", err)
	}
	return cmd, nil
}

// liveShims returns the processes that are shims of the containerd with that
// socket.
func liveShims(proc, address string) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("look for live shims: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && isShim(proc, address, pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isShim reports whether the process is a shim of ours. A process of another
// user never is: anyone can give his process any command line, and whoever
// makes a root engine enter his namespaces has it run his programs.
func isShim(proc, address string, pid int) bool {
	info, err := os.Stat(filepath.Join(proc, strconv.Itoa(pid)))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) != os.Geteuid() {
		return false
	}
	args := commandLine(proc, pid)
	i := slices.Index(args, "-address")
	return i >= 0 && i+1 < len(args) && args[i+1] == address && filepath.Base(args[0]) == binShim
}

// commandLine returns the arguments of a process; nil when it is gone.
func commandLine(proc string, pid int) []string {
	data, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
}

// openNamespaces opens namespaces of a shim and then makes sure that the
// process is a shim still.
func openNamespaces(proc, address string, pid int, names []string) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, file := range files {
				err = errors.Join(err, file.Close())
			}
		}
	}()
	for _, name := range names {
		file, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "ns", name))
		if err != nil {
			return files, fmt.Errorf("open namespace of shim: %w", err)
		}
		files = append(files, file)
	}
	if !isShim(proc, address, pid) {
		return files, fmt.Errorf("process %d is no shim any more", pid)
	}
	return files, nil
}
