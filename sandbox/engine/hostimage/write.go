package hostimage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

const (
	// UserName is the sandbox's only user besides root.
	UserName = "sandbox"
	// UserID is the user and group id of [UserName] inside the sandbox.
	UserID = 1000
	// GuestRoot is the directory in the sandbox where PID 1 and its socket
	// are mounted.
	GuestRoot = "/.shelld"
	// GuestBinary is the path of PID 1 in the sandbox.
	GuestBinary = GuestRoot + "/init"
	// GuestDir is where PID 1 finds the directory for its socket until it
	// detaches it.
	GuestDir = GuestRoot + "/run"
	// WorkDir is the sandbox's working directory.
	WorkDir = "/mnt/data"
	// HomeDir is the home directory of [UserName].
	HomeDir = "/home/" + UserName
	// Hostname is the name that every sandbox has.
	Hostname = "sandbox"
)

// Owner gives the ids, in the namespace of the caller, of root and of the user
// of the sandbox. The group ids are the same numbers on the other map.
type Owner struct {
	RootUID, RootGID int
	UserUID, UserGID int
}

type entry struct {
	path string
	mode fs.FileMode // ModeDir, ModeSymlink or a regular file
	user bool        // belongs to the user instead of root
	text string      // content, or the link's target
}

// Write makes the tree in dir, an empty directory that becomes the sandbox's
// root, for a sandbox whose ids are those of owner. The caller needs the right
// to change owners. dir itself gets mode 0755 and root's ids.
func (img *Image) Write(dir string, owner Owner) (err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open sandbox root: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	w := writer{root: root, owner: owner}
	if err := errors.Join(root.Chmod(".", 0o755), root.Chown(".", owner.RootUID, owner.RootGID)); err != nil {
		return fmt.Errorf("own sandbox root: %w", err)
	}
	for _, e := range entries(img.Shell) {
		if err := w.write(e); err != nil {
			return err
		}
	}
	for _, link := range img.Links {
		if err := w.write(entry{path: link.Name, mode: fs.ModeSymlink, text: link.Target}); err != nil {
			return err
		}
	}
	for _, file := range img.Files {
		if err := w.copy(file); err != nil {
			return err
		}
	}
	for _, m := range img.Mounts {
		if err := w.mountPoint(m); err != nil {
			return err
		}
	}
	return nil
}

type writer struct {
	root  *os.Root
	owner Owner
}

func (w *writer) write(e entry) error {
	if err := w.parents(path.Dir(e.path)); err != nil {
		return err
	}
	uid, gid := w.owner.RootUID, w.owner.RootGID
	if e.user {
		uid, gid = w.owner.UserUID, w.owner.UserGID
	}
	var err error
	switch {
	case e.mode.IsDir():
		err = w.root.Mkdir(e.path, 0o700)
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	case e.mode&fs.ModeSymlink != 0:
		err = w.root.Symlink(e.text, e.path)
	default:
		err = w.root.WriteFile(e.path, []byte(e.text), 0o600)
	}
	if err == nil {
		err = w.root.Lchown(e.path, uid, gid)
	}
	if err == nil && e.mode&fs.ModeSymlink == 0 {
		err = w.root.Chmod(e.path, e.mode.Perm()|e.mode&fs.ModeSticky)
	}
	if err != nil {
		return fmt.Errorf("write sandbox file /%s: %w", e.path, err)
	}
	return nil
}

// parents makes the directories that lead to dir, as root's, where missing.
func (w *writer) parents(dir string) error {
	if dir == "." || dir == "/" {
		return nil
	}
	if _, err := w.root.Lstat(dir); err == nil {
		return nil
	}
	return w.write(entry{path: dir, mode: fs.ModeDir | 0o755})
}

// copy copies a file of the host. It has vanished since Detect when a package
// is being replaced at this moment; the sandbox then goes without.
func (w *writer) copy(file Mount) error {
	f, err := os.Open(file.Source)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read host file %s: %w", file.Target, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCopy))
	if err != nil {
		return fmt.Errorf("read host file %s: %w", file.Target, err)
	}
	return w.write(entry{path: strings.TrimPrefix(file.Target, "/"), mode: 0o644, text: string(data)})
}

// mountPoint makes what m is mounted on: a directory, or an empty file.
func (w *writer) mountPoint(m Mount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return fmt.Errorf("look at host path %s: %w", m.Target, err)
	}
	e := entry{path: strings.TrimPrefix(m.Target, "/"), mode: 0o644}
	if info.IsDir() {
		e.mode = fs.ModeDir | 0o755
	}
	return w.write(e)
}
