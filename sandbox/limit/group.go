package limit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// group is one cgroup: a directory of the same name in each hierarchy in use,
// of which v2 has one. It is a name only; the cgroup need not exist.
type group struct {
	// hs is never empty; its last element is the one whose list of processes
	// counts.
	hs []hierarchy
	// rel is the path below each mount point, with a leading slash.
	rel string
}

func (g group) child(name string) group { return group{hs: g.hs, rel: filepath.Join(g.rel, name)} }

func (g group) v2() bool { return g.hs[0].v2 }

// dir is the directory whose list of processes counts.
func (g group) dir() string { return filepath.Join(g.hs[len(g.hs)-1].dir, g.rel) }

// file returns the path of a controller's file. It is empty when no hierarchy
// has the controller.
func (g group) file(controller, name string) string {
	for _, h := range g.hs {
		if h.has(controller) {
			return filepath.Join(h.dir, g.rel, name)
		}
	}
	return ""
}

// create makes the cgroup in every hierarchy. One that is there already is
// taken as it is.
func (g group) create() error {
	for _, h := range g.hs {
		if err := os.Mkdir(filepath.Join(h.dir, g.rel), 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // cgroups are for all to see
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return nil
}

// remove removes the cgroup, which must have no children. When processes are
// in it the error is EBUSY and the directory that counts is still there.
func (g group) remove() error {
	for _, h := range g.hs {
		if err := rmdir(filepath.Join(h.dir, g.rel)); err != nil {
			return err
		}
	}
	return nil
}

func rmdir(dir string) error {
	// Not os.Remove, which would try unlink first and report its error.
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return nil
}

// exists reports whether the directory that counts is there.
func (g group) exists() bool {
	_, err := os.Stat(g.dir())
	return err == nil
}

// children returns the names of the cgroups directly below. A cgroup that is
// gone has none.
func (g group) children() ([]string, error) { return subdirs(g.dir()) }

func subdirs(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list cgroups: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// pids returns the processes in the cgroup itself, without those below. A
// cgroup that is gone has none.
func (g group) pids() ([]int, error) { return readPids(g.dir()) }

// pidsBelow returns the processes in the cgroup and in all below it.
func (g group) pidsBelow() ([]int, error) {
	pids, err := g.pids()
	if err != nil {
		return nil, err
	}
	names, err := g.children()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		below, err := g.child(name).pidsBelow()
		if err != nil {
			return nil, err
		}
		pids = append(pids, below...)
	}
	return pids, nil
}

func readPids(dir string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return parsePids(string(text))
}

// parsePids reads the text of cgroup.procs. The kernel writes 0 for a process
// of a pid namespace that we cannot see; such a one is left out.
func parsePids(text string) ([]int, error) {
	var pids []int
	for field := range strings.FieldsSeq(text) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		if pid > 0 {
			pids = append(pids, pid)
		}
	}
	// v1 lists a process once for each change of a thread.
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// populated reports whether any process is in the cgroup or below it.
func (g group) populated() (bool, error) {
	if !g.v2() {
		pids, err := g.pidsBelow()
		return len(pids) > 0, err
	}
	text, err := os.ReadFile(filepath.Join(g.dir(), "cgroup.events"))
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read cgroup events: %w", err)
	}
	n, err := counter(string(text), "populated")
	return n > 0, err
}

// counter finds the number behind name in a file of "name number" lines.
func counter(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[0] == name {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read %s: %w", name, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("read %s: %w", name, fs.ErrNotExist)
}

// open opens what a guest needs to put commands into the cgroup: the directory
// on v2, the tasks file of each hierarchy on v1. The caller closes the files.
func (g group) open() ([]*os.File, error) {
	name, flags := "tasks", unix.O_WRONLY
	if g.v2() {
		name, flags = "", unix.O_RDONLY|unix.O_DIRECTORY
	}
	files := make([]*os.File, 0, len(g.hs))
	for _, h := range g.hs {
		path := filepath.Join(h.dir, g.rel, name)
		// Not os.OpenFile, which would make the file non-blocking and put it
		// into the poller, though it goes to another process.
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("open cgroup %s: %w", path, err)
		}
		files = append(files, os.NewFile(uintptr(fd), path))
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// enable makes those of the controllers that the v2 cgroup has available to
// its children and returns which these then have. A refusal is only in the
// error; what else could be enabled is.
//
// A cgroup with processes of its own gets none. The kernel would refuse just
// memory and take pids and cpu, but make the children such that nothing can
// live in them: "domain invalid", see cgroups(7).
func (g group) enable(controllers ...string) ([]string, error) {
	if own, err := g.pids(); err != nil {
		return nil, err
	} else if len(own) > 0 && !g.top() {
		return nil, fmt.Errorf("no controllers can be enabled in %s: processes live in it", g.dir())
	}
	text, err := os.ReadFile(filepath.Join(g.dir(), "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("list controllers: %w", err)
	}
	available := strings.Fields(string(text))
	var (
		enabled []string
		errs    []error
	)
	for _, c := range controllers {
		if !slices.Contains(available, c) {
			errs = append(errs, fmt.Errorf("controller %s is not available in %s", c, g.dir()))
			continue
		}
		if err := writeFile(filepath.Join(g.dir(), "cgroup.subtree_control"), "+"+c); err != nil {
			errs = append(errs, fmt.Errorf("enable controller %s: %w", c, err))
			continue
		}
		enabled = append(enabled, c)
	}
	return enabled, errors.Join(errs...)
}

// top reports whether the v2 cgroup is the uppermost of the machine, in which
// processes may live beside cgroups.
func (g group) top() bool {
	_, err := os.Stat(filepath.Join(g.dir(), "cgroup.type"))
	return errors.Is(err, fs.ErrNotExist)
}

// vacate moves every process of the cgroup itself to another one, which it
// makes.
func (g group) vacate(ctx context.Context, to group) error {
	if err := to.create(); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		pids, err := g.pids()
		if err != nil || len(pids) == 0 {
			return true, err
		}
		for _, pid := range pids {
			err := writeFile(filepath.Join(to.dir(), "cgroup.procs"), strconv.Itoa(pid))
			// One that ended meanwhile needs no moving.
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return false, err
			}
		}
		return false, nil // a process may have forked
	})
}

// writeFile writes the text by one write to an existing file.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// gone reports whether the error says that a cgroup was removed, before or
// after its file was opened.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// Pauses between two looks at something that has no event to wait for.
const (
	pauseMin = 100 * time.Microsecond
	pauseMax = 5 * time.Millisecond
)

// until calls done with growing pauses until it reports true or fails. When
// ctx ends first the error is its cause.
func until(ctx context.Context, done func() (bool, error)) error {
	pause := pauseMin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
		pause = min(2*pause, pauseMax)
	}
}
