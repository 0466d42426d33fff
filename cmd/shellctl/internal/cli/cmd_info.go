package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

func newInfo(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Show the daemon and what this machine enforces",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return runInfo(cmd.Context(), p) },
	}
}

func runInfo(ctx context.Context, p *program) error {
	info, err := p.client.Info(ctx)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, info)
	}
	ready := "yes"
	if !info.Ready {
		ready = join("no", deref(info.NotReady))
	}
	cgroup := "v" + strconv.Itoa(info.Cgroup.Version)
	if info.Cgroup.Version == 0 {
		cgroup = join("none", deref(info.Cgroup.Reason))
	}
	t := newTable(p.out)
	t.row("shellctl", p.version)
	t.row("shelld", info.Version+" (pid "+strconv.Itoa(info.PID)+", "+info.Mode+")")
	t.row("ready", ready)
	t.row("engine", strings.TrimSpace(info.Engine.Status+" "+info.Engine.Version))
	t.row("engine socket", info.Engine.Address)
	t.row("cgroup", cgroup)
	t.row("containers", strconv.Itoa(info.Containers))
	t.row("running commands", strconv.Itoa(info.Runs))
	t.row("config", strings.Join(info.Config, " "))
	return t.flush()
}
