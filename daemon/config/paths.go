package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/shelld/shelld/rpc/socket"
	"github.com/shelld/shelld/rpc/socket/xdg"
	"github.com/shelld/shelld/sandbox/engine/rundir"
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
	if err := rundir.Check(p.Run); err != nil {
		return fmt.Errorf("paths: %w", err)
	}
	if n := len(p.Socket); n > socket.MaxPath {
		return fmt.Errorf("paths: socket path %s is too long: %d bytes and the kernel allows %d; choose a shorter listen.socket or leave it empty",
			p.Socket, n, socket.MaxPath)
	}
	return nil
}
