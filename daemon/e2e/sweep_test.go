package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	basePrefix = "/tmp/sde2e-"
	cgroupRoot = "/sys/fs/cgroup"
	// corePatternFile is where the host's setting is; corePatternSaved, in the
	// base, is what it was before a test changed it.
	corePatternFile  = "/proc/sys/kernel/core_pattern"
	corePatternSaved = "core_pattern"
	// plantedList, in the base, names what tests have put elsewhere.
	plantedList = "planted"
)

// base is the folder of everything this test process makes. Its name tells
// which process that is, and it is short: sockets lie in it.
var base string

func makeBase() error {
	base = fmt.Sprintf("%s%d-%s", basePrefix, os.Getpid(), startTime(os.Getpid()))
	if err := os.Mkdir(base, 0o755); err != nil {
		return err
	}
	return os.Chmod(base, 0o755) // whatever the umask
}

// sweepStale removes what test processes that are no more have left.
func sweepStale() error {
	dirs, err := filepath.Glob(basePrefix + "*-*")
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		pid, start, _ := strings.Cut(strings.TrimPrefix(dir, basePrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && startTime(n) != start {
			errs = append(errs, sweep(dir))
		}
	}
	return errors.Join(errs...)
}

// sweep ends and removes everything that belongs to a base, and the base.
func sweep(dir string) error {
	if !strings.HasPrefix(dir, basePrefix) {
		return fmt.Errorf("%q is no base of these tests", dir)
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var errs []error
	if old, err := os.ReadFile(filepath.Join(dir, corePatternSaved)); err == nil {
		errs = append(errs, os.WriteFile(corePatternFile, old, 0o644))
	}
	if list, err := os.ReadFile(filepath.Join(dir, plantedList)); err == nil {
		for path := range strings.Lines(string(list)) {
			path = strings.TrimSpace(path)
			if strings.HasPrefix(filepath.Base(path), filepath.Base(dir)) {
				errs = append(errs, os.RemoveAll(path))
			}
		}
	}
	places, err := filepath.Glob(filepath.Join(dir, "*", "root*"))
	errs = append(errs, err, endAll(dir, places...))
	if name, err := os.ReadFile(filepath.Join(dir, "user")); err == nil {
		errs = append(errs, removeUser(string(name)))
	}
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}

// endAll ends all processes of a folder, and removes its mounts and the cgroups
// of the daemons with those state folders.
func endAll(dir string, roots ...string) error {
	var errs []error
	if !poll(patience, func() bool {
		found := processesOf(dir)
		for _, p := range found {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may be gone already
		}
		return len(found) == 0
	}) {
		errs = append(errs, fmt.Errorf("processes of %s do not end: %v", dir, processesOf(dir)))
	}
	for _, mount := range mountsOf(dir) {
		errs = append(errs, unix.Unmount(mount, unix.MNT_DETACH))
	}
	for _, root := range roots {
		for _, cgroup := range slices.Backward(cgroupsOf(root)) {
			if !poll(patience, func() bool { return rmdir(cgroup) == nil }) {
				errs = append(errs, fmt.Errorf("remove %s: %w", cgroup, rmdir(cgroup)))
			}
		}
	}
	return errors.Join(errs...)
}

func rmdir(dir string) error {
	if err := unix.Rmdir(dir); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// found is a process that has to do with a folder, and how that shows.
type found struct {
	pid  int
	how  string
	name string
}

func (f found) String() string { return fmt.Sprintf("%d (%s, by its %s)", f.pid, f.name, f.how) }

// processesOf returns the processes that name the folder on their command line
// or in their environment, are in it, or see a mount from it, as everything in
// a sandbox does. This process is left out.
func processesOf(dir string) []found {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return []found{{how: err.Error()}} // not taken for none
	}
	own, _ := os.Readlink("/proc/self/ns/mnt")
	mounts := map[string]bool{} // by mount namespace
	var list []found
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		how := ""
		proc := filepath.Join("/proc", entry.Name())
		if cwd, err := os.Readlink(proc + "/cwd"); err == nil && strings.HasPrefix(cwd, dir+"/") {
			how = "working directory"
		}
		for _, file := range []string{"environ", "cmdline"} {
			if data, err := os.ReadFile(filepath.Join(proc, file)); err == nil && strings.Contains(string(data), dir+"/") {
				how = file
			}
		}
		if ns, err := os.Readlink(proc + "/ns/mnt"); err == nil && ns != own && how == "" {
			seen, known := mounts[ns]
			if !known {
				data, err := os.ReadFile(proc + "/mountinfo")
				seen = err == nil && strings.Contains(string(data), dir+"/")
				mounts[ns] = seen && err == nil
			}
			if seen {
				how = "mounts"
			}
		}
		if how != "" && startTime(pid) != "" {
			comm, _ := os.ReadFile(proc + "/comm")
			list = append(list, found{pid: pid, how: how, name: strings.TrimSpace(string(comm))})
		}
	}
	return list
}

// mountsOf returns the mount points below the folder in the namespace of the
// tests, the deepest first.
func mountsOf(dir string) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return []string{err.Error()} // not taken for none
	}
	var points []string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	slices.Reverse(points)
	return points
}

// cgroupName is the name of the cgroup of the daemon with that state folder.
func cgroupName(root string) string {
	sum := sha256.Sum256([]byte(root))
	return "shelld-" + hex.EncodeToString(sum[:8])
}

// cgroupsOf returns the cgroups of the daemon with that state folder, in all
// hierarchies, parents before children.
func cgroupsOf(root string) []string {
	var dirs []string
	_ = filepath.WalkDir(cgroupRoot, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.Contains(path, cgroupName(root)) {
			dirs = append(dirs, path)
		}
		return nil // what has gone meanwhile is no fault
	})
	return dirs
}

// startTime tells a process from a later one of the same id: field 22 of
// /proc/<pid>/stat. It is empty for none, and for a zombie.
func startTime(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before may hold anything
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// patience bounds waits for what takes moments.
const patience = 20 * time.Second

// poll looks until done reports true, and returns false when that takes longer
// than limit.
func poll(limit time.Duration, done func() bool) bool {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-deadline.C:
			return done()
		case <-tick.C:
		}
	}
	return true
}
