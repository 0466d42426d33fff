package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	sddaemon "github.com/coreos/go-systemd/v22/daemon"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/engine"
	"github.com/shelld/shelld/sandbox/limit"
)

const (
	// firstRetry and lastRetry are the pauses between attempts to reach an
	// engine: doubled from the one to the other.
	firstRetry = 250 * time.Millisecond
	lastRetry  = 10 * time.Second
	// checkEvery is how often a running engine is looked at.
	checkEvery = 5 * time.Second
)

// keepEngine opens the engine, reconciles once it answers, and starts it again
// when it is gone, until ctx ends.
func (d *daemon) keepEngine(ctx context.Context) {
	pause := firstRetry
	var said string
	for reconciled := false; ; {
		err := d.ensureEngine(ctx)
		if err == nil && !reconciled {
			if err = d.manager.Reconcile(ctx); err == nil {
				reconciled = true
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			pause = checkEvery
			if said != "" {
				d.log.InfoContext(ctx, "engine is back")
			}
			said = ""
		default:
			if err.Error() != said { // the same again is no news
				d.log.WarnContext(ctx, "engine is away", "err", err)
				said = err.Error()
			}
			if !reconciled {
				d.manager.SetNotReady(notReady(err))
			}
			if pause == checkEvery {
				pause = firstRetry
			}
		}
		away := d.backend.away
		if err != nil {
			away = nil // known, and paused for
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-away:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if err != nil {
			pause = min(2*pause, lastRetry)
		}
	}
}

func (d *daemon) ensureEngine(ctx context.Context) error {
	if e := d.backend.engine.Load(); e != nil {
		return e.Ensure(ctx)
	}
	e, err := engine.Open(ctx, d.engineOptions())
	if err != nil {
		return err
	}
	d.backend.engine.Store(e)
	return nil
}

// notReady makes an error that callers are told until the engine runs.
func notReady(err error) error {
	if e, ok := errors.AsType[*sandbox.Error](err); ok {
		return e
	}
	return sandbox.Unavailable(sandbox.CodeNotReady, err, "the engine could not be started; shelld keeps trying, and its log has the details")
}

// notify tells systemd, if it is there, about the state of this process.
func notify(log *slog.Logger, state string) {
	if _, err := sddaemon.SdNotify(false, state); err != nil {
		log.Warn("systemd not notified", "err", err)
	}
}

// info describes the daemon for GET /v1/info.
func (d *daemon) info(ctx context.Context) rpc.Info {
	info := rpc.Info{
		Version: d.opts.Version, PID: os.Getpid(), Mode: string(engine.ModeRootless),
		Engine:     rpc.Engine{Status: "unavailable"},
		Config:     append([]string{}, d.opts.Config.Files()...),
		Extensions: []string{},
	}
	if os.Geteuid() == 0 {
		info.Mode = string(engine.ModeRoot)
	}
	switch d.tree.Mode() {
	case limit.V1:
		info.Cgroup.Version = 1
	case limit.V2:
		info.Cgroup.Version = 2
	case limit.None:
	}
	if reason := d.tree.Reason(); reason != "" {
		info.Cgroup.Reason = &reason
	}
	if e := d.backend.engine.Load(); e != nil {
		state := e.Info(ctx)
		info.Engine.Address, info.Engine.Version = state.Address, state.ContainerdVersion
		if state.ContainerdVersion != "" {
			info.Engine.Status = "running"
		}
	}
	return info
}
