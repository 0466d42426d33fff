// Package xdg finds the directories that belong to shelld by convention: those
// of the system when it runs as root, those of the XDG Base Directory
// specification when it runs as an ordinary user. The daemon and its clients
// both ask here, so that they always meet at the same socket.
package xdg

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Kind says which directory is wanted.
type Kind int

// The kinds of directory.
const (
	// Config holds config.toml: /etc/shelld or $XDG_CONFIG_HOME/shelld.
	Config Kind = iota
	// State holds what must survive: /var/lib/shelld or $XDG_STATE_HOME/shelld.
	State
	// Runtime holds sockets: /run/shelld or $XDG_RUNTIME_DIR/shelld.
	Runtime
)

// SocketName is the file name of the API socket in the [Runtime] directory.
const SocketName = "shelld.sock"

// name is the directory of ours below each base directory.
const name = "shelld"

// Env is what the lookup depends on.
type Env struct {
	// UID is the user for whom the lookup is made; 0 gets the system's
	// directories, whatever the environment says.
	UID int
	// Getenv reads an environment variable. It must not be nil.
	Getenv func(string) string
	// runUser is where logind makes the users' runtime directories. Empty:
	// /run/user. Tests set it.
	runUser string
}

// Host returns the environment of this process.
func Host() Env { return Env{UID: os.Geteuid(), Getenv: os.Getenv} }

// Dir returns the absolute path of the directory. It neither makes nor checks
// it. A variable that is not an absolute path is ignored, as the specification
// demands. The error says which variable to set.
func (e Env) Dir(kind Kind) (string, error) {
	system, variable, below := "", "", ""
	switch kind {
	case Config:
		system, variable, below = "/etc", "XDG_CONFIG_HOME", ".config"
	case State:
		system, variable, below = "/var/lib", "XDG_STATE_HOME", ".local/state"
	case Runtime:
		system, variable = "/run", "XDG_RUNTIME_DIR"
	default:
		return "", fmt.Errorf("find directory: unknown kind %d", kind)
	}
	if e.UID == 0 {
		return filepath.Join(system, name), nil
	}
	if dir := e.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, name), nil
	}
	if kind == Runtime {
		return e.loginRuntime()
	}
	home := e.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("find directory: neither %s nor HOME is set to an absolute path; set one of them", variable)
	}
	return filepath.Join(home, below, name), nil
}

// loginRuntime is for shells that were not started by a login session (su,
// cron): the variable is missing there, the directory is not.
func (e Env) loginRuntime() (string, error) {
	base := e.runUser
	if base == "" {
		base = "/run/user"
	}
	dir := filepath.Join(base, strconv.Itoa(e.UID))
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("find directory: XDG_RUNTIME_DIR is not set and %s does not exist; log in through systemd-logind, or set XDG_RUNTIME_DIR to a folder that only you can enter", dir)
	}
	return filepath.Join(dir, name), nil
}
