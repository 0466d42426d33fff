package guest

import (
	"errors"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A command is what spawn starts. The descriptors stay the caller's.
type command struct {
	argv  []string // argv[0] is the path of the program
	env   []string
	dir   string
	uid   uint32
	gid   uint32
	files [3]int // stdin, stdout, stderr
	// cgroup is an open cgroup v2 directory to start in; -1 for none.
	cgroup int
}

// spawn forks and executes c in a session of its own, with no descriptors but
// its three and no supplementary groups.
func spawn(c *command) (pid int, err error) {
	attr := syscall.ProcAttr{
		Dir:   c.dir,
		Env:   c.env,
		Files: []uintptr{uintptr(c.files[0]), uintptr(c.files[1]), uintptr(c.files[2])},
		Sys: &syscall.SysProcAttr{
			Setsid:      true,
			Credential:  &syscall.Credential{Uid: c.uid, Gid: c.gid},
			UseCgroupFD: c.cgroup >= 0,
			CgroupFD:    c.cgroup,
		},
	}
	return syscall.ForkExec(c.argv[0], c.argv, &attr)
}

// diagnose says at which stage spawn failed with err. ForkExec reports only
// an errno, so for one that several steps can give it looks at what the
// command would have seen.
func diagnose(c *command, err error) *StartError {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return &StartError{Stage: StageExec, Errno: syscall.EINVAL, Text: err.Error()}
	}
	fail := &StartError{Stage: StageExec, Errno: errno}
	switch errno {
	case syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSYS:
		fail.Stage = StageFork
		return fail
	case syscall.EMFILE, syscall.ENFILE:
		fail.Stage = StagePipe
		return fail
	case syscall.ENODEV, syscall.EBUSY, syscall.EOPNOTSUPP, syscall.EBADF:
		if c.cgroup >= 0 {
			fail.Stage = StageCgroup
			return fail
		}
	default: // one that several steps can give
	}
	dirErr, programErr := errno, errno
	as(c.uid, c.gid, func() {
		dirErr = canEnter(c.dir)
		programErr = canAccess(c.argv[0])
	})
	switch {
	case dirErr != 0:
		return &StartError{Stage: StageDir, Errno: dirErr}
	case c.cgroup < 0:
	case errno == syscall.EACCES && programErr == 0, errno == syscall.ENOENT && isRemoved(c.cgroup):
		fail.Stage = StageCgroup
	}
	return fail
}

// as calls f with the file system identity of the command. The capabilities
// that override file permissions go and come back with it.
func as(uid, gid uint32, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	oldGID, _ := unix.SetfsgidRetGid(int(gid))
	oldUID, _ := unix.SetfsuidRetUid(int(uid))
	f()
	_, _ = unix.SetfsuidRetUid(oldUID)
	_, _ = unix.SetfsgidRetGid(oldGID)
}

func canEnter(dir string) syscall.Errno {
	if dir == "" {
		return 0
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errnoOf(err)
	}
	_ = unix.Close(fd) // O_PATH: nothing to lose
	return canAccess(dir)
}

func canAccess(path string) syscall.Errno {
	return errnoOf(unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS))
}

// isRemoved reports whether the cgroup, an open directory, is no more.
func isRemoved(cgroup int) bool {
	return unix.Faccessat(cgroup, "cgroup.procs", unix.F_OK, 0) != nil
}

// errnoOf returns 0 for nil and EIO for what is no errno.
func errnoOf(err error) syscall.Errno {
	if err == nil {
		return 0
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return syscall.EIO
}
