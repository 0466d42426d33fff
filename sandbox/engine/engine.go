package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/shelld/shelld/rpc/socket/flock"
	"github.com/shelld/shelld/sandbox"
)

// Options are the options of [Open].
type Options struct {
	Dirs
	// Address is the socket of an existing containerd to use instead of one of
	// our own; for root only. Empty: our own.
	Address string
	// External says that something else, such as systemd, starts the engine
	// process. False: Open starts it when none runs.
	External bool
	// Command is the command line of the engine process; nil: this executable
	// with "engine" and the flags --root, --run and --libexec.
	Command []string
	// HostPaths are further read-only paths of the host for sandboxes.
	HostPaths []string
	// Clone3 lets commands use clone3(2), which is needed to start processes
	// in a cgroup of version 2.
	Clone3 bool
	// StartTimeout is how long the engine may take to answer. Zero: 15 s.
	StartTimeout time.Duration
	// GuestTimeout is how long a guest may take to listen. Zero: 10 s.
	GuestTimeout time.Duration
	// Host is where the requirements are looked up; zero: this machine.
	Host Host
	// Logger gets what goes wrong without failing a call; nil discards it.
	Logger *slog.Logger
}

const (
	defaultStartTimeout = 15 * time.Second
	defaultGuestTimeout = 10 * time.Second
	// defaultTaskBudget is much longer than any shim needs that does not hang.
	defaultTaskBudget = 10 * time.Second
	// reconnect bounds the pause before the client looks for a containerd that
	// was away.
	reconnect = 500 * time.Millisecond
	// undoBudget is how long it may take to remove what a failed call made.
	undoBudget = 20 * time.Second
	// infoBudget is how long a containerd may take to say its version, which
	// takes one that works some milliseconds.
	infoBudget = time.Second
	// ctrdNamespace is containerd's namespace of all that is ours.
	ctrdNamespace = "shelld"
)

// Engine is a [sandbox.Backend] on containerd. It is safe for concurrent use.
// Its calls fail with [sandbox.ErrUnavailable] while containerd is away and
// work again when it is back.
type Engine struct {
	opts   Options
	mode   Mode
	client *containerd.Client
	holder *holderClient
	logger *slog.Logger
	// taskBudget is how long a shim may take to end a sandbox.
	taskBudget time.Duration

	// starting serialises starts of the engine process.
	starting sync.Mutex

	// idsMu guards ids, which is nil until it was read from containerd.
	idsMu sync.Mutex
	ids   *idPool
}

var _ sandbox.Backend = (*Engine)(nil)

// Info says which engine is in use.
type Info struct {
	// Address is containerd's socket.
	Address string
	// ContainerdVersion is empty while containerd is away or hangs.
	ContainerdVersion string
}

// Open connects to the engine of opts.Dirs, starts it if none runs, and returns
// when containerd answers. The engine outlives the returned object, which the
// caller closes.
//
// Errors match [sandbox.ErrUnavailable]: with [sandbox.CodeNotReady] the
// machine lacks something, which the message names; with
// [sandbox.CodeEngineUnavailable] a later attempt may succeed.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.StartTimeout == 0 {
		opts.StartTimeout = defaultStartTimeout
	}
	if opts.GuestTimeout == 0 {
		opts.GuestTimeout = defaultGuestTimeout
	}
	e := &Engine{opts: opts, mode: hostMode(), logger: opts.Logger, holder: newHolderClient(opts.Dirs), taskBudget: defaultTaskBudget}
	if err := e.require(); err != nil {
		return nil, err
	}
	var err error
	e.client, err = containerd.New(e.address(), containerd.WithTimeout(reconnect), containerd.WithDefaultNamespace(ctrdNamespace))
	if err != nil {
		return nil, fmt.Errorf("open engine: %w", err)
	}
	err = e.Ensure(ctx)
	if err == nil {
		err = e.sweep(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// sweep removes the guests' directories of sandboxes whose creation ended with
// the daemon before there was a container. Their snapshots go with the lease.
func (e *Engine) sweep(ctx context.Context) error {
	dirs, err := filepath.Glob(e.opts.guestDir("*"))
	if err != nil || len(dirs) == 0 {
		return err
	}
	list, err := e.client.ContainerService().List(withNamespace(ctx), e.ours())
	if err != nil {
		return wrap(ctx, "list containers", err)
	}
	for _, dir := range dirs {
		known := slices.ContainsFunc(list, func(c containers.Container) bool { return c.ID == filepath.Base(dir) })
		if known {
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove directory of a guest that is gone: %w", err)
		}
	}
	return nil
}

// require checks what can be known before anything is started.
func (e *Engine) require() error {
	if e.opts.Address == "" {
		if err := Require(e.opts.Host, e.opts.Dirs, e.mode); err != nil {
			return err
		}
	} else if e.mode != ModeRoot {
		return notReady("an existing containerd (%s) can only be used by root; run shelld as root, or without [engine] address", e.opts.Address)
	}
	// Names an unsupported host now instead of at the first sandbox.
	_, err := e.hostImage()
	return err
}

func (e *Engine) own() bool { return e.opts.Address == "" }

func (e *Engine) address() string {
	if e.own() {
		return e.opts.containerdSocket()
	}
	return e.opts.Address
}

// Info describes the engine as it is now, within 1 s.
func (e *Engine) Info(ctx context.Context) Info {
	ctx, cancel := context.WithTimeoutCause(ctx, infoBudget, errors.New("containerd does not answer"))
	defer cancel()
	info := Info{Address: e.address()}
	if v, err := e.client.Version(ctx); err == nil {
		info.ContainerdVersion = v.Version
	}
	return info
}

// Close ends the connection to the engine, which goes on running.
func (e *Engine) Close() error {
	e.holder.close()
	if err := e.client.Close(); err != nil {
		return fmt.Errorf("close engine connection: %w", err)
	}
	return nil
}

// Stop ends the holder, containerd and with them the engine process, and
// returns when they have ended. Sandboxes that still exist go on running and
// are found again by the next engine. It does nothing to a containerd that is
// not our own, or when no engine runs.
func (e *Engine) Stop(ctx context.Context) error {
	if !e.own() {
		return nil
	}
	state, err := e.holder.state(ctx)
	if err != nil {
		return nil //nolint:nilerr // nobody answers: nothing to stop
	}
	if _, err := e.holder.stop(ctx); err != nil {
		return fmt.Errorf("stop engine: %w", err)
	}
	if err := waitProcess(ctx, state.PID); err != nil {
		return fmt.Errorf("stop engine: %w", err)
	}
	// The engine process has the lock until its very end.
	tick := time.NewTicker(holderPoll)
	defer tick.Stop()
	for {
		lock, err := flock.Try(e.opts.engineLock())
		if err == nil {
			return lock.Close()
		}
		if !errors.Is(err, flock.ErrHeld) {
			return fmt.Errorf("stop engine: %w", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stop engine: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// withNamespace marks the calls of ctx as ours.
func withNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, ctrdNamespace)
}
