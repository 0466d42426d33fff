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

	// detach ends the context of the box's goroutines; wg waits for them.
	work   func(func(context.Context))
	detach context.CancelCauseFunc
	wg     sync.WaitGroup

	done   chan struct{}
	mu     sync.Mutex // guards the rest
	err    error
	closed bool // no more goroutines
	// shell is what commands run in: bash until it turns out to be missing.
	shell string
}

func newBox(opts Options, id sandbox.ID, client *guest.Client, group *limit.Sandbox, limits sandbox.Limits, env map[string]string) *box {
	ctx, detach := context.WithCancelCause(context.Background())
	b := &box{
		opts: opts, id: id, client: client, group: group, limits: limits, env: env,
		detach: detach, done: make(chan struct{}), shell: bash,
	}
	b.work = func(f func(context.Context)) { f(ctx) }
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

// spawn starts a goroutine of the box, whose context ends when the box is
// closed. After that f is called at once, with a context that has ended.
func (b *box) spawn(f func(context.Context)) {
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.wg.Go(func() { b.work(f) })
	}
	b.mu.Unlock()
	if closed {
		b.work(f)
	}
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
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.detach(errDetached)
	err := b.client.Close()
	b.wg.Wait()
	return err
}

// Start implements [sandbox.Box].
func (b *box) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Run, error) {
	id := b.opts.Spools.ids.name(b.id, cmd.Call, cmd.Index)
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
		b.abandon(id, group, err)
		return nil, startError(err, cmd)
	}
	return b.newRun(id, cmd, proc, group), nil //nolint:contextcheck // the run outlives the call
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

// abandon cleans up after a start that failed. Unless the guest has said so
// the command may yet come to run, where nobody would see it and nothing end
// it: then it is killed in the background.
func (b *box) abandon(id string, group *limit.Run, err error) {
	_, refused := errors.AsType[*guest.StartError](err)
	b.spawn(func(ctx context.Context) {
		var err error
		switch {
		case group != nil && refused:
			err = group.Release()
		case !refused:
			err = b.endUnseen(ctx, id, group)
		}
		if err != nil && ctx.Err() == nil {
			b.fail(fmt.Errorf("a command that nobody waits for could not be kept from running: %w", err))
		}
		_ = b.client.Forget(id) // fails only with the connection, which the box watches
	})
}

// endUnseen kills a command of which it is not known whether it runs.
func (b *box) endUnseen(ctx context.Context, id string, group *limit.Run) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killBudget, errKillBudget)
	defer cancel()
	if group != nil {
		return group.Discard(ctx)
	}
	return b.killAnchored(ctx, id)
}

// killAnchored lets the guest kill what lives of a run.
func (b *box) killAnchored(ctx context.Context, id string) error {
	err := b.client.Kill(ctx, id)
	if errors.Is(err, syscall.ESRCH) {
		return nil // nothing does
	}
	return err
}

// startError says what a failed start means to the caller.
func startError(err error, cmd sandbox.Command) error {
	if errors.Is(err, guest.ErrTooLarge) {
		return &sandbox.Error{
			Class: sandbox.ErrTooLarge, Code: sandbox.CodeTooLarge, Param: "env", Cause: err,
			Message: "the command and the environment are too large together; make them shorter",
		}
	}
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
