package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
)

// Dirs are the places that the parts of one engine share. All are absolute.
type Dirs struct {
	// Root holds what must survive a reboot: containerd's data and the log.
	Root string
	// Run holds sockets and locks and may be emptied by a reboot. It is short:
	// a socket's path is limited to 107 bytes (unix(7)).
	Run string
	// Libexec holds containerd, containerd-shim-runc-v2, runc and shelld-init.
	Libexec string
}

// maxRunDir is the longest usable run directory. Unit: bytes. The longest path
// beneath it is "/containerd.sock.ttrpc", 22 bytes, or a guest's socket,
// "/sb/<16>/guest.sock", 31; unix(7) allows 107.
const maxRunDir = 107 - 31

// GuestSocket is the name of the guest's socket in its directory.
const GuestSocket = "guest.sock"

func (d Dirs) validate() error {
	for name, dir := range map[string]string{"root": d.Root, "run": d.Run, "libexec": d.Libexec} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return fmt.Errorf("%s directory %q: not an absolute path in its shortest form", name, dir)
		}
	}
	if len(d.Run) > maxRunDir {
		return fmt.Errorf("run directory %q: longer than %d bytes, so that socket paths in it would exceed the system's limit", d.Run, maxRunDir)
	}
	if d.Root == d.Run {
		return errors.New("root and run directory are the same")
	}
	return nil
}

func (d Dirs) containerdRoot() string     { return filepath.Join(d.Root, "containerd") }
func (d Dirs) containerdConfig() string   { return filepath.Join(d.Root, "containerd.toml") }
func (d Dirs) log() string                { return filepath.Join(d.Root, "engine.log") }
func (d Dirs) rootLock() string           { return filepath.Join(d.Root, "holder.lock") }
func (d Dirs) namespaceRecord() string    { return filepath.Join(d.Root, "namespace.json") }
func (d Dirs) engineLock() string         { return filepath.Join(d.Run, "engine.lock") }
func (d Dirs) holderSocket() string       { return filepath.Join(d.Run, "holder.sock") }
func (d Dirs) holderState() string        { return filepath.Join(d.Run, "holder.json") }
func (d Dirs) containerdSocket() string   { return filepath.Join(d.Run, "containerd.sock") }
func (d Dirs) guestDir(key string) string { return filepath.Join(d.Run, "sb", key) }

func (d Dirs) binary(name string) string { return filepath.Join(d.Libexec, name) }

// instance tells the sandboxes of several engines apart in one containerd.
func (d Dirs) instance() string {
	sum := sha256.Sum256([]byte(d.Root))
	return hex.EncodeToString(sum[:8])
}

const (
	binContainerd = "containerd"
	binShim       = "containerd-shim-runc-v2"
	binRunc       = "runc"
	binInit       = "shelld-init"
)
