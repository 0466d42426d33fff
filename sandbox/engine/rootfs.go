package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/shelld/shelld/sandbox/engine/hostimage"
)

// rootRequest asks for the root and the socket directory of a sandbox.
type rootRequest struct {
	// Key names the sandbox.
	Key string `json:"key"`
	// Root is the directory of the snapshot, empty as yet.
	Root  string           `json:"root"`
	Image *hostimage.Image `json:"image"`
	Owner hostimage.Owner  `json:"owner"`
}

// prepareRoot writes the root of a sandbox and makes the directory for its
// guest's socket. It runs where it may change owners: in the holder, or in the
// daemon of an engine without one.
func prepareRoot(dirs Dirs, req rootRequest) error {
	if !validKey(req.Key) || req.Image == nil {
		return errors.New("prepare root: the request lacks a key or an image")
	}
	resolved, err := filepath.EvalSymlinks(req.Root)
	if err != nil {
		return fmt.Errorf("prepare root: %w", err)
	}
	if !strings.Contains(resolved+"/", "/io.containerd.snapshotter.v1.") {
		return fmt.Errorf("prepare root: %s is no snapshot", req.Root)
	}
	if err := req.Image.Write(resolved, req.Owner); err != nil {
		return err
	}
	dir := dirs.guestDir(req.Key)
	if err := os.Mkdir(dir, 0o770); err != nil { //nolint:gosec // for the group below
		return fmt.Errorf("make guest directory: %w", err)
	}
	// The daemon's user, and root of the sandbox by its group.
	if err := errors.Join(os.Chown(dir, os.Geteuid(), req.Owner.RootGID), os.Chmod(dir, 0o770)); err != nil { //nolint:gosec // root of the sandbox has it by its group
		return fmt.Errorf("own guest directory: %w", err)
	}
	return nil
}

// validKey reports whether key is the short form of a container id.
func validKey(key string) bool {
	return len(key) == 16 && strings.Trim(key, "0123456789abcdef") == ""
}
