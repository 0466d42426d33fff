package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// containerdGrace is how long containerd may take to stop.
const containerdGrace = 5 * time.Second

// A supervisor keeps one program running.
type supervisor struct {
	path   string
	args   []string
	env    []string
	output io.Writer
	logger *slog.Logger

	mu  sync.Mutex
	pid int
}

// run starts the program again and again until ctx ends, then stops it. It
// returns nil after a stop that ctx asked for.
func (s *supervisor) run(ctx context.Context) error {
	// The kernel sends the parent-death signal when the *thread* that started
	// the program ends (prctl(2)), so this goroutine keeps its thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var pauses backoff
	for {
		started := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		pause := pauses.next(time.Since(started))
		s.logger.Warn("program died, starting it again", "program", s.path, "err", err, "pause_ms", pause.Milliseconds())
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

func (s *supervisor) once(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.path, s.args...)
	cmd.Env = s.env
	cmd.Stdout, cmd.Stderr = s.output, s.output
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = containerdGrace
	// Without us nobody would restart it, and the next holder starts its own.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.start(cmd); err != nil {
		return err
	}
	err := cmd.Wait()
	s.mu.Lock()
	s.pid = 0
	s.mu.Unlock()
	if err == nil {
		err = errors.New("it ended by itself with exit status 0")
	}
	return err
}

// start starts cmd and notes its process id in one step, so that nobody takes
// the new process for an orphan.
func (s *supervisor) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s.path, err)
	}
	s.pid = cmd.Process.Pid
	return nil
}

// process returns the process id, 0 while there is none.
func (s *supervisor) process() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// reapOrphans waits for the shims and helpers that lost their parent and came
// to this process, until ctx ends. Those that own reports are left to whoever
// started them. signals delivers SIGCHLD.
func reapOrphans(ctx context.Context, signals <-chan os.Signal, own func(pid int) bool) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		for _, pid := range children() {
			if !own(pid) {
				var status syscall.WaitStatus
				// No child of that id any more, or not dead yet: nothing to do.
				_, _ = syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
			}
		}
	}
}
