package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/shelld/shelld/daemon/config"
	"github.com/shelld/shelld/daemon/instance"
	"github.com/shelld/shelld/daemon/store"
	"github.com/shelld/shelld/rpc/server"
	"github.com/shelld/shelld/rpc/socket"
	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/engine"
	"github.com/shelld/shelld/sandbox/limit"
	"github.com/shelld/shelld/sandbox/runner"
)

const (
	// drainBudget is how long answers that are under way may take at a stop.
	drainBudget = 3 * time.Second
	// shutdownBudget bounds the removal of all sandboxes before a stop.
	shutdownBudget = 60 * time.Second
	// headerBudget is how long a client may take to send a request's headers,
	// and idleBudget how long a connection is kept without a request.
	headerBudget = 10 * time.Second
	idleBudget   = 5 * time.Minute
	maxHeaders   = 64 << 10 // bytes

	// defaultMemory and defaultIdleMinutes are upstream's defaults, and
	// sandboxPids caps the processes of a sandbox.
	defaultMemory      = "1g"
	defaultIdleMinutes = 20
	sandboxPids        = 512
)

// Options say how the daemon runs. All fields are required.
type Options struct {
	Config  *config.Config
	Paths   config.Paths
	Libexec string
	// ExternalEngine says that something else, such as systemd, starts the
	// engine.
	ExternalEngine bool
	Version        string
	Log            *slog.Logger
}

func (o Options) engineDirs() engine.Dirs {
	return engine.Dirs{Root: o.Paths.Root, Run: o.Paths.Run, Libexec: o.Libexec}
}

// daemon is a running shelld.
type daemon struct {
	opts    Options
	log     *slog.Logger
	backend *backend
	tree    *limit.Tree
	scope   string // of systemd, for the sandboxes; empty without one
	manager *sandbox.Manager
	// shutdown ends Run; its cause says whether sandboxes go too.
	shutdown context.CancelCauseFunc
}

// errShutdownAll is the cause of a stop that takes the sandboxes along.
var errShutdownAll = errors.New("shutdown with all sandboxes")

// Run runs the daemon until ctx ends or a client asks for a shutdown, and
// returns nil then. Errors say why it could not start.
func Run(ctx context.Context, opts Options) (err error) {
	ctx, shutdown := context.WithCancelCause(ctx)
	defer shutdown(nil)
	d := &daemon{opts: opts, log: opts.Log, backend: newBackend(), shutdown: shutdown}
	var closers closers
	defer func() { err = errors.Join(err, closers.close()) }()

	claim, err := instance.Take(ctx, opts.Paths.Root)
	if err != nil {
		return err
	}
	closers.add(claim.Close)
	records, err := store.Open(ctx, filepath.Join(opts.Paths.Root, "state.db"))
	if err != nil {
		return err
	}
	closers.add(records.Close)
	listener, err := socket.Listen(ctx, opts.Paths.Socket)
	if err != nil {
		return err
	}
	closers.add(listener.Close)
	if d.tree, err = d.openTree(ctx); err != nil {
		return err
	}
	closers.add(d.tree.Close)
	spools, err := runner.OpenSpools(filepath.Join(opts.Paths.Root, "spool"),
		int64(opts.Config.Output.SpoolPerStream), int64(opts.Config.Output.SpoolTotal))
	if err != nil {
		return err
	}
	d.manager = sandbox.New(d.managerOptions(records, spools))
	return d.serve(ctx, listener)
}

// serve runs the API and the engine's keeper until ctx ends, and then stops
// them in order.
func (d *daemon) serve(ctx context.Context, listener net.Listener) error {
	api := &http.Server{
		Handler: server.New(server.Options{
			Manager: d.manager, Defaults: d.defaults(), Info: d.info,
			Shutdown: d.requestShutdown, Foreign: socket.Authorize, Log: d.log,
		}),
		ReadHeaderTimeout: headerBudget,
		IdleTimeout:       idleBudget,
		MaxHeaderBytes:    maxHeaders,
		ConnContext:       socket.ConnContext,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := api.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", d.opts.Paths.Socket, err)
		}
		return nil
	})
	kept := make(chan struct{}) // closed when the engine's keeper has ended
	group.Go(func() error { defer close(kept); d.keepEngine(ctx); return nil })
	notify(d.log, "READY=1")
	d.log.InfoContext(ctx, "serving", "socket", d.opts.Paths.Socket, "version", d.opts.Version)

	group.Go(func() error {
		<-ctx.Done()
		<-kept // what stop does with the engine is not to meet the keeper
		return d.stop(ctx, api)
	})
	err := group.Wait()
	if e := d.backend.engine.Load(); e != nil {
		err = errors.Join(err, e.Close())
	}
	d.log.InfoContext(ctx, "stopped", "cause", context.Cause(ctx))
	return err
}

// stop ends the API: new work is refused, waiting clients are told, and
// answers under way get a moment to finish. Sandboxes live on unless the
// shutdown was to take them along.
func (d *daemon) stop(ctx context.Context, api *http.Server) error {
	notify(d.log, "STOPPING=1")
	all := errors.Is(context.Cause(ctx), errShutdownAll)
	ctx = context.WithoutCancel(ctx)
	var errs []error
	if all {
		// More than systemd gives a stop by itself.
		notify(d.log, fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (2*shutdownBudget+drainBudget).Microseconds()))
		errs = append(errs, d.removeSandboxes(ctx))
	}
	errs = append(errs, d.manager.Close()) //nolint:contextcheck // nothing ends this wait
	if all {
		errs = append(errs, d.stopEngine(ctx))
	}
	drainCtx, cancel := context.WithTimeoutCause(ctx, drainBudget, errors.New("clients took too long"))
	defer cancel()
	if err := api.Shutdown(drainCtx); err != nil {
		d.log.WarnContext(ctx, "connections broken off", "err", err)
		errs = append(errs, api.Close())
	}
	return errors.Join(errs...)
}

func (d *daemon) requestShutdown(sandboxes bool) {
	if sandboxes {
		d.shutdown(errShutdownAll)
		return
	}
	d.shutdown(errors.New("shutdown requested"))
}

// removeSandboxes deletes all sandboxes, those of earlier daemons too that this
// one has not come to adopt, and waits for an engine that is away for a moment.
func (d *daemon) removeSandboxes(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shutdownBudget, errors.New("removing all sandboxes took too long"))
	defer cancel()
	tick := time.NewTicker(firstRetry)
	defer tick.Stop()
	for reconciled := d.manager.Ready() == nil; ; {
		err := d.ensureEngine(ctx)
		if err == nil && !reconciled {
			err = d.manager.Reconcile(ctx)
			reconciled = err == nil
		}
		if err == nil {
			err = d.manager.DeleteAll(ctx)
		}
		e, ok := errors.AsType[*sandbox.Error](err)
		switch {
		case ok && e.Code == sandbox.CodeNotReady && !reconciled:
			d.log.WarnContext(ctx, "no engine to look for sandboxes with", "err", err)
			return nil
		case !errors.Is(err, sandbox.ErrUnavailable):
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		}
	}
}

func (d *daemon) stopEngine(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, shutdownBudget, errors.New("stopping the engine took too long"))
	defer cancel()
	var errs []error
	if e := d.backend.engine.Load(); e != nil {
		errs = append(errs, e.Stop(ctx))
	}
	if d.tree.Mode() != limit.None {
		errs = append(errs, d.tree.RemoveAll(ctx))
	}
	if d.scope != "" {
		errs = append(errs, limit.StopScope(ctx, d.scope))
	}
	return errors.Join(errs...)
}

func (d *daemon) managerOptions(records *store.Store, spools *runner.Spools) sandbox.Options {
	c := d.opts.Config
	return sandbox.Options{
		Backend: &scoped{Backend: d.backend, daemon: d},
		Boxes: runner.New(runner.Options{
			Tree: d.tree, OpenGuest: d.backend.OpenGuest, Spools: spools, Pids: sandboxPids, Log: d.log,
		}),
		Outputs: spools,
		Store:   records,
		Log:     d.log,
		Policy: sandbox.Policy{
			MaxContainers: c.Limits.MaxContainers, MaxRuns: c.Limits.MaxRuns,
			Keep: c.Output.Keep, AllowUnenforced: c.Limits.AllowUnenforced,
		},
	}
}

func (d *daemon) defaults() server.Defaults {
	c := d.opts.Config
	return server.Defaults{
		Timeout: c.Limits.Timeout, MaxTimeout: c.Limits.MaxTimeout,
		MaxOutput: c.Output.MaxLength, OutputCeiling: c.Output.MaxLengthCeiling,
		MemoryLimit: defaultMemory, IdleMinutes: defaultIdleMinutes, Image: c.Image.Default,
	}
}

// engineOptions are the options of this instance's engine.
func (d *daemon) engineOptions() engine.Options {
	c := d.opts.Config
	return engine.Options{
		Dirs:      d.opts.engineDirs(),
		Address:   c.Engine.Address,
		External:  d.opts.ExternalEngine,
		HostPaths: c.Image.HostPaths,
		Clone3:    d.tree.Mode() == limit.V2,
		Logger:    d.log,
	}
}

// instanceName names what belongs to this instance on the machine, such as
// its cgroup: "shelld-" and the engine's key of the state folder.
func instanceName(root string) string {
	return "shelld-" + engine.InstanceKey(root)
}

// closers undo what Run has set up, in reverse order.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

func (c *closers) close() error {
	var errs []error
	for i := len(*c) - 1; i >= 0; i-- {
		errs = append(errs, (*c)[i]())
	}
	return errors.Join(errs...)
}
