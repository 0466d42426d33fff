package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/guest"
	"github.com/shelld/shelld/sandbox/limit"
)

// errDetached ends what goes on in a box when shelld lets go of it.
var errDetached = errors.New("shelld has let go of the sandbox")

// box is a sandbox in use. It implements [sandbox.Box].
type box struct {
	opts   Options
	id     sandbox.ID
	client *guest.Client
	group  *limit.Sandbox // nil without cgroups
	limits sandbox.Limits
	env    map[string]string

	// spawn starts a goroutine of the box, whose context detach ends; wg waits
	// for all of them.
	spawn  func(func(context.Context))
	detach context.CancelCauseFunc
	wg     sync.WaitGroup

	done chan struct{}
	mu   sync.Mutex // guards the rest
	err  error
	// shell is what commands run in: bash until it turns out to be missing.
	shell string
}

func newBox(opts Options, id sandbox.ID, client *guest.Client, group *limit.Sandbox, limits sandbox.Limits, env map[string]string) *box {
	ctx, detach := context.WithCancelCause(context.Background())
	b := &box{
		opts: opts, id: id, client: client, group: group, limits: limits, env: env,
		detach: detach, done: make(chan struct{}), shell: bash,
	}
	b.spawn = func(f func(context.Context)) { b.wg.Go(func() { f(ctx) }) }
	b.spawn(func(ctx context.Context) {
		select {
		case <-client.Done():
			if ctx.Err() != nil {
				return // it was closed
			}
			b.fail(fmt.Errorf("its process 1 is gone or does not keep to the protocol: %w", client.Err()))
		case <-ctx.Done():
		}
	})
	return b
}

// Limits implements [sandbox.Box].
func (b *box) Limits() sandbox.Limits { return b.limits }

// Done implements [sandbox.Box].
func (b *box) Done() <-chan struct{} { return b.done }

// Err implements [sandbox.Box].
func (b *box) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// fail declares the sandbox unusable. The first reason counts.
func (b *box) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = err
		close(b.done)
	}
}

// Close implements [sandbox.Box].
func (b *box) Close() error {
	b.detach(errDetached)
	err := b.client.Close()
	b.wg.Wait()
	return err
}

// Start implements [sandbox.Box].
func (b *box) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Run, error) {
	id := runID(cmd.Call, cmd.Index)
	group, files, err := b.runGroup()
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	shell := b.currentShell()
	req := guest.StartRequest{
		ID: id, Argv: argv(shell, cmd.Text), Env: environ(shell, b.env, cmd.Env), Dir: cmd.Dir,
		Stdin: cmd.Stdin, UID: commandUID, GID: commandGID, Cgroup: files,
	}
	proc, err := b.client.Start(ctx, req)
	if startErr, ok := errors.AsType[*guest.StartError](err); ok && shell == bash &&
		startErr.Stage == guest.StageExec && errors.Is(startErr, fs.ErrNotExist) {
		b.setShell(sh)
		req.Argv, req.Env = argv(sh, cmd.Text), environ(sh, b.env, cmd.Env)
		proc, err = b.client.Start(ctx, req)
	}
	if err != nil {
		b.abandon(ctx, id, group)
		return nil, startError(err, cmd)
	}
	return b.newRun(id, cmd, proc, group), nil
}

// runGroup takes a cgroup for a run and opens what the guest needs of it.
func (b *box) runGroup() (*limit.Run, []*os.File, error) {
	if b.group == nil {
		return nil, nil, nil
	}
	group, err := b.group.Run()
	if err != nil {
		return nil, nil, err
	}
	files, err := group.Open()
	if err != nil {
		return nil, nil, errors.Join(err, group.Release())
	}
	return group, files, nil
}

// abandon cleans up after a start that failed, or that nobody waited for; in
// that case the command may yet run.
func (b *box) abandon(ctx context.Context, id string, group *limit.Run) {
	killCtx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), killBudget, errKillBudget)
	defer cancel()
	var err error
	if group != nil {
		if ctx.Err() != nil {
			err = group.Kill(killCtx)
		}
		err = errors.Join(err, group.Release())
	} else if ctx.Err() != nil {
		err = b.client.Kill(killCtx, id)
	}
	err = errors.Join(err, b.client.Forget(id))
	if err != nil {
		b.opts.Log.DebugContext(ctx, "start not cleaned up", "container_id", b.id, "run", id, "err", err)
	}
}

// startError says what a failed start means to the caller.
func startError(err error, cmd sandbox.Command) error {
	e, ok := errors.AsType[*guest.StartError](err)
	if !ok {
		return guestError(err)
	}
	switch e.Stage {
	case guest.StageDir:
		return sandbox.Invalid("working_directory", "working_directory %s cannot be entered in the container: %s", cmd.Dir, e.Errno)
	case guest.StageExec:
		if errors.Is(e, syscall.E2BIG) {
			return sandbox.Invalid("env", "the command and the environment are too long together for the kernel; make them shorter")
		}
	case guest.StageFork, guest.StagePipe:
		return &sandbox.Error{
			Class: sandbox.ErrExhausted, Code: sandbox.CodeTooManyRuns,
			Message: "the sandbox has no room for another process (" + e.Errno.Error() + "); wait for some to end", RetryAfter: retryStart, Cause: e,
		}
	case guest.StageCgroup, guest.StageRequest:
	}
	return err
}

func (b *box) currentShell() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.shell
}

func (b *box) setShell(shell string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shell = shell
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // they were only passed on
	}
}
