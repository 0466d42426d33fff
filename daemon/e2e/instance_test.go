package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// mode is how a daemon runs.
type mode string

const (
	asRoot   mode = "root"
	rootless mode = "rootless"
)

// need skips the test where the mode cannot be had.
func (m mode) need(t *testing.T) {
	t.Helper()
	switch {
	case notBuilt != "":
		notHere(t, "%s is not built", notBuilt)
	case m == asRoot && os.Geteuid() != 0:
		notHere(t, "the test does not run as root")
	case m == rootless && ordinary == nil:
		notHere(t, "no ordinary user: %s", noUser)
	}
}

// eachMode runs the test once in each mode, at the same time as others.
func eachMode(t *testing.T, test func(t *testing.T, m mode)) {
	t.Helper()
	t.Parallel()
	for _, m := range []mode{asRoot, rootless} {
		t.Run(string(m), func(t *testing.T) {
			t.Parallel()
			m.need(t)
			test(t, m)
		})
	}
}

// hostSecret is in the environment of every daemon and must never be seen in a
// sandbox.
const hostSecret = "e2e-secret-of-the-host"

const (
	// configRoot has no ceilings or limits of its own; an ordinary user of a
	// machine with cgroup v1 cannot have limits.
	configRoot     = "version = 1\n"
	configRootless = "version = 1\n[limits]\nallow_unenforced = true\n"
)

// instance is a private daemon: its places and, while it runs, its process.
type instance struct {
	mode            mode
	dir, root, run  string
	sock            string
	config, libexec string
	env             []string
	owner           *syscall.Credential // nil: the user of the tests

	http *http.Client

	mu    sync.Mutex // guards what follows
	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
	// odd is set by tests that provoke errors in the log.
	odd bool
}

var instances atomic.Int32

// prepare makes the folder of a daemon that is not started.
func prepare(m mode) (*instance, error) {
	dir := filepath.Join(base, fmt.Sprint(instances.Add(1)))
	i := &instance{
		mode: m, dir: dir, root: filepath.Join(dir, "root"), run: filepath.Join(dir, "run"),
		config: configRoot, libexec: bundleDir,
	}
	i.sock = filepath.Join(i.run, "shelld.sock")
	if m == rootless {
		i.config = configRootless
		if int(ordinary.uid) != os.Geteuid() {
			i.owner = &syscall.Credential{Uid: ordinary.uid, Gid: ordinary.gid}
		}
	}
	i.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", i.sock)
		},
		DisableKeepAlives: true, // the daemon comes and goes
	}}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return i, i.chown(dir)
}

// chown gives a file to the daemon's user.
func (i *instance) chown(path string) error {
	if i.owner == nil {
		return nil
	}
	return os.Lchown(path, int(i.owner.Uid), int(i.owner.Gid))
}

// newInstance makes the place of a daemon of the test, and takes it away with
// all that is in it, checking that all goes. The daemon is not started.
func newInstance(t *testing.T, m mode) *instance {
	t.Helper()
	m.need(t)
	i, err := prepare(m)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, err := range i.takeDown() {
			t.Error(err)
		}
		i.http.CloseIdleConnections()
		if t.Failed() {
			t.Log(i.logs())
		}
		// For the next test's sake; when all is well there is nothing.
		if err := endAll(i.dir, i.root); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(i.dir); err != nil {
			t.Error(err)
		}
	})
	return i
}

// startInstance is newInstance with a running daemon.
func startInstance(t *testing.T, m mode) *instance {
	t.Helper()
	i := newInstance(t, m)
	i.start(t)
	return i
}

// daemonEnv is the whole environment of a daemon.
func (i *instance) daemonEnv() []string {
	return append([]string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + i.dir, "XDG_RUNTIME_DIR=" + i.dir, "SECRET=" + hostSecret,
	}, i.env...)
}

// command is a command line of shelld for this instance, as its user.
func (i *instance) command(args ...string) (*exec.Cmd, error) {
	config := filepath.Join(i.dir, "config.toml")
	if err := errors.Join(os.WriteFile(config, []byte(i.config), 0o644), i.chown(config)); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(i.dir, "shelld.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	args = append([]string{"--config", config, "--root", i.root, "--run", i.run, "--libexec", i.libexec}, args...)
	cmd := exec.Command(filepath.Join(binDir, "shelld"), args...)
	cmd.Dir, cmd.Env = "/", i.daemonEnv()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: i.owner}
	return cmd, nil
}

// spawn starts the daemon and does not wait until it serves.
func (i *instance) spawn() error {
	cmd, err := i.command()
	if err != nil {
		return err
	}
	// The log is a file, so it is ours to close once the daemon has it.
	defer cmd.Stdout.(*os.File).Close()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	ended, started := make(chan struct{}), make(chan error)
	go func() {
		// The kernel goes by the thread that has started the daemon.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended stands in cmd.ProcessState
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cmd, i.ended = cmd, ended
	return nil
}

// start starts the daemon and returns when it is ready.
func (i *instance) start(t *testing.T) {
	t.Helper()
	if err := i.begin(); err != nil {
		t.Fatal(err)
	}
}

func (i *instance) begin() error {
	if err := i.spawn(); err != nil {
		return err
	}
	var last error
	if !poll(patience, func() bool { last = i.ready(); return last == nil || !i.running() }) || last != nil {
		return fmt.Errorf("the daemon does not become ready: %w\n%s", last, i.logs())
	}
	return nil
}

// running reports whether the daemon's process lives.
func (i *instance) running() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cmd == nil {
		return false
	}
	select {
	case <-i.ended:
		return false
	default:
		return true
	}
}

// pid is the daemon's process id.
func (i *instance) pid() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.cmd.Process.Pid
}

// awaitEnd waits until the daemon has ended and returns its exit code, -1 for
// a signal.
func (i *instance) awaitEnd(limit time.Duration) (code int, err error) {
	i.mu.Lock()
	cmd, ended := i.cmd, i.ended
	i.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return cmd.ProcessState.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("the daemon has not ended after %s", limit)
	}
}

// kill kills the daemon as kill -9 does and waits for its end.
func (i *instance) kill(t *testing.T) {
	t.Helper()
	signal(t, i.pid(), syscall.SIGKILL)
	if _, err := i.awaitEnd(patience); err != nil {
		t.Fatal(err)
	}
}

// takeDown stops the daemon with all its sandboxes and returns what is wrong
// afterwards. A daemon that a test has killed is started again for that.
func (i *instance) takeDown() []error {
	if _, err := os.Stat(i.root); err != nil {
		return i.leftovers() // it never came up
	}
	if !i.running() && len(processesOf(i.dir)) > 0 {
		if err := i.begin(); err != nil {
			return append(i.leftovers(), err)
		}
	}
	var errs []error
	if i.running() {
		if err := i.shutdown(true); err != nil {
			errs = append(errs, err)
		}
	}
	return append(errs, i.leftovers()...)
}

// shutdown asks the daemon to end and waits until it has.
func (i *instance) shutdown(sandboxes bool) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, errors.New("no answer to shutdown"))
	defer cancel()
	status, body, err := i.send(ctx, http.MethodPost, "/v1/shutdown", map[string]bool{"sandboxes": sandboxes})
	if err != nil || status != http.StatusOK {
		return fmt.Errorf("shutdown: %d %s %w", status, body, err)
	}
	code, err := i.awaitEnd(patience)
	if err == nil && code != 0 {
		err = fmt.Errorf("the daemon ended with exit code %d", code)
	}
	return err
}

// leftovers returns what is there still that should have gone with the daemon
// and its sandboxes.
func (i *instance) leftovers() []error {
	var errs []error
	if !poll(patience/4, func() bool { return len(processesOf(i.dir)) == 0 }) {
		errs = append(errs, fmt.Errorf("processes left: %v", processesOf(i.dir)))
	}
	if left := mountsOf(i.dir); len(left) > 0 {
		errs = append(errs, fmt.Errorf("mounts left: %v", left))
	}
	if left := cgroupsOf(i.root); len(left) > 0 {
		errs = append(errs, fmt.Errorf("cgroups left: %v", left))
	}
	for _, pattern := range []string{
		i.run + "/sb/*", i.run + "/*.sock", i.run + "/*.ttrpc",
		i.root + "/containerd/*snapshotter*/snapshots/*", i.root + "/containerd/*runtime*/*/*",
	} {
		left, err := filepath.Glob(pattern)
		if len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("files left: %v", left))
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if log := i.read("shelld.log"); !i.odd {
		for _, sign := range []string{"level=ERROR", "panic:", "DATA RACE", "goroutine "} {
			if strings.Contains(log, sign) {
				errs = append(errs, fmt.Errorf("the log has %q", sign))
			}
		}
	}
	return errs
}

func (i *instance) read(name string) string {
	data, err := os.ReadFile(filepath.Join(i.dir, name))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// logs returns what the programs of the instance have said.
func (i *instance) logs() string {
	var b strings.Builder
	for _, name := range []string{"shelld.log", "root/engine.log", "run/engine.out", "run/holder.out"} {
		text := i.read(name)
		if len(text) > 8<<10 {
			text = "…" + text[len(text)-8<<10:]
		}
		fmt.Fprintf(&b, "--- %s/%s\n%s\n", i.dir, name, text)
	}
	return b.String()
}

// shared are the daemons that tests use which do nothing to the daemon itself.
var shared struct {
	sync.Mutex
	byMode map[mode]*instance
}

// eachShared runs the test in each mode on a daemon that other tests use too.
func eachShared(t *testing.T, test func(t *testing.T, i *instance)) {
	t.Helper()
	eachMode(t, func(t *testing.T, m mode) {
		i, err := sharedInstance(m)
		if err != nil {
			t.Fatal(err)
		}
		test(t, i)
	})
}

func sharedInstance(m mode) (*instance, error) {
	shared.Lock()
	defer shared.Unlock()
	if i := shared.byMode[m]; i != nil {
		return i, nil
	}
	i, err := prepare(m)
	if err != nil {
		return nil, err
	}
	if shared.byMode == nil {
		shared.byMode = map[mode]*instance{}
	}
	shared.byMode[m] = i
	return i, i.begin()
}

func closeShared() []error {
	shared.Lock()
	defer shared.Unlock()
	var errs []error
	for m, i := range shared.byMode {
		if found := i.takeDown(); len(found) > 0 {
			errs = append(errs, fmt.Errorf("shared %s daemon: %w\n%s", m, errors.Join(found...), i.logs()))
		}
	}
	return errs
}

// signal sends a signal to a process, and to nothing else.
func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if pid <= 1 {
		t.Fatalf("no process to signal: %d", pid)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("signal %d: %v", pid, err)
	}
}
