package instance

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// markerName is the file that makes a folder shelld's own; it holds the
	// version of the layout.
	markerName = "shelld.version"
	// layout is the version of what is in the folder. It rises when an older
	// shelld could not use the folder any more.
	layout = 1

	fileMode = 0o600
	dirMode  = 0o700
)

// Prepare makes the state folder with mode 0700, parents included, and marks
// it as shelld's, or checks an existing one: it must be a folder of this user
// that nobody else can write to, with us able to, and either empty or marked. A folder
// that is not fit stays as it is, and the error, which matches [ErrUnusable],
// says why and what to do. root must be absolute. Several processes may
// prepare one folder at the same time.
func Prepare(root string) error {
	if !filepath.IsAbs(root) {
		return fmt.Errorf("%w: %q is not an absolute path", ErrUnusable, root)
	}
	if err := os.MkdirAll(root, dirMode); err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return explain(root, err)
	}
	if err := checkFolder(root); err != nil {
		return err
	}
	version, err := readMarker(root)
	switch {
	case err != nil:
		return err
	case version > layout:
		return fmt.Errorf("%w: %s was written by a newer shelld (layout %d, this one knows %d); update shelld or choose another --root", ErrUnusable, root, version, layout)
	case version > 0:
		return checkWritable(root)
	}
	return mark(root)
}

func checkFolder(root string) error {
	info, err := os.Stat(root)
	if err != nil {
		return explain(root, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is a file, not a folder; choose another --root", ErrUnusable, root)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d and shelld runs as user %d; run as that user or choose another --root", ErrUnusable, root, stat.Uid, os.Geteuid())
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%w: other users can write to %s (mode %04o); run: chmod go-w %s", ErrUnusable, root, mode, root)
	}
	return nil
}

func checkWritable(root string) error {
	// Without it, a lock file that is there could be locked in a folder in
	// which nothing can be stored.
	if err := unix.Faccessat(unix.AT_FDCWD, root, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return explain(root, err)
	}
	return nil
}

// readMarker returns the version of the layout, or 0 if there is no marker.
func readMarker(root string) (int, error) {
	path := filepath.Join(root, markerName)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, explain(root, err)
	}
	text, err := io.ReadAll(io.LimitReader(file, 32))
	if err := errors.Join(err, file.Close()); err != nil {
		return 0, explain(root, err)
	}
	version, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || version <= 0 {
		return 0, fmt.Errorf("%w: %s is damaged: it should hold a number and holds %q; if the folder is shelld's, write %d into it, else choose another --root", ErrUnusable, path, text, layout)
	}
	return version, nil
}

// mark makes a folder without a marker shelld's own, if there is nothing of
// anybody else in it.
func mark(root string) error {
	foreign, err := foreignEntry(root)
	if err != nil {
		return explain(root, err)
	}
	if foreign != "" {
		// Another process may have marked and used it since we looked.
		if version, err := readMarker(root); err != nil || version > 0 {
			return err
		}
		return fmt.Errorf("%w: %s was not made by shelld (it holds %q but no %s); choose another --root or an empty folder", ErrUnusable, root, foreign, markerName)
	}
	if err := writeMarker(root); err != nil {
		return explain(root, err)
	}
	return nil
}

// foreignEntry returns the name of something in the folder that a shelld that
// was just starting would not have left, or "".
func foreignEntry(root string) (string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		name := entry.Name()
		// A fresh ext4 file system has the last.
		ours := name == lockName || strings.HasPrefix(name, markerName) || name == "lost+found"
		if !ours {
			return name, nil
		}
	}
	return "", nil
}

// writeMarker writes the marker at once and for good: a reader sees all of it
// or none, also after a loss of power.
func writeMarker(root string) (err error) {
	file, err := os.CreateTemp(root, markerName+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = fmt.Fprintln(file, layout)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(root, markerName)); err != nil {
		return err
	}
	return syncFolder(root)
}

func syncFolder(root string) error {
	dir, err := os.Open(root)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// explain turns what the kernel says about the folder into what to do.
func explain(root string, err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: no permission to write to %s; change its owner or mode, or choose another --root: %w", ErrUnusable, root, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %s is on a read-only file system; choose another --root: %w", ErrUnusable, root, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: no room on the disk for %s; free some or choose another --root: %w", ErrUnusable, root, err)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %s is a link that leads nowhere; remove it or choose another --root: %w", ErrUnusable, root, err)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: a part of the path %s is a file, not a folder; choose another --root: %w", ErrUnusable, root, err)
	default:
		return fmt.Errorf("%w: %s: %w", ErrUnusable, root, err)
	}
}
