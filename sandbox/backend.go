package sandbox

import (
	"context"
	"net"
)

// A Backend starts, lists and removes sandboxes and opens the connection to
// the guest in each. Everything else (commands, files, limits, output) goes
// over that connection, so this is all that a second kind of sandbox needs to
// provide. The suite in sandboxtest says what an implementation must do.
//
// All methods are safe for concurrent use. Errors that mean the engine is away
// match [ErrUnavailable].
type Backend interface {
	// Create makes and starts the sandbox and returns when its guest accepts
	// connections. When it fails nothing of the sandbox is left.
	Create(ctx context.Context, spec BoxSpec) (Instance, error)
	// List returns the sandboxes of this instance of shelld, dead ones too.
	List(ctx context.Context) ([]Instance, error)
	// Delete kills and removes the sandbox and all its data. A sandbox that
	// does not exist, or only half exists, is no error.
	Delete(ctx context.Context, id ID) error
	// OpenGuest connects to the guest. The caller closes the connection; a
	// newer connection to the same guest ends the older one.
	OpenGuest(ctx context.Context, id ID) (*net.UnixConn, error)
}

// BoxSpec is what a [Backend] needs to know to start a sandbox.
type BoxSpec struct {
	ID ID
	// Image is the root file system: "host" for the host's own programs.
	Image string
	// CgroupPath is the absolute path of the sandbox's cgroup below the
	// mount point of each hierarchy. Empty: this machine gives us none.
	CgroupPath string
}

// Instance is a sandbox as its backend sees it.
type Instance struct {
	ID ID
	// Running is false once PID 1 of the sandbox is gone.
	Running bool
	// PID is the guest's process id in shelld's own pid namespace; 0 when not
	// running.
	PID int
}
