package cli

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/rpc/socket/xdg"
)

func newInfo(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "info",
		Short: "Show the daemon and what this machine enforces",
		Args:  noArgs,
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
	if info.Cgroup.Version == 0 && info.Ready {
		t.row("limits", "cannot be enforced; containers are refused unless limits.allow_unenforced = true is configured")
	}
	t.row("containers", strconv.Itoa(info.Containers))
	t.row("running commands", strconv.Itoa(info.Runs))
	t.row("config", configFiles(info))
	return t.flush()
}

// configFiles names the files that the daemon has read, or the one that it
// would read for this user.
func configFiles(info *rpc.Info) string {
	if len(info.Config) > 0 {
		return strings.Join(info.Config, " ")
	}
	dir, err := xdg.Host().Dir(xdg.Config)
	if err != nil {
		return "none"
	}
	return "none (would be " + filepath.Join(dir, "config.toml") + ")"
}
