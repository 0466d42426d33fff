// Package rundir says how an engine lays out its run directory, as far as that
// bounds where the directory can be. It imports nothing of the engine, so that
// whoever chooses the directory can ask.
package rundir

import (
	"fmt"
	"path/filepath"

	"github.com/shelld/shelld/rpc/socket"
)

// guestSuffix is what the longest path of a socket adds to the directory: that
// of a sandbox with its key of 16 characters.
const guestSuffix = "/sb/0123456789abcdef/guest.sock"

// MaxLength is the longest path of a run directory. Unit: bytes.
const MaxLength = socket.MaxPath - len(guestSuffix)

// Guests returns the directory of all guests' directories in run.
func Guests(run string) string { return filepath.Join(run, "sb") }

// Guest returns the directory of the socket of the sandbox with that key.
func Guest(run, key string) string { return filepath.Join(Guests(run), key) }

// GuestSocket returns the path of the socket of the sandbox with that key.
func GuestSocket(run, key string) string { return filepath.Join(Guest(run, key), "guest.sock") }

// Check returns an error if the path is so long that the kernel would refuse
// sockets below it.
func Check(run string) error {
	if len(run) > MaxLength {
		return fmt.Errorf("run directory %s is too long: the sockets of sandboxes below it would have paths of %d bytes and the kernel allows %d; choose a --run of at most %d bytes",
			run, len(run)+len(guestSuffix), socket.MaxPath, MaxLength)
	}
	return nil
}
