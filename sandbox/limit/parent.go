package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// openV2 makes the tree's cgroup below the parent that the options name, or
// the best that there is, and enables the controllers for sandboxes.
func (t *Tree) openV2(h hierarchy, opts Options) error {
	own, visible, err := ownCgroup(h)
	if err != nil {
		return err
	}
	parent := filepath.Join("/", opts.Parent)
	if opts.Parent == "" && os.Geteuid() != 0 {
		if !visible {
			t.none("shelld's own cgroup is not visible below %s; run it where the cgroup file system of its own cgroup namespace is mounted", h.dir)
			return nil
		}
		parent = own
	}
	fix := "start shelld as a systemd user service, or name a delegated cgroup as its parent"
	if os.Geteuid() == 0 {
		fix = "name a delegated cgroup that has the controllers as its parent"
	}
	p := group{hs: []hierarchy{h}, rel: parent}
	t.mode, t.root = V2, p.child(opts.Name)
	if err := t.root.create(); refused(err) || errors.Is(err, fs.ErrNotExist) {
		t.none("no cgroup can be made in %s (%v); %s", parent, err, fix)
		return nil
	} else if err != nil {
		return err
	}
	// A process can be moved only by whoever may write the lowest cgroup that
	// both ends share, and the guests come from where shelld is.
	if shared := commonAncestor(own, t.root.rel); visible && unix.Access(filepath.Join(h.dir, shared, "cgroup.procs"), unix.W_OK) != nil {
		t.none("processes cannot be moved from %s to %s, since %s cannot be written by uid %d; %s", own, t.root.rel, shared, os.Geteuid(), fix)
		return nil
	}
	_, errParent := p.enable(ctlMemory, ctlPids, ctlCPU)
	if _, err := t.root.enable(ctlMemory, ctlPids, ctlCPU); err != nil {
		// What is missing in the tree is missing because of its parent, if
		// that had something to say.
		if errParent != nil {
			err = errParent
		}
		t.reason = fmt.Sprintf("some limits are not enforced (%s); %s",
			strings.ReplaceAll(err.Error(), "\n", ", "), fix)
	}
	return nil
}

// Gone reports whether somebody has removed the tree's cgroup, as systemd does
// with all below a scope that ends.
func (t *Tree) Gone() bool { return t.mode == V2 && !t.root.exists() }

// Restore makes a tree that is gone again, when its parent is there. Nothing
// lived in it, or it would not be gone.
func (t *Tree) Restore() error {
	if err := t.root.create(); err != nil {
		return fmt.Errorf("restore cgroup tree: %w", err)
	}
	parent := group{hs: t.root.hs, rel: filepath.Dir(t.root.rel)}
	for _, g := range []group{parent, t.root} {
		if _, err := g.enable(ctlMemory, ctlPids, ctlCPU); err != nil {
			return fmt.Errorf("restore cgroup tree: %w", err)
		}
	}
	return nil
}

// commonAncestor returns the lowest cgroup that holds both.
func commonAncestor(a, b string) string {
	shared := "/"
	as, bs := strings.Split(a, "/"), strings.Split(b, "/")
	for i := 0; i < min(len(as), len(bs)) && as[i] == bs[i]; i++ {
		shared = filepath.Join(shared, as[i])
	}
	return shared
}
