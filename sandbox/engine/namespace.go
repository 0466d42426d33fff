package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// namespaceID identifies a mount namespace for ever. The kernel gives the
// inode number of one that has ended to another, and starts anew at a reboot.
type namespaceID struct {
	Boot  string `json:"boot"`
	Inode uint64 `json:"inode"`
	// Serial is never given twice. 0: the kernel, older than 6.11, has none.
	Serial uint64 `json:"serial"`
}

// getMountNamespaceID is NS_GET_MNTNS_ID of <linux/nsfs.h>.
const getMountNamespaceID = 0x8008b705

// identify returns the id of the mount namespace that the file stands for.
func identify(file *os.File) (namespaceID, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return namespaceID{}, fmt.Errorf("identify namespace: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return namespaceID{}, fmt.Errorf("identify namespace: %w", err)
	}
	id := namespaceID{Boot: strings.TrimSpace(string(boot)), Inode: st.Ino}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), getMountNamespaceID, uintptr(unsafe.Pointer(&id.Serial))) //nolint:gosec // this ioctl has no wrapper
	if errno != 0 && errno != unix.ENOTTY && errno != unix.EINVAL {
		return namespaceID{}, fmt.Errorf("identify namespace: %w", errno)
	}
	return id, nil
}

// recordNamespace notes the mount namespace of this process as the one in which
// all shims of this engine will live. It outlives the holder, as shims do.
func recordNamespace(dirs Dirs) error {
	file, err := os.Open("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("record namespace: %w", err)
	}
	defer file.Close()
	id, err := identify(file)
	if err != nil {
		return err
	}
	data, err := json.Marshal(id)
	if err != nil {
		return fmt.Errorf("record namespace: %w", err)
	}
	return replaceFile(dirs.namespaceRecord(), data)
}

// recordedNamespace returns what [recordNamespace] noted last, and the zero
// value, which no namespace has, when there is nothing.
func recordedNamespace(dirs Dirs) (namespaceID, error) {
	data, err := os.ReadFile(dirs.namespaceRecord())
	if errors.Is(err, fs.ErrNotExist) {
		return namespaceID{}, nil
	}
	var id namespaceID
	if err == nil {
		err = json.Unmarshal(data, &id)
	}
	if err != nil {
		return namespaceID{}, fmt.Errorf("read namespace record: %w", err)
	}
	return id, nil
}

// replaceFile writes a file so that it is there whole or not at all.
func replaceFile(path string, data []byte) error {
	temp := path + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// relative returns the namespace that the ioctl request names for another.
func relative(file *os.File, request uint) (*os.File, error) {
	fd, err := unix.IoctlRetInt(int(file.Fd()), request)
	if err != nil {
		return nil, fmt.Errorf("look at namespace: %w", err)
	}
	return os.NewFile(uintptr(fd), "namespace"), nil
}

// sameNamespace reports whether an open namespace is the one at path.
func sameNamespace(file *os.File, path string) bool {
	a, errA := file.Stat()
	b, errB := os.Stat(path)
	return errors.Join(errA, errB) == nil && os.SameFile(a, b)
}
