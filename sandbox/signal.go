package sandbox

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalName returns the signal's name without SIG, such as "KILL"; empty for
// zero, and the number for a signal without a name.
func SignalName(sig syscall.Signal) string {
	if sig == 0 {
		return ""
	}
	if name := unix.SignalName(sig); name != "" {
		return strings.TrimPrefix(name, "SIG")
	}
	return strconv.Itoa(int(sig))
}
