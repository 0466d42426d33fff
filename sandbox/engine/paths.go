package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/shelld/shelld/sandbox/engine/rundir"
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

func (d Dirs) validate() error {
	for name, dir := range map[string]string{"root": d.Root, "run": d.Run, "libexec": d.Libexec} {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return fmt.Errorf("%s directory %q: not an absolute path in its shortest form", name, dir)
		}
	}
	if err := rundir.Check(d.Run); err != nil {
		return err
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
func (d Dirs) guestDir(key string) string { return rundir.Guest(d.Run, key) }

func (d Dirs) binary(name string) string { return filepath.Join(d.Libexec, name) }

// instance tells the sandboxes of several engines apart in one containerd.
func (d Dirs) instance() string { return InstanceKey(d.Root) }

// InstanceKey returns 16 hexadecimal digits that stand for the instance with
// that root directory wherever several instances meet: in a containerd, among
// the machine's cgroups. What bears them is killed and removed by the instance
// as its own, so two must not have the same by chance.
func InstanceKey(root string) string {
	sum := sha256.Sum256([]byte(root))
	return hex.EncodeToString(sum[:8])
}

const (
	binContainerd = "containerd"
	binShim       = "containerd-shim-runc-v2"
	binRunc       = "runc"
	binInit       = "shelld-init"
)
