package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/rpc"
)

// again is a second daemon in the same places.
func (i *instance) again() *instance {
	return &instance{mode: i.mode, dir: i.dir, root: i.root, run: i.run, sock: i.sock, config: i.config, libexec: i.libexec, owner: i.owner}
}

// failsToStart starts the instance's daemon, which must end by itself with
// exit code 1, and returns what it said.
func (i *instance) failsToStart(t *testing.T, args ...string) string {
	t.Helper()
	cmd, err := i.command(args...)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout.(*os.File).Close()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	err = cmd.Wait()
	if !kill.Stop() {
		t.Fatalf("the daemon runs:\n%s", &out)
	}
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		t.Fatalf("exit code %d, %v:\n%s", code, err, &out)
	}
	return out.String()
}

// says fails the test unless the text has every part.
func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
	t.Logf("it says: %s", strings.TrimSpace(text))
}

// TestOneDaemon is the first half of case C22.
func TestOneDaemon(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := startInstance(t, m)
		for path, want := range map[string]fs.FileMode{i.run: fs.ModeDir | 0o700, i.sock: fs.ModeSocket | 0o600, i.root: fs.ModeDir | 0o700} {
			if info, err := os.Stat(path); err != nil || info.Mode() != want {
				t.Errorf("%s has mode %v, %v", path, info.Mode(), err)
			}
		}
		for range 3 {
			i.kill(t)
			within(t, 2*time.Second, "a restart after kill -9", func() { i.start(t) })
		}

		// The first is merely slow.
		before, err := os.Lstat(i.sock)
		if err != nil {
			t.Fatal(err)
		}
		pid := i.pid()
		signal(t, pid, syscall.SIGSTOP)
		resume := func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
		t.Cleanup(resume)
		var out string
		within(t, 5*time.Second, "the refusal of a second daemon", func() { out = i.failsToStart(t) })
		says(t, out, "another shelld", fmt.Sprint(pid), i.root)
		other := i.again()
		other.root = filepath.Join(i.dir, "root2")
		out = other.failsToStart(t)
		says(t, out, "another shelld", i.sock)
		after, err := os.Lstat(i.sock)
		if err != nil || !os.SameFile(before, after) {
			t.Errorf("the socket is another now: %v", err)
		}
		resume()
		if err := i.ready(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(other.root); err != nil {
			t.Error(err)
		}
	})
}

func TestTenStarts(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := newInstance(t, m)
		starts := make(chan *instance)
		for range 10 {
			go func() {
				one := i.again()
				if err := one.spawn(); err != nil {
					t.Error(err)
				}
				starts <- one
			}()
		}
		var all []*instance
		for range 10 {
			all = append(all, <-starts)
		}
		eventually(t, "one serves and nine have ended", patience, func() bool {
			n := 0
			for _, one := range all {
				if one.running() {
					n++
					i.cmd, i.ended = one.cmd, one.ended
				}
			}
			return n <= 1
		})
		eventually(t, "it is ready", patience, func() bool { return i.ready() == nil })
		if info := get[rpc.Info](t, i, "/v1/info"); info.PID != i.pid() {
			t.Errorf("process %d serves and %d runs", info.PID, i.pid())
		}
		for _, one := range all {
			if one.pid() == i.pid() {
				continue
			}
			if code, err := one.awaitEnd(time.Second); err != nil || code != 1 {
				t.Errorf("one of those that were refused: exit code %d, %v", code, err)
			}
		}
	})
}

// TestThingsAtTheSocketsPath: nothing but a dead daemon's socket is removed.
func TestThingsAtTheSocketsPath(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		for name, make := range map[string]func(path string) error{
			"a file":   func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
			"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
			"a link":   func(path string) error { return os.Symlink("/etc/passwd", path) },
			"a fifo":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		} {
			t.Run(name, func(t *testing.T) {
				i := newInstance(t, m)
				if err := os.Mkdir(i.run, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := make(i.sock); err != nil {
					t.Fatal(err)
				}
				for _, path := range []string{i.run, i.sock} {
					if err := i.chown(path); err != nil {
						t.Fatal(err)
					}
				}
				before, err := os.Lstat(i.sock)
				if err != nil {
					t.Fatal(err)
				}
				says(t, i.failsToStart(t), i.sock, "not a socket")
				after, err := os.Lstat(i.sock)
				if err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() || before.Size() != after.Size() {
					t.Errorf("it is now %v, %v", after, err)
				}
				if err := os.RemoveAll(i.sock); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

// TestUnsafePlaces: folders that others could change are refused, and left as
// they are.
func TestUnsafePlaces(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		dir := func(of func(*instance) string, mode os.FileMode, owner int) func(*instance) error {
			return func(i *instance) error {
				path := of(i)
				if err := os.Mkdir(path, 0o700); err != nil {
					return err
				}
				if err := os.Chmod(path, mode); err != nil {
					return err
				}
				if owner >= 0 {
					return os.Chown(path, owner, owner)
				}
				return i.chown(path)
			}
		}
		root := func(i *instance) string { return i.root }
		run := func(i *instance) string { return i.run }
		const stranger = 12345
		for _, tt := range []struct {
			name  string
			setUp func(*instance) error
			says  []string
		}{
			{name: "socket folder that all can write to", setUp: dir(run, 0o777, -1), says: []string{"/run"}},
			{name: "socket folder of a stranger", setUp: dir(run, 0o755, stranger), says: []string{"/run"}},
			{name: "state folder that all can write to", setUp: dir(root, 0o777, -1), says: []string{"/root", "chmod go-w"}},
			{name: "state folder of a stranger", setUp: dir(root, 0o755, stranger), says: []string{"/root", "12345"}},
			{name: "state folder of another program", setUp: func(i *instance) error {
				if err := dir(root, 0o700, -1)(i); err != nil {
					return err
				}
				file := filepath.Join(i.root, "precious")
				if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
					return err
				}
				return i.chown(file)
			}, says: []string{"not made by shelld", "precious"}},
			{name: "state folder that is a file", setUp: func(i *instance) error { return os.WriteFile(i.root, nil, 0o600) }, says: []string{"is a file"}},
			{name: "too long a path", setUp: func(i *instance) error {
				i.run = filepath.Join(i.dir, strings.Repeat("r", 100))
				return nil
			}, says: []string{"too long", "at most"}},
			{name: "one folder for both", setUp: func(i *instance) error { i.run = i.root; return nil }, says: []string{"two folders"}},
		} {
			t.Run(tt.name, func(t *testing.T) {
				if os.Geteuid() != 0 && strings.Contains(tt.name, "stranger") {
					notHere(t, "only root can make a stranger's folder")
				}
				i := newInstance(t, m)
				if err := tt.setUp(i); err != nil {
					t.Fatal(err)
				}
				before := tree(t, i.dir)
				says(t, i.failsToStart(t), tt.says...)
				after := tree(t, i.dir)
				for name, was := range before {
					if after[name] != was && name != "." {
						t.Errorf("%s was %q and is %q", name, was, after[name])
					}
				}
				if err := os.RemoveAll(i.root); err != nil { // or takeDown takes it for used
					t.Fatal(err)
				}
			})
		}
		if m == asRoot {
			return // who can write everywhere
		}
		t.Run("state folder that cannot be written to", func(t *testing.T) {
			i := newInstance(t, m)
			if err := dir(root, 0o500, -1)(i); err != nil {
				t.Fatal(err)
			}
			says(t, i.failsToStart(t), "no permission to write", i.root)
			if err := os.RemoveAll(i.root); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// tree describes what is in a folder.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		seen[name] = fmt.Sprint(info.Mode(), info.Sys().(*syscall.Stat_t).Uid)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}

// TestForeignUser: another user gets nothing, even if the folder's mode would
// let him in.
func TestForeignUser(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		if os.Geteuid() != 0 {
			notHere(t, "only root can be another user")
		}
		i := startInstance(t, m)
		create(t, i)
		const stranger = 12345
		if _, err := dialAs(stranger, i.sock); err == nil {
			t.Error("another user reaches the socket")
		}
		if err := os.Chmod(i.run, 0o711); err != nil {
			t.Fatal(err)
		}
		if _, err := dialAs(stranger, i.sock); err == nil {
			t.Error("another user reaches the socket in an open folder")
		}
		if err := os.Chmod(i.sock, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, request := range []string{"GET /v1/containers", "POST /v1/shutdown", "GET /healthz", "GET /v1/info"} {
			conn, err := dialAs(stranger, i.sock)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", request)
			answer := readAll(t, conn)
			if !strings.HasPrefix(answer, "HTTP/1.1 401 ") || !strings.Contains(answer, `"unauthorized"`) || strings.Contains(answer, "cntr_") {
				t.Errorf("%s: %s", request, answer)
			}
		}
		if err := i.ready(); err != nil { // as root, or as the owner
			t.Error(err)
		}
		if err := os.Chmod(i.run, 0o700); err != nil {
			t.Fatal(err)
		}
	})
}

// dialAs connects to a socket as another user.
func dialAs(uid int, path string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		// The thread is that user's from now on, and ends with the goroutine.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- result{err: errno}
			return
		}
		conn, err := net.DialTimeout("unix", path, patience)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func readAll(t *testing.T, conn net.Conn) string {
	t.Helper()
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(conn); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestRequestsOfWebPages are refused by their headers.
func TestRequestsOfWebPages(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		for _, header := range []string{"Host: evil.example", "Host: localhost\r\nOrigin: http://localhost", "Host: localhost\r\nReferer: http://x/", "Host: localhost.evil.example"} {
			conn, err := net.Dial("unix", i.sock)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "GET /v1/info HTTP/1.1\r\n%s\r\nConnection: close\r\n\r\n", header)
			if answer := readAll(t, conn); !strings.HasPrefix(answer, "HTTP/1.1 403 ") || !strings.Contains(answer, `"forbidden"`) {
				t.Errorf("%q: %s", header, answer)
			}
		}
		// A client that sends nothing, or half, holds up nobody.
		for _, half := range []string{"", "GET /v1/", "POST /v1/shell_calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"} {
			conn, err := net.Dial("unix", i.sock)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprint(conn, half)
		}
		within(t, 2*time.Second, "an answer beside half requests", func() {
			if status, _, err := i.send(t.Context(), http.MethodGet, "/readyz", nil); err != nil || status != http.StatusOK {
				t.Errorf("%d %v", status, err)
			}
		})
	})
}
