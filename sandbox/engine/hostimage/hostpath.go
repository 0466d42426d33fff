package hostimage

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// ErrHostPath says that a configured host path cannot be shown to sandboxes.
var ErrHostPath = errors.New("host path not usable")

// sandboxOwn are the paths at which a sandbox has something of its own.
func sandboxOwn() []string {
	return []string{
		"/proc", "/sys", "/dev", "/etc", "/run", "/var/run", "/var/lock", "/tmp", "/var/tmp", WorkDir, HomeDir, GuestRoot,
	}
}

// CheckHostPath tells by its name alone whether a path of the host can be shown
// to sandboxes. The error begins with the path in quotes and says why not.
// What the path leads to is for [Detect] to judge.
func CheckHostPath(path string) error {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return fmt.Errorf("%q: it must be an absolute path without \"..\", doubled or trailing slashes", path)
	}
	for _, own := range sandboxOwn() {
		if within(own, path) {
			return fmt.Errorf("%q: sandboxes have their own %s", path, own)
		}
		if within(path, own) {
			return fmt.Errorf("%q: not all of it can be shown; name the folders in it that commands need", path)
		}
	}
	if path == "/root" {
		return fmt.Errorf("%q: root's home is private; name the folders in it that commands need", path)
	}
	for _, name := range append([]string{"usr"}, rootNames()...) {
		if within("/"+name, path) {
			return fmt.Errorf("%q: sandboxes see /%s anyway", path, name)
		}
	}
	return nil
}

// addHostPath adds a path, or notes that it is missing.
func (img *Image) addHostPath(path string, private []string) error {
	if err := CheckHostPath(path); err != nil {
		return fmt.Errorf("%w: %w", ErrHostPath, err)
	}
	source, err := filepath.EvalSymlinks(filepath.Join(img.root, path))
	if err != nil {
		img.Missing = append(img.Missing, path)
		return nil
	}
	for _, dir := range append([]string{"/run", "/proc", "/sys", "/dev"}, private...) {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			resolved = dir
		}
		if within(source, resolved) || within(resolved, source) {
			return fmt.Errorf("%w: %q would show %s to sandboxes", ErrHostPath, path, dir)
		}
	}
	img.Mounts = append(img.Mounts, Mount{Source: source, Target: path})
	return nil
}
