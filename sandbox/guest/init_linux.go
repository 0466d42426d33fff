package guest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SocketName is the name of the guest's socket in the directory of
// [Options.Dir].
const SocketName = "guest.sock"

// backlog is how many connections may wait to be accepted.
const backlog = 8

// Options say how the guest runs.
type Options struct {
	// Dir is the mount point below which the socket is made, and which is
	// then detached so that no path inside the sandbox leads to it.
	Dir string
}

// Run is the main function of process 1 of a sandbox: it sets the sandbox up,
// gives up the privileges that took, and serves. It returns only an error,
// upon which the process is to end.
func Run(opts Options) error {
	catchSignals()
	if err := keepDescriptors(); err != nil {
		return err
	}
	listener, err := listen(filepath.Join(opts.Dir, SocketName))
	if err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	if err := unix.Unmount(opts.Dir, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach %s: %w", opts.Dir, err)
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	s, err := newServer()
	if err != nil {
		return err
	}
	s.prepare = prepare
	return s.serve(listener)
}

// catchSignals makes the process outlive every signal that can be caught. It
// must not ignore them, since commands would inherit that.
func catchSignals() {
	signal.Notify(make(chan os.Signal, 1),
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGABRT, syscall.SIGTERM,
		syscall.SIGPIPE, syscall.SIGALRM, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	var deflt [4]uint64 // struct kernel_sigaction: SIG_DFL, no flags, no mask
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sigCancel,
		uintptr(unsafe.Pointer(&deflt)), 0, 8, 0, 0) //nolint:gosec // the call takes a pointer
}

// sigCancel is the first real-time signal, which C libraries keep for
// themselves and Go's runtime does not touch. Some programs leave it ignored
// for whatever they start (make does), and that is inherited. The second one
// is the runtime's.
const sigCancel = 32

// keepDescriptors keeps from commands what the guest may have inherited. Only
// marks it, because the runtime has descriptors, too.
func keepDescriptors() error {
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("mark descriptors close-on-exec: %w", err)
	}
	return nil
}

// listen makes the socket, open to all who can reach its directory. Whoever
// sees it at path can connect.
func listen(path string) (fd int, err error) {
	unready := path + ".new"
	if err := unix.Unlink(unready); err != nil && !errors.Is(err, unix.ENOENT) {
		return -1, fmt.Errorf("remove old socket: %w", err)
	}
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: unready})
	if err == nil {
		err = unix.Chmod(unready, 0o666)
	}
	if err == nil {
		err = unix.Listen(fd, backlog)
	}
	if err == nil {
		err = unix.Rename(unready, path)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen on %s: %w", path, err)
	}
	return fd, nil
}

// loopbackUp switches the interface lo on.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing to lose
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	return nil
}

// A capabilitySet has the bit 1<<c for each capability c.
type capabilitySet uint64

const (
	// startCapabilities are what starting a command as another user takes.
	startCapabilities capabilitySet = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID
	// keptCapabilities are what the guest keeps for good.
	keptCapabilities = startCapabilities | 1<<unix.CAP_KILL
)

// dropPrivileges leaves the process what it needs to start and to kill
// commands, and what it executes nothing to gain from.
func dropPrivileges() error {
	// What is not inheritable now can't be made so once the bounding set is
	// empty, and anchors may be asked for later.
	if err := setCapabilities(ownCapabilities, ownCapabilities, startCapabilities); err != nil {
		return fmt.Errorf("set inheritable capabilities: %w", err)
	}
	for c := uintptr(0); c < 64; c++ {
		in, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil {
			break // past the last capability
		}
		if in == 0 {
			continue
		}
		if err := prctlAll(unix.PR_CAPBSET_DROP, c); err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	if err := setCapabilities(keptCapabilities, keptCapabilities, startCapabilities); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if err := prctlAll(unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set non-dumpable: %w", err)
	}
	return nil
}

// prepare takes the inheritable capabilities away for all modes but the one
// that needs them. That is final: a guest does not change to that mode later.
func prepare(m Mode) error {
	if m != Anchored {
		return setCapabilities(keptCapabilities, keptCapabilities, 0)
	}
	_, inheritable, err := capabilities()
	if err == nil && inheritable&startCapabilities != startCapabilities {
		err = unix.EPERM
	}
	return err
}

// ownCapabilities, as an argument of setCapabilities, stands for those that
// the process has.
const ownCapabilities = ^capabilitySet(0)

// capabilities returns those of the calling thread.
func capabilities() (permitted, inheritable capabilitySet, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, 0, err
	}
	for i, d := range data {
		permitted |= capabilitySet(d.Permitted) << (32 * i)
		inheritable |= capabilitySet(d.Inheritable) << (32 * i)
	}
	return permitted, inheritable, nil
}

// setCapabilities sets those of all threads, within what they are permitted.
func setCapabilities(effective, permitted, inheritable capabilitySet) error {
	own, _, err := capabilities()
	if err != nil {
		return err
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		data[i] = unix.CapUserData{
			Effective:   uint32((effective & own) >> (32 * i)),
			Permitted:   uint32((permitted & own) >> (32 * i)),
			Inheritable: uint32(inheritable >> (32 * i)),
		}
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data[0])), 0) //nolint:gosec // capset(2) takes pointers
	if errno != 0 {
		return errno
	}
	return nil
}

// prctlAll makes a prctl that concerns one thread in every thread.
func prctlAll(option int, arg uintptr) error {
	// Six arguments: some options insist on zeros for the rest.
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, uintptr(option), arg, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
