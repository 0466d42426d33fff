package engine

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPrepareDirs(t *testing.T) {
	t.Parallel()
	dirs := Dirs{Root: filepath.Join(t.TempDir(), "a", "root"), Run: filepath.Join(t.TempDir(), "b", "run")}
	if err := prepareDirs(dirs); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dirs.Root, dirs.Run} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v; want mode 0700", dir, info.Mode(), err)
		}
	}
	if err := prepareDirs(dirs); err != nil {
		t.Errorf("a second time: %v", err)
	}
	for _, mode := range []os.FileMode{0o755, 0o710, 0o701, 0o770} {
		if err := os.Chmod(dirs.Run, mode); err != nil {
			t.Fatal(err)
		}
		checkRefusal(t, hostMode(), prepareDirs(dirs), "chmod 700 "+dirs.Run)
	}
	if err := os.Chmod(dirs.Run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dirs.Root, 0o770); err != nil {
		t.Fatal(err)
	}
	if err := prepareDirs(dirs); err == nil {
		t.Error("a root directory that others can write is accepted")
	}
}
