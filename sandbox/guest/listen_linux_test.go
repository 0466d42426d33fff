package guest

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Whoever sees the socket can connect, at any moment.
func TestSocketIsThereWhenItListens(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("/tmp", "guest-listen-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	path := filepath.Join(dir, SocketName)
	for range 300 {
		seen := make(chan error, 1)
		go func() {
			for {
				if _, err := os.Lstat(path); err == nil {
					break
				}
			}
			conn, err := net.Dial("unix", path)
			if err == nil {
				err = conn.Close()
			}
			seen <- err
		}()
		fd, err := listen(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-seen; err != nil {
			t.Fatalf("connect: %v", err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o666 {
			t.Errorf("socket: %v, %v; want mode 0666", info, err)
		}
		if err := unix.Close(fd); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
