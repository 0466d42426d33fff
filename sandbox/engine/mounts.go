package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/rpc/socket"
)

// arrangeMounts prepares the fresh mount namespace of a holder. Afterwards
// mounts of the host still come in but none of ours goes out, and
// [privateRun] is an empty directory of this engine alone.
func arrangeMounts(dirs Dirs) error {
	// Not private: a copy of a mount that never hears of its removal would
	// keep a stick from being ejected.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("detach mounts from the host: %w", err)
	}
	if err := replaceRun(dirs); err != nil {
		return err
	}
	// Entered by the root of each sandbox, listed by nobody else.
	if err := os.Mkdir(privateRun, 0o711); err != nil { //nolint:gosec // to be entered
		return fmt.Errorf("make %s: %w", privateRun, err)
	}
	return nil
}

// replaceRun mounts an empty /run in which only our own directories are left.
// Mounting on /run/containerd alone would need that directory on the host,
// where an ordinary user cannot make it.
func replaceRun(dirs Dirs) (err error) {
	kept := map[string]int{}
	defer func() {
		for _, fd := range kept {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	for _, dir := range []string{dirs.Run, dirs.Root, dirs.Libexec} {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return fmt.Errorf("resolve %s: %w", dir, err)
		}
		if !strings.HasPrefix(resolved, "/run/") {
			continue
		}
		fd, err := unix.Open(resolved, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", resolved, err)
		}
		kept[resolved] = fd
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount a private /run: %w", err)
	}
	for dir, fd := range kept {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as parents in /run are
			return fmt.Errorf("make %s in the private /run: %w", dir, err)
		}
		if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("keep %s in the private /run: %w", dir, err)
		}
	}
	return nil
}

// prepareDirs makes the directories of an engine. What is there already must
// be ours; the root directory writable by nobody else, and the run directory,
// whose sockets and records rule the engine, closed to others altogether.
func prepareDirs(dirs Dirs) error {
	if err := socket.EnsureDir(dirs.Run); err != nil {
		return notReady("the run directory cannot be used: %v", err)
	}
	if err := os.MkdirAll(dirs.Root, 0o700); err != nil {
		return fmt.Errorf("make engine directory: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dirs.Root, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: dirs.Root, Err: err}
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("engine directory %s: belongs to user %d with mode %#o; it must be the engine's own and writable by nobody else", dirs.Root, st.Uid, st.Mode&0o7777)
	}
	return nil
}

// removeHalves removes the directories of snapshots whose making or removal
// ended with containerd; it does not look for them itself.
func removeHalves(dirs Dirs) error {
	snapshots := filepath.Join(dirs.containerdRoot(), "io.containerd.snapshotter.v1."+snapshotter, "snapshots")
	entries, err := os.ReadDir(snapshots)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for half snapshots: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "rm-") || strings.HasPrefix(entry.Name(), "new-") {
			if err := os.RemoveAll(filepath.Join(snapshots, entry.Name())); err != nil {
				return fmt.Errorf("remove half snapshot: %w", err)
			}
		}
	}
	return nil
}
