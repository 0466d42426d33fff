package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/sandbox"
)

func container() sandbox.Container {
	now := time.Now().Round(0)
	return sandbox.Container{ID: sandbox.NewID(), Status: sandbox.StatusRunning, CreatedAt: now, LastActiveAt: now}
}

func put(t *testing.T, s *Store, c sandbox.Container) {
	t.Helper()
	if err := s.PutContainer(t.Context(), c); err != nil {
		t.Fatalf("put container: %v", err)
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a folder with spaces?&#%41", "state.db")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	c := container()
	for i := range 3 {
		s, err := Open(t.Context(), file)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		list, err := s.Containers(t.Context())
		if err != nil || len(list) != min(i, 1) {
			t.Errorf("open %d: %v, %v", i, list, err)
		}
		put(t, s, c)
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file %v, %v; want it readable by its owner only", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(filepath.Dir(file)))
	if err != nil || len(entries) != 1 {
		t.Errorf("files beside the folder: %v, %v", entries, err)
	}
}

// Every older schema comes to the newest one, and what it holds stays.
func TestMigrate(t *testing.T) {
	t.Parallel()
	for version := range len(migrations()) + 1 {
		file := filepath.Join(t.TempDir(), "state.db")
		db := open(file)
		for _, step := range migrations()[:version] {
			if _, err := db.ExecContext(t.Context(), step); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.ExecContext(t.Context(), fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		s := openTest(t, file)
		put(t, s, container())
		var got int
		if err := s.read.QueryRowContext(t.Context(), "PRAGMA user_version").Scan(&got); err != nil || got != len(migrations()) {
			t.Errorf("from %d: version %d, %v", version, got, err)
		}
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, container())
	if _, err := s.write.ExecContext(t.Context(), "PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refusedUntouched(t, file, "newer shelld", "99")
}

// refusedUntouched wants that the file is refused with an error that has all
// the words, and that not a byte of it changes.
func refusedUntouched(t *testing.T, file string, words ...string) {
	t.Helper()
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), file)
	if err == nil {
		t.Error("the file was opened")
		_ = s.Close() // the test has failed
		return
	}
	for _, word := range append(words, file) {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
	after, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file changed from %d to %d bytes, %v", len(before), len(after), err)
	}
}

func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	good := filepath.Join(t.TempDir(), "state.db")
	s, err := Open(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		put(t, s, container())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	noise := bytes.Repeat([]byte("not a database at all\n"), 500)
	middle := bytes.Clone(whole)
	copy(middle[100:], noise[:4000])
	for name, content := range map[string][]byte{
		"text":                noise,
		"short text":          []byte("x"),
		"half of it":          whole[:len(whole)/2],
		"header only":         whole[:100],
		"damaged page":        middle,
		"damaged header":      append(bytes.Repeat([]byte{0xff}, 16), whole[16:]...),
		"zeroes":              make([]byte, 8192),
		"other's database":    foreignDatabase(t, "DELETE"),
		"other's in WAL mode": foreignDatabase(t, "WAL"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "state.db")
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			refusedUntouched(t, file, "move it away")
		})
	}
	t.Run("empty", func(t *testing.T) { // as a first start that was killed leaves it
		t.Parallel()
		file := filepath.Join(t.TempDir(), "state.db")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		put(t, openTest(t, file), container())
	})
}

// foreignDatabase is a database of another program.
func foreignDatabase(t *testing.T, mode string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "other.db")
	db := sql.OpenDB(connector{"file:" + file})
	if _, err := db.ExecContext(t.Context(), "PRAGMA journal_mode = "+mode+"; CREATE TABLE containers (x); CREATE TABLE theirs (y)"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestUnusablePlaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if s, err := Open(t.Context(), filepath.Join(dir, "none", "state.db")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v, %v", s, err)
	}
	if s, err := Open(t.Context(), dir); err == nil {
		t.Errorf("a folder was opened: %v", s)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped"))
	if s, err := Open(ctx, filepath.Join(dir, "state.db")); err == nil {
		t.Errorf("opened although canceled: %v", s)
	}
}

// mount mounts a tmpfs for the test.
func mount(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for a mount")
	}
	dir, err := os.MkdirTemp("", "store-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Unmount(dir, unix.MNT_DETACH), os.Remove(dir)); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func TestReadOnly(t *testing.T) {
	dir := mount(t, "size=1m,mode=0700")
	file := filepath.Join(dir, "state.db")
	s, err := Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s, err = Open(t.Context(), file)
	if err == nil {
		_ = s.Close() // the test has failed
	}
	if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), file) {
		t.Errorf("read-only file system: %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	dir := mount(t, "size=512k,mode=0700")
	s := openTest(t, filepath.Join(dir, "state.db"))
	kept := container()
	put(t, s, kept)
	fill(t, dir)

	c := container()
	c.Spec.Labels = map[string]string{"x": strings.Repeat("x", 64<<10)}
	err := s.PutContainer(t.Context(), c)
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || !errors.Is(err, sandbox.ErrStorageFull) || e.Code != sandbox.CodeStorageFull {
		t.Fatalf("put on a full disk: %v", err)
	}
	list, err := s.Containers(t.Context())
	if err != nil || len(list) != 1 || list[0].ID != kept.ID {
		t.Errorf("list on a full disk: %d, %v", len(list), err)
	}
	// A delete needs a little room for a moment; without it, it says so.
	err = s.DeleteContainer(t.Context(), kept.ID, time.Now())
	if err != nil && !errors.Is(err, sandbox.ErrStorageFull) {
		t.Errorf("delete on a full disk: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	put(t, s, c)
	if err := s.DeleteContainer(t.Context(), kept.ID, time.Now()); err != nil {
		t.Errorf("delete with room: %v", err)
	}
	if list, err := s.Containers(t.Context()); err != nil || len(list) != 1 || list[0].ID != c.ID {
		t.Errorf("list with room: %d, %v", len(list), err)
	}
}

// fill leaves no room in a file system.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // the disk is full
	for {
		if _, err := f.Write(make([]byte, 4096)); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
