package cli

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is a handle of a daemon's process that stays its own when the number
// is given to another. Negative: not known.
type process int

// openProcess returns the handle of a daemon's process. It is not known when
// the number does not name one here, which happens when the daemon sees other
// numbers than we do.
func openProcess(pid int) process {
	if pid <= 0 {
		return -1
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return -1
	}
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil || strings.TrimSpace(string(name)) != "shelld" {
		_ = unix.Close(fd) // nothing was written to it
		return -1
	}
	return process(fd)
}

func (p process) known() bool { return p >= 0 }

// ended says whether the process has; a process that its parent has not waited
// for has ended too.
func (p process) ended() bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(p), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func (p process) close() {
	if p.known() {
		_ = unix.Close(int(p)) // nothing was written to it
	}
}
