package engine

import "os"

// Mode is how much an engine may do on its host.
type Mode string

const (
	// ModeRoot is an engine that runs as the host's root.
	ModeRoot Mode = "root"
	// ModeRootless is an engine in a user namespace of an ordinary user.
	ModeRootless Mode = "rootless"
)

// hostMode is the mode of an engine that this process starts. It is called
// outside the engine's namespaces only: within, everybody is root.
func hostMode() Mode {
	if os.Geteuid() == 0 {
		return ModeRoot
	}
	return ModeRootless
}
