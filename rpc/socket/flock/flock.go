// Package flock takes advisory locks on files that end with their process.
// The socket and the state folder are each owned by whoever holds one.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process, or another part of this one, has the lock.
var ErrHeld = errors.New("lock is held")

const (
	// patience is how long [Take] waits for a holder. Unit: nanoseconds. A
	// process that was just killed still has its lock until the kernel has
	// torn it down; starting again right after kill -9 must work, on a busy
	// machine too.
	patience = 2 * time.Second
	// pause is the time between two tries. Unit: nanoseconds.
	pause = 10 * time.Millisecond
)

// Lock is a held lock. It ends with Close or with the process, however that
// dies; it is not passed on to child processes.
type Lock struct{ file *os.File }

// Take locks the file at path, which it makes with mode 0600 when there is
// none. The file is never removed: a second process could otherwise lock the
// old file while a third locks the new one. Take waits up to 2 s for a
// holder to end, then returns an error that matches [ErrHeld]; a ctx that ends
// first ends the wait. A symbolic link at path is not followed.
func Take(ctx context.Context, path string) (*Lock, error) {
	return lock(path, func(file *os.File) error { return wait(ctx, file) })
}

// Try is [Take] without the wait.
func Try(path string) (*Lock, error) { return lock(path, try) }

func lock(path string, how func(*os.File) error) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("take lock: %w", err)
	}
	if err := how(file); err != nil {
		return nil, errors.Join(fmt.Errorf("take lock %s: %w", path, err), file.Close())
	}
	return &Lock{file: file}, nil
}

func wait(ctx context.Context, file *os.File) error {
	begin := time.Now()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := try(file)
		if !errors.Is(err, ErrHeld) || time.Since(begin) > patience {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func try(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		default:
			return err
		}
	}
}

// Close releases the lock. A second Close returns an error.
func (l *Lock) Close() error { return l.file.Close() }
