package instance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shelld/shelld/rpc/socket/flock"
)

var (
	// ErrInUse says that another daemon uses the state folder.
	ErrInUse = errors.New("state folder is in use")
	// ErrUnusable says that the state folder cannot be used as it is.
	ErrUnusable = errors.New("unusable state folder")
)

// lockName is the file whose lock the owner of the folder holds. Its content,
// a process id, is for messages only.
const lockName = "shelld.lock"

// Claim is the sole right to use a state folder. It ends with Close or with
// the process, however that dies, and is not passed on to child processes.
type Claim struct{ lock *flock.Lock }

// Take prepares the folder as [Prepare] does and claims it for this process.
// The error matches [ErrInUse] if another daemon has it, be it running or
// stopped; Take waits 2 s for that one to end, less if ctx ends.
func Take(ctx context.Context, root string) (*Claim, error) {
	if err := Prepare(root); err != nil {
		return nil, err
	}
	path := filepath.Join(root, lockName)
	lock, err := flock.Take(ctx, path)
	if errors.Is(err, flock.ErrHeld) {
		return nil, fmt.Errorf("%w: another shelld%s uses %s; use that one, stop it, or start with another --root and --run", ErrInUse, holder(path), root)
	}
	if err != nil {
		return nil, explain(root, err)
	}
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if err := os.WriteFile(path, []byte(pid), fileMode); err != nil {
		return nil, errors.Join(explain(root, err), lock.Close())
	}
	return &Claim{lock: lock}, nil
}

// Close gives up the claim. The folder and all in it stay.
func (c *Claim) Close() error { return c.lock.Close() }

// holder names the process that has the lock as far as it is known.
func holder(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 32))
	if err != nil {
		return ""
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}
