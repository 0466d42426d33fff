package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/rpc"
)

func newShutdown(p *program) *cobra.Command {
	var req rpc.Shutdown
	cmd := &cobra.Command{
		Use:   "shutdown",
		Short: "Stop the daemon",
		Long: `Stop the daemon. Its sandboxes, and what runs in them, live on and belong to the
next daemon, unless --sandboxes stops them too.`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runShutdown(cmd.Context(), p, req) },
	}
	cmd.Flags().BoolVar(&req.Sandboxes, "sandboxes", false, "stop all sandboxes and the engine first")
	return cmd
}

func runShutdown(ctx context.Context, p *program, req rpc.Shutdown) error {
	if err := p.client.Shutdown(ctx, req); err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, map[string]string{"status": "stopping"})
	}
	_, err := io.WriteString(p.out, "shelld is stopping\n")
	return err
}
