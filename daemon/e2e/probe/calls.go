package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attempt is a use of the kernel that a command has no business with.
type attempt struct {
	name string
	try  func() error
}

// attempts lists them. Each leaves nothing behind when it works, as it does
// for root in a mount namespace of its own.
func attempts() []attempt {
	list := []attempt{
		{"mount tmpfs", func() error { return unix.Mount("probe", "/tmp", "tmpfs", 0, "") }},
		{"mount bind", func() error { return unix.Mount("/usr", "/tmp", "", unix.MS_BIND, "") }},
		{"remount /usr", func() error { return unix.Mount("", "/proc", "", unix.MS_REMOUNT|unix.MS_BIND, "") }},
		{"unmount /proc/sys", func() error { return unmountOne("/proc/sys", "/proc") }},
		{"unmount /dev", func() error { return unmountOne("/dev/shm", "/dev") }},
		{"chroot", func() error { return onThread(func() error { return unix.Chroot("/") }) }},
		{"fsopen", func() error { return fd(unix.Fsopen("tmpfs", 0)) }},
		{"open_tree", func() error { return fd(unix.OpenTree(unix.AT_FDCWD, "/usr", unix.OPEN_TREE_CLONE)) }},
		{"setns net of 1", func() error { return setns("/proc/1/ns/net", unix.CLONE_NEWNET) }},
		{"setns mount", func() error { return setns("/proc/self/ns/mnt", unix.CLONE_NEWNS) }},
		{"ptrace of 1", func() error { return onThread(func() error { return unix.PtraceSeize(1) }) }},
		{"memory of 1", func() error { return memory(1) }},
		{"pidfd_getfd of 1", getFD},
		{"add_key", func() error {
			_, err := unix.AddKey("user", "probe", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
			return err
		}},
		{"keyctl", func() error { _, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true); return err }},
		{"request_key", func() error { return call(unix.SYS_REQUEST_KEY, str("user"), str("probe"), 0, 0) }},
		{"bpf", bpf},
		{"io_uring", func() error { var params [120]byte; return fdCall(unix.SYS_IO_URING_SETUP, 4, ptr(&params[0])) }},
		{"perf_event_open", func() error {
			attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
			return fd(unix.PerfEventOpen(&attr, 0, -1, -1, 0))
		}},
		{"userfaultfd", func() error { return fdCall(unix.SYS_USERFAULTFD, 0) }},
		{"fanotify", func() error { return fd(unix.FanotifyInit(0, 0)) }},
		{"open_by_handle_at", byHandle},
		{"kernel log", func() error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, make([]byte, 16)); return err }},
		{"init_module", func() error { return refusedOnly(unix.InitModule([]byte("x"), "")) }},
		{"kexec_load", func() error { return refusedOnly(call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 1<<63)) }},
		{"swapon", func() error { return refusedOnly(call(unix.SYS_SWAPON, str("/nowhere"), 0)) }},
		{"acct", func() error { return refusedOnly(unix.Acct("/nowhere")) }},
		{"set host name", func() error { return onThread(func() error { return unix.Sethostname([]byte(hostname())) }) }},
		{"set clock", func() error { return refusedOnly(unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Nsec: -1})) }},
		{"iopl", func() error { return unix.Iopl(0) }},
		{"mknod", func() error {
			return errors.Join(unix.Mknod("/tmp/probe-null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), os.Remove("/tmp/probe-null"))
		}},
		{"packet socket", func() error { return fd(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)) }},
		{"raw socket", func() error { return fd(unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)) }},
		{"become root", func() error { return onThread(func() error { return call(unix.SYS_SETRESUID, 0, 0, 0) }) }},
		{"join group 0", func() error { return onThread(func() error { return call(unix.SYS_SETGROUPS, 1, ptr(new(uint32))) }) }},
		{"raise core limit", func() error {
			return unix.Prlimit(0, unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}, nil)
		}},
		{"gain capability", func() error {
			return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_SYS_ADMIN, 0, 0)
		}},
		{"oom score of 1", func() error { return write("/proc/1/oom_score_adj") }},
		{"oom score below", func() error { return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0) }},
	}
	for name, flag := range map[string]uintptr{
		"user": unix.CLONE_NEWUSER, "mount": unix.CLONE_NEWNS, "net": unix.CLONE_NEWNET, "pid": unix.CLONE_NEWPID,
		"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP,
	} {
		list = append(list, attempt{"clone with new " + name + " namespace", func() error { return clone(flag) }})
		if name != "user" { // a program with threads cannot
			list = append(list, attempt{"unshare " + name + " namespace", func() error {
				return onThread(func() error { return unix.Unshare(int(flag)) })
			}})
		}
	}
	for sig := unix.Signal(1); sig <= 64; sig++ {
		list = append(list, attempt{fmt.Sprintf("signal %d to process 1", sig), func() error {
			return call(unix.SYS_KILL, 1, uintptr(sig))
		}})
	}
	// Last, since nothing is in its place after it.
	return append(list, attempt{"pivot_root", func() error {
		return errors.Join(unix.Mount("probe", "/tmp", "tmpfs", 0, ""), os.Mkdir("/tmp/old", 0o750), unix.PivotRoot("/tmp", "/tmp/old"))
	}})
}

// onThread runs f on a thread that ends with it.
func onThread(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks
		result <- f()
	}()
	return <-result
}

func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

func fdCall(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	n, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return unix.Close(int(n))
}

func fd(n int, err error) error {
	if err != nil {
		return err
	}
	return unix.Close(n)
}

func ptr[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) } //nolint:gosec // for system calls

func str(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		return 0
	}
	return ptr(p)
}

// refusedOnly makes every error but a refusal count as done: the arguments are
// such that the call fails where it is allowed.
func refusedOnly(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		return err
	}
	return nil
}

func hostname() string {
	name, _ := os.Hostname()
	return name
}

func unmountOne(paths ...string) error {
	var err error
	for _, path := range paths {
		if err = unix.Unmount(path, unix.MNT_DETACH); err == nil {
			return nil
		}
	}
	return err
}

func setns(path string, kind int) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return onThread(func() error {
		if kind == unix.CLONE_NEWNS {
			if err := unix.Unshare(unix.CLONE_FS); err != nil {
				return err
			}
		}
		return unix.Setns(int(file.Fd()), kind)
	})
}

func memory(pid int) error {
	buf := make([]byte, 8)
	local := []unix.Iovec{{Base: &buf[0], Len: 8}}
	remote := []unix.RemoteIovec{{Base: 0x400000, Len: 8}}
	_, err := unix.ProcessVMReadv(pid, local, remote, 0)
	return refusedOnly(err)
}

func getFD() error {
	pidfd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pidfd) //nolint:errcheck // it is only a handle
	return fd(unix.PidfdGetfd(pidfd, 0, 0))
}

// bpf makes a small array map.
func bpf() error {
	attr := struct{ kind, key, value, entries uint32 }{2, 4, 4, 1}
	return fdCall(unix.SYS_BPF, 0, ptr(&attr), unsafe.Sizeof(attr))
}

func byHandle() error {
	handle, mount, err := unix.NameToHandleAt(unix.AT_FDCWD, "/usr", 0)
	_ = mount
	if err != nil {
		return err
	}
	dir, err := unix.Open("/usr", unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(dir) //nolint:errcheck // it is only a handle
	return fd(unix.OpenByHandleAt(dir, handle, unix.O_RDONLY))
}

func clone(flag uintptr) error {
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe")
	cmd.Env = []string{stayVar + "=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flag}
	return cmd.Run()
}
