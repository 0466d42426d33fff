package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

const (
	// shutdownPatience is how long the daemon may take to end, and
	// sandboxesPatience how long when it ends its sandboxes first.
	shutdownPatience  = 30 * time.Second
	sandboxesPatience = 90 * time.Second
	// shutdownPause is the time between two looks at it.
	shutdownPause = 20 * time.Millisecond
)

func newShutdown(p *program) *cobra.Command {
	var req rpc.Shutdown
	cmd := &cobra.Command{
		Use:   "shutdown",
		Short: "Stop the daemon",
		Long: `Stop the daemon and wait until it has ended. Its sandboxes, and what runs in
them, live on and belong to the next daemon, unless --sandboxes stops them too.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runShutdown(cmd.Context(), p, req) },
	}
	cmd.Flags().BoolVar(&req.Sandboxes, "sandboxes", false, "stop all sandboxes and the engine first")
	return cmd
}

func runShutdown(ctx context.Context, p *program, req rpc.Shutdown) error {
	patience := shutdownPatience
	if req.Sandboxes {
		patience = sandboxesPatience
	}
	pid := 0
	if info, err := p.client.Info(ctx); err == nil {
		pid = info.PID
	}
	daemon := openProcess(pid)
	defer daemon.close()
	if err := p.client.Shutdown(ctx, req); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("shelld is stopping but has not ended within %s; its log says what it waits for", patience))
	defer cancel()
	if err := p.awaitEnd(ctx, daemon); err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, map[string]string{"status": "stopped"})
	}
	_, err := io.WriteString(p.out, "shelld has stopped\n")
	return err
}

// awaitEnd returns when the daemon has ended. Its process tells best: the
// socket goes away a little before it, and one of systemd's never does, but
// starts the daemon again when somebody connects.
func (p *program) awaitEnd(ctx context.Context, daemon process) error {
	tick := time.NewTicker(shutdownPause)
	defer tick.Stop()
	for {
		if daemon.known() {
			if daemon.ended() {
				return nil
			}
		} else if err := p.client.Healthy(ctx); errors.Is(err, client.ErrNotRunning) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
