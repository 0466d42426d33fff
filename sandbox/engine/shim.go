package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// shims finds the shims of one containerd.
//
// Anyone can give his process the command line of a shim, and whoever makes an
// engine enter his mount namespace has it run his programs with its rights. So
// what counts are the namespaces, which nobody can forge. A shim of ours
//   - is in our pid namespace, which no container is by default,
//   - is in the mount namespace that a holder of this engine made and recorded
//     (a directory that only we can write has the record), so whatever its
//     paths lead to is what we put there,
//   - and that namespace belongs to our user namespace (root), or to a child of
//     it (rootless).
//
// The file that a shim runs says nothing: it is replaced by each upgrade, while
// the shim lives on.
type shims struct {
	// address is the containerd's socket, which shims have on their command
	// line.
	address string
	mode    Mode
	// home is the mount namespace of the shims. Nil: that of a containerd
	// that is not ours, which is not known.
	home *namespaceID
}

// shimsOf finds the shims of the engine's own containerd.
func shimsOf(dirs Dirs, mode Mode) (shims, error) {
	home, err := recordedNamespace(dirs)
	return shims{address: dirs.containerdSocket(), mode: mode, home: &home}, err
}

// candidates returns the processes that look like shims of the containerd.
func (s shims) candidates() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for live shims: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && s.looksRight(pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// looksRight reports whether the process is of our user and has the command
// line of a shim.
func (s shims) looksRight(pid int) bool {
	info, err := os.Stat(procFile(pid, ""))
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) != os.Geteuid() {
		return false
	}
	args := commandLine(pid)
	return filepath.Base(args[0]) == binShim && option(args, "-address") == s.address
}

// namespaces returns the user and the mount namespace of a shim, which the
// caller closes, or an error that says why the process is none of ours. The
// check is of the open namespaces, so that it holds whatever becomes of the
// process.
func (s shims) namespaces(pid int) (user, mount *os.File, err error) {
	var opened []*os.File
	defer func() {
		for _, file := range opened {
			if err != nil || (file != user && file != mount) {
				err = errors.Join(err, file.Close())
			}
		}
	}()
	open := func(file *os.File, err error) (*os.File, error) {
		if err == nil {
			opened = append(opened, file)
		}
		return file, err
	}
	pids, err := open(os.Open(procFile(pid, "ns/pid")))
	if err != nil {
		return nil, nil, fmt.Errorf("look at shim: %w", err)
	}
	if !sameNamespace(pids, "/proc/self/ns/pid") {
		return nil, nil, errors.New("it is in another pid namespace")
	}
	if mount, err = open(os.Open(procFile(pid, "ns/mnt"))); err != nil {
		return nil, nil, fmt.Errorf("look at shim: %w", err)
	}
	id, err := identify(mount)
	if err != nil {
		return nil, nil, err
	}
	if s.home != nil && id != *s.home {
		return nil, nil, errors.New("it is in a mount namespace that is not this engine's")
	}
	if user, err = open(relative(mount, unix.NS_GET_USERNS)); err != nil {
		return nil, nil, err
	}
	expected := user
	if s.mode == ModeRootless {
		if expected, err = open(relative(user, unix.NS_GET_PARENT)); err != nil {
			return nil, nil, err
		}
	}
	if !sameNamespace(expected, "/proc/self/ns/user") {
		return nil, nil, errors.New("its mount namespace belongs to another user namespace")
	}
	return user, mount, nil
}

// kill kills the shim of the container with that id.
func (s shims) kill(id string) error {
	pids, err := s.candidates()
	if err != nil {
		return err
	}
	var errs []error
	for _, pid := range pids {
		errs = append(errs, s.killOne(pid, id))
	}
	return errors.Join(errs...)
}

// killOne kills the process if it is the shim of the container.
func (s shims) killOne(pid int, id string) error {
	// Opened first: it never stands for a later process with the same number.
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open shim of %s: %w", id, err)
	}
	process := os.NewFile(uintptr(fd), "pidfd")
	defer process.Close()
	args := commandLine(pid)
	if option(args, "-id") != id || args[len(args)-1] == "delete" {
		return nil // another's, or what containerd runs to clean up after a dead one
	}
	user, mount, err := s.namespaces(pid)
	if err != nil {
		return nil //nolint:nilerr // it has ended, or is none of ours
	}
	defer user.Close()
	defer mount.Close()
	if err := unix.PidfdSendSignal(int(process.Fd()), unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill shim of %s: %w", id, err)
	}
	return nil
}

func procFile(pid int, name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }

// commandLine returns the arguments of a process, at least one; it is empty
// when the process is gone.
func commandLine(pid int) []string {
	data, err := os.ReadFile(procFile(pid, "cmdline"))
	if err != nil {
		data = nil
	}
	return strings.Split(strings.TrimRight(string(data), "\x00"), "\x00")
}

// option returns the argument that follows name, or "".
func option(args []string, name string) string {
	i := slices.Index(args, name)
	if i < 0 || i+1 >= len(args) {
		return ""
	}
	return args[i+1]
}
