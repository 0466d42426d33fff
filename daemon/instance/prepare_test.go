package instance

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// nobody is a user that owns nothing here.
const nobody = 65534

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	put := func(name, text string) func(string) error {
		return func(root string) error {
			return errors.Join(os.Mkdir(root, 0o700), os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
		}
	}
	mode := func(mode os.FileMode) func(string) error {
		return func(root string) error { return errors.Join(os.Mkdir(root, 0o700), os.Chmod(root, mode)) }
	}
	tests := []struct {
		name  string
		setUp func(root string) error
		below string // what to prepare, below root
		want  string
	}{
		{name: "file", setUp: func(root string) error { return os.WriteFile(root, nil, 0o600) }, want: "ROOT is a file, not a folder; choose another --root"},
		{name: "below a file", setUp: func(root string) error { return os.WriteFile(root, nil, 0o600) }, below: "/a/b", want: "a part of the path ROOT/a/b is a file, not a folder; choose another --root"},
		{name: "dangling link", setUp: func(root string) error { return os.Symlink(root+"-none", root) }, want: "ROOT is a link that leads nowhere; remove it or choose another --root"},
		{name: "world-writable", setUp: mode(0o777), want: "other users can write to ROOT (mode 0777); run: chmod go-w ROOT"},
		{name: "group-writable", setUp: mode(0o770), want: "other users can write to ROOT (mode 0770); run: chmod go-w ROOT"},
		{name: "sticky", setUp: mode(os.ModeSticky | 0o777), want: "run: chmod go-w ROOT"},
		{name: "of another", setUp: put("holiday.jpg", "x"), want: `ROOT was not made by shelld (it holds "holiday.jpg" but no shelld.version); choose another --root or an empty folder`},
		{name: "newer", setUp: put(markerName, "2\n"), want: "ROOT was written by a newer shelld (layout 2, this one knows 1); update shelld or choose another --root"},
		{name: "damaged", setUp: put(markerName, "x"), want: `ROOT/shelld.version is damaged: it should hold a number and holds "x"`},
		{name: "marker empty", setUp: put(markerName, ""), want: `is damaged`},
		{name: "marker negative", setUp: put(markerName, "-1"), want: `is damaged`},
		{name: "marker is a folder", setUp: func(root string) error { return os.MkdirAll(filepath.Join(root, markerName), 0o700) }, want: "is a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			root := filepath.Join(dir, "root")
			if err := tt.setUp(root); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			for _, f := range []func(string) error{
				Prepare,
				func(root string) error { _, err := Take(t.Context(), root); return err },
			} {
				err := f(root + tt.below)
				if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), strings.ReplaceAll(tt.want, "ROOT", root)) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
			if diff := cmp.Diff(tree(t, dir), before); diff != "" {
				t.Errorf("something was changed: %s", diff)
			}
		})
	}
}

// tree lists what is below dir, with modes.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			all = append(all, path+" "+info.Mode().String())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestPrepareRefusesForeignFolder(t *testing.T) {
	t.Parallel()
	root := "/usr" // root's
	if os.Geteuid() == 0 {
		root = t.TempDir()
		if err := errors.Join(os.Chmod(root, 0o700), os.Chown(root, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	err := Prepare(root)
	if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "run as that user or choose another --root") {
		t.Errorf("Prepare = %v", err)
	}
}

func TestPrepareRefusesUnwritable(t *testing.T) {
	t.Parallel()
	fresh, used := filepath.Join(t.TempDir(), "fresh"), filepath.Join(t.TempDir(), "used")
	if err := errors.Join(Prepare(used), os.Mkdir(fresh, 0o700), os.WriteFile(filepath.Join(used, lockName), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // so that they can be removed
		if err := errors.Join(os.Chmod(fresh, 0o700), os.Chmod(used, 0o700)); err != nil {
			t.Error(err)
		}
	})
	// The folder alone is at fault, not the files in it.
	if err := errors.Join(
		os.Chmod(filepath.Join(used, markerName), 0o666), os.Chmod(filepath.Join(used, lockName), 0o666),
		os.Chmod(fresh, 0o555), os.Chmod(used, 0o555),
	); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{fresh, used, filepath.Join(fresh, "below")} {
		err := asNobody(func() error { _, err := Take(t.Context(), root); return err })
		if !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), "no permission to write to "+root) {
			t.Errorf("Take(%s) = %v", root, err)
		}
	}
}

func TestPrepareRefusesReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	const root = "/proc/sys/shelld-test" // never writable, not even for root
	if err := Prepare(root); !errors.Is(err, ErrUnusable) {
		t.Errorf("Prepare = %v", err)
	}
	if err := explain("/x", &os.PathError{Op: "mkdir", Path: "/x", Err: syscall.EROFS}); !strings.Contains(err.Error(), "/x is on a read-only file system; choose another --root") {
		t.Errorf("explain = %v", err)
	}
}

// asNobody calls f without root's right to write everywhere.
func asNobody(f func() error) error {
	if os.Geteuid() != 0 {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread, changed for good, ends with this goroutine.
		runtime.LockOSThread()
		if err := unix.Setfsuid(nobody); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

func TestPrepareAccepts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tests := map[string]func(root string) error{
		"absent": func(string) error { return nil },
		"empty":  func(root string) error { return os.Mkdir(root, 0o755) },
		"link": func(root string) error {
			return errors.Join(os.Mkdir(root+"-target", 0o700), os.Symlink(root+"-target", root))
		},
		"lost+found": func(root string) error { return os.MkdirAll(filepath.Join(root, "lost+found"), 0o700) },
		"died while starting": func(root string) error {
			return errors.Join(os.Mkdir(root, 0o700), os.WriteFile(filepath.Join(root, markerName+".123"), nil, 0o600), os.WriteFile(filepath.Join(root, lockName), nil, 0o600))
		},
	}
	for name, setUp := range tests {
		root := filepath.Join(dir, name)
		if err := setUp(root); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := Prepare(root); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if text, err := os.ReadFile(filepath.Join(root, markerName)); string(text) != "1\n" {
			t.Errorf("%s: marker %q, %v", name, text, err)
		}
	}
}

// TestPrepareAtOnce has one process use the folder as soon as it has prepared
// it, while others still look at it.
func TestPrepareAtOnce(t *testing.T) {
	t.Parallel()
	for range 50 {
		root := filepath.Join(t.TempDir(), "state")
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				err := Prepare(root)
				if err == nil {
					err = os.WriteFile(filepath.Join(root, "engine"), nil, 0o600)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
	}
}
