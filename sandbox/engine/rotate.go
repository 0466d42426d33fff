package engine

import (
	"errors"
	"fmt"
	"os"
	"sync"
)

// maxLog is where the log is cut: the file becomes <name>.1, which replaces
// the one before. Unit: bytes.
const maxLog = 4 << 20

// rotatingFile is a log file that never takes more than twice its limit.
// It is safe for concurrent use.
type rotatingFile struct {
	path  string
	limit int64

	mu   sync.Mutex
	file *os.File
	size int64
}

func openRotating(path string, limit int64) (*rotatingFile, error) {
	r := &rotatingFile{path: path, limit: limit}
	if err := r.openLocked(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *rotatingFile) openLocked() error {
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(fmt.Errorf("open log: %w", err), file.Close())
	}
	r.file, r.size = file, info.Size()
	return nil
}

// Write appends p, in a new file when the current one is full.
func (r *rotatingFile) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.size > 0 && r.size+int64(len(p)) > r.limit {
		if err := r.rotateLocked(); err != nil {
			return 0, err
		}
	}
	n, err := r.file.Write(p)
	r.size += int64(n)
	return n, err
}

func (r *rotatingFile) rotateLocked() error {
	if err := os.Rename(r.path, r.path+".1"); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	old := r.file
	if err := r.openLocked(); err != nil {
		return err
	}
	return old.Close()
}

// Close closes the file; writing afterwards is an error.
func (r *rotatingFile) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Close()
}
