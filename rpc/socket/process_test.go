package socket

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperVar makes the test binary a server or client of its own; the value is
// the role and the socket's path.
const helperVar = "SHELLD_SOCKET_TEST"

func TestMain(m *testing.M) {
	role, path, ok := strings.Cut(os.Getenv(helperVar), " ")
	if !ok {
		m.Run()
		return
	}
	if err := helper(role, path); err != nil {
		fmt.Fprintln(os.Stdout, "error:", err)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
}

// helper serves or connects until its standard input ends, as it does when the
// test dies.
func helper(role, path string) error {
	ctx := context.Background()
	if role == "dial" {
		conn, err := Dial(ctx, path)
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(conn)
		fmt.Fprintln(os.Stdout, string(answer))
		return err
	}
	l, err := Listen(ctx, path)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "serving", l.Path(), l.Activated(), os.Getenv("LISTEN_FDS"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		greet(l, fmt.Sprint(os.Getpid()))
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	if closeErr := l.Close(); closeErr != nil {
		return closeErr
	}
	<-done
	return err
}

// greet answers every connection with text until the listener is closed.
func greet(l net.Listener, text string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

type process struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
}

// start runs the test binary in a role; it is killed at the end of the test.
func start(t *testing.T, role, path string, adapt func(*exec.Cmd)) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperVar+"="+role+" "+path)
	cmd.Stderr = os.Stderr
	if adapt != nil {
		adapt(cmd)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // a stopped one ends too
		_ = cmd.Wait()
	})
	return &process{Cmd: cmd, stdin: stdin, lines: bufio.NewReader(stdout)}
}

// line returns the next line of the process's output.
func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("read output of process: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// ask connects and returns the answer.
func ask(t *testing.T, path string) string {
	t.Helper()
	conn, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// shortDir returns a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "shelld-sk-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
