package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shelld/shelld/rpc"
)

// shellctl is a command line of the client, as the user of the daemon.
func (i *instance) shellctl(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if noClient != "" {
		notHere(t, "%s is not built", noClient)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(binDir, "shellctl"), args...)
	cmd.Dir, cmd.Env = "/", append(i.daemonEnv(), "SHELLD_SOCKET="+i.sock)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: i.owner, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// output runs a command line that ends within limit.
func output(t *testing.T, cmd *exec.Cmd, limit time.Duration) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	within(t, limit, strings.Join(cmd.Args, " "), func() {
		if err := cmd.Run(); err != nil {
			if _, ok := errors.AsType[*exec.ExitError](err); !ok {
				t.Fatal(err)
			}
		}
	})
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// TestClientExitCodes: shellctl ends as the command did (C02), and reads no
// input unless asked to (C04).
func TestClientExitCodes(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		for text, want := range map[string]int{
			"kill -KILL $$": 137, "kill -TERM $$": 143, "exit 300": 44, "no-such-program": 127, "/etc/passwd": 126, "false": 1, "exit 255": 255, "true": 0,
		} {
			if _, stderr, code := output(t, i.shellctl(t, "exec", "-C", id, "-c", text), 5*time.Second); code != want {
				t.Errorf("%s: exit code %d, want %d; %s", text, code, want, stderr)
			}
		}
		if stdout, stderr, code := output(t, i.shellctl(t, "exec", "-C", id, "--timeout", "1s", "-c", "echo before; sleep 100"), 5*time.Second); code != 124 || stdout != "before\n" || !strings.Contains(stderr, "[shelld] timed out") {
			t.Errorf("timeout: %d, %q, %q", code, stdout, stderr)
		}

		held, hold, err := os.Pipe() // an input that never ends
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(held.Close(), hold.Close()) })
		cmd := i.shellctl(t, "exec", "--", "echo", "a  b", "$HOME")
		cmd.Stdin = held
		if stdout, stderr, code := output(t, cmd, 2*time.Second); code != 0 || stdout != "a  b $HOME\n" {
			t.Errorf("got %d, %q, %q", code, stdout, stderr)
		}
		cmd = i.shellctl(t, "exec", "-i", "--", "wc", "-c")
		cmd.Stdin = strings.NewReader("abc")
		if stdout, stderr, code := output(t, cmd, 2*time.Second); code != 0 || stdout != "3\n" {
			t.Errorf("got %d, %q, %q", code, stdout, stderr)
		}
	})
}

// TestClientWithoutDaemon says in one line how to start it.
func TestClientWithoutDaemon(t *testing.T) {
	eachMode(t, func(t *testing.T, m mode) {
		i := newInstance(t, m)
		stdout, stderr, code := output(t, i.shellctl(t, "exec", "--", "true"), 10*time.Second)
		if code != 125 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "start it with: ") {
			t.Errorf("got %d, %q, %q", code, stdout, stderr)
		}
	})
}

// TestClientIsEnded: however a client of a waiting call ends, its commands end
// too, once, and nothing of a fresh container is left (C23).
func TestClientIsEnded(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		for n, tt := range []struct {
			signal syscall.Signal
			code   int
		}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}, {syscall.SIGHUP, 129}, {syscall.SIGKILL, -1}} {
			mark := markOf(t, n)
			before := containers(t, i)
			cmd := i.shellctl(t, "exec", "-c", "echo begun; setsid sleep "+mark+" & sleep "+mark)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(stdout, make([]byte, len("begun\n"))); err != nil {
				t.Fatal(err)
			}
			eventually(t, "both sleep", patience, func() bool { return len(withArgument(mark)) == 2 })
			signal(t, cmd.Process.Pid, tt.signal)
			_ = cmd.Wait() // how it ended is looked at
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("%v: exit code %d, want %d", tt.signal, code, tt.code)
			}
			eventually(t, "its commands end after "+tt.signal.String(), 3*time.Second, func() bool { return len(withArgument(mark)) == 0 })
			eventually(t, "its container is gone", 10*time.Second, func() bool {
				for id := range containers(t, i) {
					if _, old := before[id]; !old && strings.Contains(fmt.Sprint(callsOf(t, i, id)), mark) {
						return false
					}
				}
				return true
			})
			ended := 0
			for _, c := range callsOf(t, i, "") {
				if strings.Contains(c.Action.Commands[0], mark) {
					ended++
					if c.Status != "canceled" {
						t.Errorf("%v: the call is %s", tt.signal, c.Status)
					}
				}
			}
			if ended != 1 {
				t.Errorf("%v: %d calls were made", tt.signal, ended)
			}
		}
	})
}

func containers(t *testing.T, i *instance) map[string]bool {
	t.Helper()
	ids := map[string]bool{}
	for _, c := range get[rpc.List[rpc.Container]](t, i, "/v1/containers?limit=100").Data {
		ids[c.ID] = true
	}
	return ids
}

func callsOf(t *testing.T, i *instance, container string) []rpc.ShellCall {
	t.Helper()
	return get[rpc.List[rpc.ShellCall]](t, i, "/v1/shell_calls?limit=100&container_id="+container).Data
}
