package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/sandbox"
)

// Mode is the kind of cgroups that a [Tree] works with.
type Mode int

// The modes.
const (
	// None means that this machine gives us no cgroup to work with.
	None Mode = iota
	// V1 means one directory in each of several hierarchies.
	V1
	// V2 means the unified hierarchy.
	V2
)

// String returns "none", "v1" or "v2".
func (m Mode) String() string {
	switch m {
	case V1:
		return "v1"
	case V2:
		return "v2"
	default:
		return "none"
	}
}

// defaultMountRoot is where distributions mount cgroup file systems.
const defaultMountRoot = "/sys/fs/cgroup"

// Options say where a [Tree] is.
type Options struct {
	// Name is the name of the tree's cgroup, unique for each instance of
	// shelld on the machine. Required.
	Name string
	// Parent is the path of the delegated v2 cgroup to work in, relative to
	// the mount point, such as [StartScope] returns. Empty: root takes the
	// top, others the cgroup that shelld itself is in. Not used on v1.
	Parent string
	// MountRoot is where to look for cgroup file systems. Empty:
	// /sys/fs/cgroup.
	MountRoot string
	// Logger takes what goes wrong in the background. Required.
	Logger *slog.Logger
}

// Tree is the cgroups of one instance of shelld. Its methods are safe for
// concurrent use. The cgroups outlive it: a new Tree of the same name, made by
// the next process, finds them again.
type Tree struct {
	mode   Mode
	reason string
	root   group
	// all are the hierarchies in which the container runtime may make cgroups
	// for us, more than we use.
	all []hierarchy
	log *slog.Logger

	wake   chan struct{} // capacity 1: a wake-up that waits stands for all
	cancel context.CancelCauseFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	boxes  map[string]*Sandbox
}

// Open makes or finds the tree. That this machine has no usable cgroup is no
// error: the mode is then [None]. The context ends only the call. The caller
// must call [Tree.Close].
func Open(ctx context.Context, opts Options) (*Tree, error) {
	if err := checkName("name", opts.Name); err != nil {
		return nil, err
	}
	mountRoot := filepath.Clean(cmp.Or(opts.MountRoot, defaultMountRoot))
	hs, err := mounted(mountRoot)
	if err != nil {
		return nil, err
	}
	t := &Tree{
		log:   opts.Logger,
		wake:  make(chan struct{}, 1),
		boxes: make(map[string]*Sandbox),
	}
	if h, ok := unified(hs, mountRoot); ok {
		t.all = []hierarchy{h}
		err = t.openV2(h, opts)
	} else {
		t.all = hs
		err = t.openV1(pickV1(hs), opts)
	}
	if err != nil {
		return nil, fmt.Errorf("open cgroup tree: %w", err)
	}
	background, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t.cancel = cancel
	t.work.Go(func() { t.tend(background) })
	return t, nil
}

// none makes the tree one of mode None for the given reason.
func (t *Tree) none(format string, args ...any) {
	t.mode, t.reason, t.root = None, fmt.Sprintf(format, args...), group{}
}

func (t *Tree) openV1(hs []hierarchy, opts Options) error {
	if len(hs) == 0 || !hs[len(hs)-1].has(ctlFreezer) {
		t.none("no cgroup v2 hierarchy is mounted on %s and no v1 hierarchy of the freezer below it; boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1) or mount them",
			cmp.Or(opts.MountRoot, defaultMountRoot))
		return nil
	}
	t.mode, t.root = V1, group{hs: hs, rel: "/" + opts.Name}
	if err := t.root.create(); refused(err) {
		t.none("cgroup v1 cannot be given to an ordinary user safely (%v); run shelld as root, or boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1)", err)
	} else if err != nil {
		return err
	}
	var missing []string
	for _, c := range []string{ctlMemory, ctlPids, ctlCPU} {
		if t.mode == V1 && t.root.file(c, "") == "" {
			missing = append(missing, c)
		}
	}
	if missing != nil {
		t.reason = fmt.Sprintf("no cgroup v1 hierarchy is mounted for %s, so limits on it are not enforced", strings.Join(missing, ", "))
	}
	return nil
}

// refused reports whether the error says that we may not, as opposed to that
// something is broken.
func refused(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
}

// checkName refuses what is not a name of one cgroup below another.
func checkName(what, name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\n\x00") {
		return sandbox.Invalid(what, "cgroup %s %q is not a file name", what, name)
	}
	return nil
}

// Mode returns which kind of cgroups the tree has.
func (t *Tree) Mode() Mode { return t.mode }

// Reason says in one sentence why the mode is [None] or which limits cannot be
// enforced, and what to do about it. It is empty when all is well.
func (t *Tree) Reason() string { return t.reason }

// SandboxPath returns the path to give to the container runtime for the
// sandbox with the given key, relative to the mount points. It is empty in
// mode [None].
func (t *Tree) SandboxPath(key string) string {
	if t.mode == None {
		return ""
	}
	return t.root.child(key).rel
}

// SetLimits caps all sandboxes together.
func (t *Tree) SetLimits(l Limits) (Report, error) {
	if t.mode == None {
		return l.unenforced(), nil
	}
	return t.root.setLimits(l)
}

// List returns the keys of the sandboxes that have a cgroup in any hierarchy,
// whether anything lives in it or not.
func (t *Tree) List() ([]string, error) {
	if t.mode == None {
		return nil, nil
	}
	var keys []string
	for _, h := range t.all {
		names, err := subdirs(filepath.Join(h.dir, t.root.rel))
		if err != nil {
			return nil, err
		}
		keys = append(keys, names...)
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}

// Remove kills everything in the sandbox, its guest too, and removes its
// cgroups. A sandbox without cgroups is no error. When ctx ends first the
// error wraps its cause, and Remove can be called again.
func (t *Tree) Remove(ctx context.Context, key string) error {
	if err := checkName("key", key); err != nil {
		return err
	}
	if t.mode == None {
		return nil
	}
	t.mu.Lock()
	s := t.boxes[key]
	delete(t.boxes, key)
	t.mu.Unlock()
	if s != nil {
		s.close()
	}
	return t.removeGroup(ctx, t.root.child(key))
}

// RemoveAll removes every sandbox as [Tree.Remove] does, and then the tree
// itself. The tree cannot be used afterwards but for Close.
func (t *Tree) RemoveAll(ctx context.Context) error {
	if t.mode == None {
		return nil
	}
	keys, err := t.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, key := range keys {
		errs = append(errs, t.Remove(ctx, key))
	}
	return errors.Join(append(errs, t.removeGroup(ctx, t.root))...)
}

func (t *Tree) removeGroup(ctx context.Context, g group) error {
	if err := g.kill(ctx, 0); err != nil {
		return err
	}
	for _, h := range t.all {
		err := until(ctx, func() (bool, error) {
			err := removeBelow(filepath.Join(h.dir, g.rel))
			// The kernel takes a moment to let the last process go.
			if errors.Is(err, unix.EBUSY) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return fmt.Errorf("remove cgroup %s: %w", g.rel, err)
		}
	}
	return nil
}

// removeBelow removes a cgroup directory and those below it.
func removeBelow(dir string) error {
	names, err := subdirs(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeBelow(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return rmdir(dir)
}

// Close stops the work in the background and waits for it. Cgroups and what
// lives in them stay. Close may be called more than once.
func (t *Tree) Close() error {
	t.mu.Lock()
	t.closed = true
	boxes := t.boxes
	t.boxes = nil
	t.mu.Unlock()
	for _, s := range boxes {
		s.close()
	}
	t.cancel(errClosed)
	t.work.Wait()
	return nil
}

var errClosed = fmt.Errorf("cgroup tree is closed: %w", sandbox.ErrUnavailable)
