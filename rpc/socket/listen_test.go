package socket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func listenAt(t *testing.T, path string) *Listener {
	t.Helper()
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func lstat(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestListen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(shortDir(t), "a", "b")
	path := filepath.Join(dir, "s")
	l := listenAt(t, path)
	done := make(chan struct{})
	go func() { defer close(done); greet(l, "hello") }()
	for p, want := range map[string]fs.FileMode{
		filepath.Dir(dir): fs.ModeDir | 0o700, dir: fs.ModeDir | 0o700, path: fs.ModeSocket | 0o600,
	} {
		if got := lstat(t, p).Mode(); got != want {
			t.Errorf("mode of %s is %v, want %v", p, got, want)
		}
	}
	if l.Activated() || l.Path() != path {
		t.Errorf("Activated = %t, Path = %q", l.Activated(), l.Path())
	}
	if got := ask(t, path); got != "hello" {
		t.Errorf("answer %q", got)
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Errorf("Close: %v", err)
	}
	<-done
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("socket after Close: %v", err)
	}
	listenAt(t, path)
}

func TestListenRefusesPath(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	served := listenAt(t, in("served"))
	if err := errors.Join(
		os.WriteFile(in("file"), []byte("precious"), 0o600),
		os.Mkdir(in("folder"), 0o700),
		os.Symlink(in("nowhere"), in("dangling")),
		os.Symlink(in("served"), in("link")),
		syscall.Mkfifo(in("pipe"), 0o600),
		os.Symlink(in("folder"), in("dirlink")),
	); err != nil {
		t.Fatal(err)
	}
	long := in(strings.Repeat("x", MaxPath))
	tests := []struct {
		path, want string
		is         error
	}{
		{in("file"), "is a file, not a socket; shelld does not remove it", nil},
		{in("folder"), "is a folder, not a socket", nil},
		{in("dangling"), "is a symbolic link, not a socket", nil},
		{in("link"), "is a symbolic link, not a socket", nil},
		{in("pipe"), "is a device or pipe, not a socket", nil},
		{in("served"), "another shelld is serving " + in("served"), ErrInUse},
		{in("dirlink/s"), "is a symbolic link, not a folder", ErrUnsafe},
		{in("file/s"), "is a file, not a folder", ErrUnsafe},
		{in("file/f/s"), "not a directory", nil},
		{long, "too long", nil},
		{"", "empty", nil},
		{"relative", "not absolute", nil},
		{"@abstract", "no path of a file", nil},
	}
	for _, tt := range tests {
		var before fs.FileInfo
		if filepath.IsAbs(tt.path) {
			before, _ = os.Lstat(tt.path)
		}
		l, err := Listen(t.Context(), tt.path)
		if err == nil {
			t.Errorf("Listen(%s) succeeded: %v", tt.path, l.Close())
			continue
		}
		if !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("Listen(%s) = %v, want %q, %v", tt.path, err, tt.want, tt.is)
		}
		if before != nil && !same(before, lstat(t, tt.path)) {
			t.Errorf("%s was replaced", tt.path)
		}
	}
	if data, err := os.ReadFile(in("file")); string(data) != "precious" {
		t.Errorf("the file holds %q, %v", data, err)
	}
	if err := served.Close(); err != nil {
		t.Error(err)
	}
}

func TestListenRefusesDirectory(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	for _, mode := range []fs.FileMode{0o777, 0o755, 0o770, 0o701, 0o710, fs.ModeSticky | 0o777} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		l, err := Listen(t.Context(), filepath.Join(dir, "s"))
		if err == nil {
			t.Errorf("Listen in a folder of mode %v succeeded: %v", mode, l.Close())
		} else if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "run: chmod 700 "+dir) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	foreign := "/usr" // root's
	if os.Geteuid() == 0 {
		foreign = dir
		if err := errors.Join(os.Chmod(dir, 0o700), os.Chown(dir, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Listen(t.Context(), filepath.Join(foreign, "s")); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "belongs to user") {
		t.Errorf("a foreign folder: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestCloseLeavesAForeignSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	l := listenAt(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	before := lstat(t, path)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !same(before, lstat(t, path)) {
		t.Error("Close removed what is not its own")
	}
}

func TestListenLeavesAForeignServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := Listen(t.Context(), path); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "another program is serving") {
		t.Errorf("Listen = %v", err)
	}
	lstat(t, path)
}

// TestListenLeavesABusyServer has a server whose queue is full, so that it
// looks unlike a live one to a single try.
func TestListenLeavesABusyServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	fillQueue(t, path)
	if _, err := Listen(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Errorf("Listen = %v, want ErrInUse", err)
	}
	lstat(t, path)
}

// fillQueue serves path with room for one connection and takes that room. It
// returns a function that accepts it.
func fillQueue(t *testing.T, path string) (accept func() error) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	conn, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if conn, err := connect(t.Context(), path); !errors.Is(err, syscall.EAGAIN) {
		t.Fatalf("the queue is not full: %v, %v", conn, err)
	}
	return func() error {
		accepted, _, err := unix.Accept4(fd, unix.SOCK_CLOEXEC)
		if err != nil {
			return err
		}
		return unix.Close(accepted)
	}
}

func TestKilledServerIsReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	for range 5 {
		first := start(t, "serve", path, nil)
		first.line(t)
		first.signal(t, syscall.SIGKILL) // and no wait for its end
		second := start(t, "serve", path, nil)
		if got, want := second.line(t), "serving "+path+" false "; got != want {
			t.Fatalf("second start: %q", got)
		}
		if got, want := ask(t, path), itoa(second.Process.Pid); got != want {
			t.Errorf("answer by %s, want %s", got, want)
		}
		second.signal(t, syscall.SIGKILL)
		_ = second.Wait()
	}
}

func TestStoppedServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s")
	first := start(t, "serve", path, nil)
	first.line(t)
	first.signal(t, syscall.SIGSTOP)
	before := lstat(t, path)
	second := start(t, "serve", path, nil)
	if got := second.line(t); !strings.Contains(got, "another shelld is serving") {
		t.Errorf("second start: %q", got)
	}
	if !same(before, lstat(t, path)) {
		t.Error("the socket was replaced")
	}
	first.signal(t, syscall.SIGCONT)
	if got, want := ask(t, path), itoa(first.Process.Pid); got != want {
		t.Errorf("answer by %s, want %s", got, want)
	}
}

func TestOneOfTenServes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"no folder", "dead socket"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(shortDir(t), "run")
			path := filepath.Join(dir, "s")
			if name == "dead socket" {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				leaveDead(t, path)
			}
			var all []*process
			for range 10 {
				all = append(all, start(t, "serve", path, nil))
			}
			winner := ""
			for _, p := range all {
				line := p.line(t)
				switch {
				case strings.HasPrefix(line, "serving"):
					if winner != "" {
						t.Error("two serve")
					}
					winner = itoa(p.Process.Pid)
				case !strings.Contains(line, "another shelld is serving"):
					t.Errorf("refused with %q", line)
				}
			}
			if got := ask(t, path); winner == "" || got != winner {
				t.Errorf("answer by %q, the one that serves is %q", got, winner)
			}
		})
	}
}

func TestActivation(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	path := filepath.Join(dir, "by-systemd")
	// Its folder and mode are systemd's business.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	file, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before := lstat(t, path)
	unused := filepath.Join(dir, "unused")
	p := start(t, "serve", unused, passing(1, file))
	if got, want := p.line(t), "serving "+path+" true "; got != want {
		t.Fatalf("got %q, want %q", got, want)
	}
	if got, want := ask(t, path), itoa(p.Process.Pid); got != want {
		t.Errorf("answer by %s, want %s", got, want)
	}
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("end: %v", err)
	}
	if !same(before, lstat(t, path)) {
		t.Error("the socket of systemd was removed")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestActivationRefuses(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	packet, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(dir, "p"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer packet.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	connected, peer := os.NewFile(uintptr(pair[0]), "pair"), os.NewFile(uintptr(pair[1]), "pair")
	defer peer.Close()
	tcpFile, err1 := tcp.File()
	packetFile, err2 := packet.File()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		files []*os.File
		want  string
	}{
		{"tcp", []*os.File{tcpFile}, "not a listening Unix stream socket but tcp"},
		{"seqpacket", []*os.File{packetFile}, "not a listening Unix stream socket but unixpacket"},
		{"connected", []*os.File{connected}, "not a listening Unix stream socket"},
		{"file", []*os.File{null}, "no listening socket"},
		{"two", []*os.File{tcpFile, packetFile}, "2 descriptors were passed"},
	}
	for _, tt := range tests {
		p := start(t, "serve", filepath.Join(dir, "unused"), passing(len(tt.files), tt.files...))
		if got := p.line(t); !strings.HasPrefix(got, "error: take socket from systemd") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	for _, f := range []*os.File{tcpFile, packetFile, connected, null} {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// passing starts the process as systemd does, with files from descriptor 3 on.
func passing(n int, files ...*os.File) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		// The shell knows the pid that the test binary is going to have.
		cmd.Args = []string{"sh", "-c", `LISTEN_PID=$$ exec "$0"`, testBinary()}
		cmd.Path = "/bin/sh"
		cmd.ExtraFiles = files
		cmd.Env = append(cmd.Env, "LISTEN_FDS="+itoa(n))
	}
}

// leaveDead makes a socket that nobody serves.
func leaveDead(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
