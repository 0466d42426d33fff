package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/shelld/shelld/rpc/socket/xdg"
)

const (
	// maxSocketPath is the longest path that a Unix socket can have, one byte
	// being the NUL at its end. Unit: bytes. Source: unix(7).
	maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

	// guestSuffix is what the path of a sandbox's socket adds to the run
	// directory: a folder named by the sandbox's key of 16 characters.
	guestSuffix = "/sb/0123456789abcdef/guest.sock"
)

// Paths are the places of one instance of shelld, absolute and clean.
type Paths struct {
	// Root holds all state that survives a restart.
	Root string
	// Run holds the sockets.
	Run string
	// Socket is the API socket.
	Socket string
}

// FindPaths works out the places of this instance. root and run are the values
// of --root and --run; empty: the user's or the system's directory. A run that
// is given wins over listen.socket of the file, so that `--run DIR` always
// means DIR/shelld.sock. It looks only at names and makes nothing. The error
// says what to set, or which socket path would be too long for the kernel.
func FindPaths(env xdg.Env, c *Config, root, run string) (Paths, error) {
	var p Paths
	var err error
	if p.Root, err = place(env, xdg.State, root); err != nil {
		return Paths{}, fmt.Errorf("state directory: %w, or give --root", err)
	}
	if p.Run, err = place(env, xdg.Runtime, run); err != nil {
		return Paths{}, fmt.Errorf("run directory: %w, or give --run", err)
	}
	p.Socket = filepath.Join(p.Run, xdg.SocketName)
	if c.Listen.Socket != "" && run == "" {
		p.Socket = filepath.Clean(c.Listen.Socket)
	}
	if err := p.check(); err != nil {
		return Paths{}, err
	}
	return p, nil
}

func place(env xdg.Env, kind xdg.Kind, flag string) (string, error) {
	if flag == "" {
		return env.Dir(kind)
	}
	return filepath.Abs(flag)
}

func (p Paths) check() error {
	if strings.ContainsRune(p.Root+p.Run+p.Socket, 0) {
		return fmt.Errorf("paths: a path must not contain a NUL character")
	}
	if p.Root == p.Run {
		return fmt.Errorf("paths: --root and --run are both %s; they must be two folders", p.Root)
	}
	if n := len(p.Run) + len(guestSuffix); n > maxSocketPath {
		return fmt.Errorf("paths: run directory %s is too long: the sockets of sandboxes below it would have paths of %d bytes and the kernel allows %d; choose a --run of at most %d bytes",
			p.Run, n, maxSocketPath, maxSocketPath-len(guestSuffix))
	}
	if n := len(p.Socket); n > maxSocketPath {
		return fmt.Errorf("paths: socket path %s is too long: %d bytes and the kernel allows %d; choose a shorter listen.socket or leave it empty",
			p.Socket, n, maxSocketPath)
	}
	return nil
}
