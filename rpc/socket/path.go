package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/rpc/socket/xdg"
)

const (
	// MaxPath is the longest path that a Unix socket can have; the kernel
	// wants a NUL after it. Unit: bytes. Source: unix(7).
	MaxPath = len(unix.RawSockaddrUnix{}.Path) - 1

	// variable overrides the default path for clients.
	variable = "SHELLD_SOCKET"
)

// ErrUnsafe says that a directory does not belong to us alone.
var ErrUnsafe = errors.New("unsafe directory")

// DefaultPath returns the path at which clients find the daemon of this user:
// $SHELLD_SOCKET, else the socket in the user's or the system's run directory.
// The error says which variable to set.
func DefaultPath() (string, error) {
	if path := os.Getenv(variable); path != "" {
		return path, nil
	}
	dir, err := xdg.Host().Dir(xdg.Runtime)
	if err != nil {
		return "", fmt.Errorf("%w, or set %s to the path of the socket", err, variable)
	}
	return filepath.Join(dir, xdg.SocketName), nil
}

// checkPath refuses what the kernel or package net would take for something
// else than a file.
func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("the socket's path is empty")
	case len(path) > MaxPath:
		return fmt.Errorf("the socket's path is too long: %s has %d bytes and the kernel allows %d; choose a shorter one", path, len(path), MaxPath)
	case strings.HasPrefix(path, "@") || strings.ContainsRune(path, 0):
		return fmt.Errorf("%q is no path of a file", path)
	}
	return nil
}

// EnsureDir makes the directory for sockets with mode 0700, parents included,
// or checks that an existing one belongs to us and that nobody else can enter
// it. It changes nothing about an existing directory. The error matches
// [ErrUnsafe] if the directory is not safe, and says how to make it so.
func EnsureDir(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make directory for sockets: %w", err)
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("check directory for sockets: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is %s, not a folder; move it away or choose another path", ErrUnsafe, dir, kind(info.Mode()))
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: %s belongs to user %d and shelld runs as user %d; choose a folder of your own", ErrUnsafe, dir, stat.Uid, os.Geteuid())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("%w: %s is open to other users (mode %04o); run: chmod 700 %s, or choose a folder of your own", ErrUnsafe, dir, mode, dir)
	}
	return nil
}

// kind names what is at a path to its owner.
func kind(mode fs.FileMode) string {
	switch mode.Type() {
	case 0:
		return "a file"
	case fs.ModeDir:
		return "a folder"
	case fs.ModeSymlink:
		return "a symbolic link"
	case fs.ModeSocket:
		return "a socket"
	default:
		return "a device or pipe"
	}
}
