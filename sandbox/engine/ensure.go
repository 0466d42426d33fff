package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/shelld/shelld/rpc/socket/flock"
	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/engine/rundir"
)

// Ensure returns when containerd answers, after starting the engine process if
// none runs. Call it when other calls say that the engine is away.
func (e *Engine) Ensure(ctx context.Context) error {
	e.starting.Lock()
	defer e.starting.Unlock()
	// Made here so that the daemon's user owns them in any case.
	if err := prepareDirs(e.opts.Dirs); err != nil {
		return err
	}
	if e.own() {
		if err := e.startLocked(ctx); err != nil {
			return err
		}
	} else if err := os.MkdirAll(rundir.Guests(e.opts.Run), 0o711); err != nil { //nolint:gosec // as in [holder.prepareRun]
		return fmt.Errorf("make guest directory: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.opts.StartTimeout, errors.New("it did not answer in time"))
	defer cancel()
	tick := time.NewTicker(holderPoll)
	defer tick.Stop()
	for {
		_, err := e.client.Version(ctx)
		if err == nil {
			return nil
		}
		// The client waits for a pause before it dials again; not here.
		if conn, ok := e.client.Conn().(interface{ ResetConnectBackoff() }); ok {
			conn.ResetConnectBackoff()
		}
		select {
		case <-ctx.Done():
			return sandbox.Unavailable(sandbox.CodeEngineUnavailable, errors.Join(context.Cause(ctx), err),
				"containerd (%s) does not answer; %s", e.address(), e.advice())
		case <-tick.C:
		}
	}
}

func (e *Engine) advice() string {
	switch {
	case !e.own():
		return "start it, or remove [engine] address from the configuration"
	case e.opts.External:
		return "start the unit shelld-engine, and see " + e.opts.log()
	}
	return "see " + e.opts.log()
}

// startLocked starts the engine process when no holder answers, and returns
// when one does.
func (e *Engine) startLocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.opts.StartTimeout, errors.New("it did not answer in time"))
	defer cancel()
	tick := time.NewTicker(holderPoll)
	defer tick.Stop()
	var ended chan error // of the process that this call has started
	for {
		_, err := e.holder.state(ctx)
		if err == nil {
			return nil
		}
		if ended == nil && !e.opts.External && e.noEngine() {
			ended = make(chan error, 1)
			if err := e.spawn(ended); err != nil {
				return err
			}
		}
		select {
		case exit := <-ended:
			if e.noEngine() {
				return sandbox.Unavailable(sandbox.CodeNotReady, exit,
					"the engine cannot start: %s", lastLine(e.spawnOutput(), e.opts.log()))
			}
			// Another engine process was faster; its holder answers soon.
			ended = nil
		case <-ctx.Done():
			return sandbox.Unavailable(sandbox.CodeEngineUnavailable, errors.Join(context.Cause(ctx), err),
				"the engine does not answer; %s", e.advice())
		case <-tick.C:
		}
	}
}

// noEngine reports whether no engine process runs: each has its lock from
// beginning to end. One that was killed may have it for a moment longer.
func (e *Engine) noEngine() bool {
	lock, err := flock.Try(e.opts.engineLock())
	if err == nil {
		// Nothing was written that Close could lose.
		_ = lock.Close()
	}
	return !errors.Is(err, flock.ErrHeld)
}

func (e *Engine) spawnOutput() string { return filepath.Join(e.opts.Run, "engine.out") }

// spawn starts the engine process. ended receives its end, should that come.
func (e *Engine) spawn(ended chan<- error) error {
	argv := e.opts.Command
	if argv == nil {
		exe, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find own executable: %w", err)
		}
		argv = []string{exe, "engine", "--root", e.opts.Root, "--run", e.opts.Run, "--libexec", e.opts.Libexec}
	}
	output, err := os.OpenFile(e.spawnOutput(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open engine output: %w", err)
	}
	cmd := detached(argv, output)
	err = cmd.Start()
	if err := errors.Join(err, output.Close()); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	// Keeps the engine from becoming a zombie. It ends with the engine, which
	// outlives this process by design, so nobody waits for it.
	go waitFor(cmd, ended)
	return nil
}

func waitFor(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }
