package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// errLocked says that another process has the lock.
var errLocked = errors.New("locked by another process")

const (
	// lockWait is how long a lock may stay taken after its owner was killed: a
	// process with threads is gone from the process table before the last of
	// them has closed its files.
	lockWait = 2 * time.Second
	// lockPoll is the pause between two attempts.
	lockPoll = 10 * time.Millisecond
)

// awaitLock is [lockFile] with some patience for an owner that is dying.
func awaitLock(ctx context.Context, path string) (*os.File, error) {
	deadline := time.Now().Add(lockWait)
	for {
		file, err := lockFile(path)
		if err == nil || !errors.Is(err, errLocked) || time.Now().After(deadline) {
			return file, err
		}
		if !sleep(ctx, lockPoll) {
			return nil, errors.Join(context.Cause(ctx), err)
		}
	}
}

// lockFile takes the lock of the file, which it makes if need be, until the
// file is closed or the process ends. It does not wait.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("lock %s: %w", path, errLocked)
	default:
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	return nil, errors.Join(err, file.Close())
}
