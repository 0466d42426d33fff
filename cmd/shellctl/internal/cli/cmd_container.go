package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

func newContainer(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "container", Short: "Make, list and remove containers"}
	group(cmd)
	cmd.AddCommand(newContainerCreate(p), newContainerLs(p), newContainerInspect(p), newContainerRm(p))
	return cmd
}

type containerCreateOptions struct {
	name    string
	image   string
	memory  string
	env     []string
	labels  []string
	expires time.Duration
}

func newContainerCreate(p *program) *cobra.Command {
	var o containerCreateOptions
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Make a container and print its id",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return surplus(cmd, args[1], "a container has one name")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = "shellctl"
			if len(args) > 0 {
				o.name = args[0]
			}
			return runContainerCreate(cmd.Context(), p, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.image, "image", "", "image (default: the daemon's)")
	flags.StringVar(&o.memory, "memory", "", "memory limit, such as 512m (default: the daemon's)")
	flags.StringArrayVarP(&o.env, "env", "e", nil, "set a variable for all commands: NAME=VALUE, or NAME to pass ours on")
	flags.StringArrayVarP(&o.labels, "label", "l", nil, "label: NAME=VALUE")
	flags.DurationVar(&o.expires, "expires-after", 0, "idle time after which it expires, in whole minutes (default: the daemon's)")
	return cmd
}

func runContainerCreate(ctx context.Context, p *program, o containerCreateOptions) error {
	req := rpc.ContainerCreate{Name: o.name, Image: optional(o.image), MemoryLimit: optional(o.memory)}
	var err error
	if req.Env, err = variables(o.env); err != nil {
		return &usageError{command: "shellctl container create", err: err}
	}
	for _, l := range o.labels {
		name, value, given := strings.Cut(l, "=")
		if !given || name == "" {
			return &usageError{command: "shellctl container create", err: fmt.Errorf("--label %q is not NAME=VALUE", l)}
		}
		if req.Labels == nil {
			req.Labels = map[string]string{}
		}
		req.Labels[name] = value
	}
	if o.expires != 0 {
		if o.expires < time.Minute || o.expires%time.Minute != 0 {
			return &usageError{command: "shellctl container create", err: fmt.Errorf("--expires-after %s is not in whole minutes", o.expires)}
		}
		req.ExpiresAfter = &rpc.ExpiresAfter{Anchor: "last_active_at", Minutes: int(o.expires / time.Minute)}
	}
	c, err := p.client.CreateContainer(ctx, req)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, c)
	}
	_, err = io.WriteString(p.out, c.ID+"\n")
	return err
}

func newContainerLs(p *program) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List containers, newest first",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runContainerLs(cmd.Context(), p, name) },
	}
	cmd.Flags().StringVar(&name, "name", "", "only those with exactly this name")
	return cmd
}

func runContainerLs(ctx context.Context, p *program, name string) error {
	containers := []rpc.Container{}
	for c, err := range p.client.AllContainers(ctx, client.ContainerList{Name: name}) {
		if err != nil {
			return err
		}
		containers = append(containers, c)
	}
	if p.json {
		return writeJSON(p.out, containers)
	}
	t := newTable(p.out, "ID", "NAME", "STATUS", "CREATED", "ACTIVE", "MEMORY", "IMAGE")
	for _, c := range containers {
		memory := size(c.Limits.Memory.Value)
		if !c.Limits.Memory.Enforced {
			memory += " (not enforced)"
		}
		t.row(c.ID, c.Name, c.Status, p.ago(c.CreatedAt), p.ago(c.LastActiveAt), memory, c.Image)
	}
	return t.flush()
}

func newContainerInspect(p *program) *cobra.Command {
	return &cobra.Command{
		Use:               "inspect ID|NAME",
		Short:             "Show a container",
		Args:              containerOperand.one,
		ValidArgsFunction: p.completeContainers,
		RunE:              func(cmd *cobra.Command, args []string) error { return runContainerInspect(cmd.Context(), p, args[0]) },
	}
}

func runContainerInspect(ctx context.Context, p *program, id string) error {
	id, err := p.containerID(ctx, id)
	if err != nil {
		return err
	}
	c, err := p.client.Container(ctx, id)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, c)
	}
	t := newTable(p.out)
	t.row("id", c.ID)
	t.row("name", c.Name)
	t.row("status", join(c.Status, deref(c.StatusReason)))
	t.row("created", p.ago(c.CreatedAt))
	t.row("last active", p.ago(c.LastActiveAt))
	t.row("expires", fmt.Sprintf("after %d idle minutes", c.ExpiresAfter.Minutes))
	t.row("image", c.Image)
	t.row("memory", size(c.Limits.Memory.Value)+enforced(c.Limits.Memory))
	t.row("processes", fmt.Sprint(c.Limits.Pids.Value)+enforced(c.Limits.Pids))
	t.row("network", join(c.NetworkPolicy.Type, strings.Join(c.NetworkPolicy.AllowedDomains, " ")))
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		t.row("label", name+"="+c.Labels[name])
	}
	return t.flush()
}

func enforced(l rpc.Limit) string {
	if l.Enforced {
		return " (enforced)"
	}
	return " (not enforced on this machine)"
}

func newContainerRm(p *program) *cobra.Command {
	return &cobra.Command{
		Use:               "rm ID|NAME…",
		Short:             "Remove containers with all that runs in them",
		Args:              containerOperand.some,
		ValidArgsFunction: p.completeContainers,
		RunE:              func(cmd *cobra.Command, args []string) error { return runContainerRm(cmd.Context(), p, args) },
	}
}

// runContainerRm removes what it can; the first error is the command's, the
// others are reported on the way.
func runContainerRm(ctx context.Context, p *program, ids []string) error {
	return p.each(ids, func(id string) error {
		id, err := p.containerID(ctx, id)
		if err != nil {
			return err
		}
		if err := p.client.DeleteContainer(ctx, id); err != nil {
			return err
		}
		if p.json {
			return writeJSON(p.out, rpc.Deleted{ID: id, Object: "container.deleted", Deleted: true})
		}
		_, err = io.WriteString(p.out, id+"\n")
		return err
	})
}

// each does something to all, and reports every error but the last.
func (p *program) each(ids []string, do func(id string) error) error {
	var failed error
	for _, id := range ids {
		err := do(id)
		if err == nil {
			continue
		}
		p.report(failed)
		failed = err
		if errors.Is(err, client.ErrNotRunning) || errors.Is(err, errBrokenPipe) {
			break
		}
	}
	return failed
}

// completeContainers offers the ids of running containers to a shell. It is
// silent about errors: completion has nowhere to put them.
func (p *program) completeContainers(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	c := client.New(client.Options{Socket: p.socket})
	defer c.Close()
	var ids []string
	for container, err := range c.AllContainers(cmd.Context(), client.ContainerList{}) {
		if err != nil {
			break
		}
		if container.Status == "running" {
			ids = append(ids, container.ID+"\t"+printable(container.Name))
		}
	}
	return ids, cobra.ShellCompDirectiveNoFileComp
}
