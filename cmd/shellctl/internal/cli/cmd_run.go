package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

func newRun(p *program) *cobra.Command {
	cmd := &cobra.Command{Use: "run", Short: "Look at shell calls, running and ended"}
	groupOr(cmd, func(args []string) string {
		return "to run a command: shellctl exec -- " + quoteArgs(args)
	})
	cmd.AddCommand(newRunLs(p), newRunShow(p), newRunLogs(p), newRunCancel(p))
	return cmd
}

type runLsOptions struct {
	container string
	status    string
	limit     int
}

func newRunLs(p *program) *cobra.Command {
	var o runLsOptions
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List shell calls, newest first",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.limit < 1 {
				return &usageError{command: cmd.CommandPath(), err: fmt.Errorf("--limit %d is less than 1", o.limit)}
			}
			return runRunLs(cmd.Context(), p, o)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.container, "container", "C", "", "only those in this container, by id or name")
	flags.StringVar(&o.status, "status", "", "only in_progress, completed, canceled or failed ones")
	flags.IntVarP(&o.limit, "limit", "n", 20, "at most so many")
	_ = cmd.RegisterFlagCompletionFunc("container", p.completeContainers)
	return cmd
}

func runRunLs(ctx context.Context, p *program, o runLsOptions) error {
	container, err := p.containerID(ctx, o.container)
	if err != nil {
		return err
	}
	calls := []rpc.ShellCall{}
	which := client.ShellCallList{ContainerID: container, Status: o.status, Page: client.Page{Limit: min(o.limit, 100)}}
	for call, err := range p.client.AllShellCalls(ctx, which) {
		if err != nil {
			return err
		}
		if calls = append(calls, call); len(calls) == o.limit {
			break
		}
	}
	if p.json {
		return writeJSON(p.out, calls)
	}
	t := newTable(p.out, "ID", "STATUS", "EXIT", "CREATED", "CONTAINER", "COMMAND")
	for _, c := range calls {
		exit := "-"
		if c.Status != "in_progress" {
			exit = strconv.Itoa(callCode(&c))
		}
		t.row(c.ID, c.Status, exit, p.ago(c.CreatedAt), c.ContainerID, summary(c.Action.Commands))
	}
	return t.flush()
}

// summary is the first line of the first command, not too long.
func summary(commands []string) string {
	const width = 50
	if len(commands) == 0 {
		return ""
	}
	text, _, cut := strings.Cut(commands[0], "\n")
	if runes := []rune(text); len(runes) > width {
		text, cut = string(runes[:width]), true
	}
	if cut {
		text += "…"
	}
	if more := len(commands) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

func newRunShow(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a shell call and how its commands ended",
		Args:  callOperand.one,
		RunE:  func(cmd *cobra.Command, args []string) error { return runRunShow(cmd.Context(), p, args[0]) },
	}
}

func runRunShow(ctx context.Context, p *program, id string) error {
	c, err := p.client.ShellCall(ctx, id)
	if err != nil {
		return err
	}
	if p.json {
		return writeJSON(p.out, c)
	}
	t := newTable(p.out)
	t.row("id", c.ID)
	t.row("call id", c.CallID)
	t.row("status", c.Status)
	t.row("container", c.ContainerID)
	t.row("created", p.ago(c.CreatedAt))
	if err := t.flush(); err != nil {
		return err
	}
	if _, err := io.WriteString(p.out, "\n"); err != nil {
		return err
	}
	t = newTable(p.out, "COMMAND", "REASON", "EXIT", "TIME", "STDOUT", "STDERR", "TEXT")
	for i, text := range c.Action.Commands {
		cells := []string{strconv.Itoa(i + 1), "-", "-", "-", "-", "-", summary([]string{text})}
		for _, r := range c.Results {
			if r.CommandIndex != i {
				continue
			}
			cells[1] = r.Reason
			if r.ExitCode != nil {
				cells[2] = strconv.Itoa(*r.ExitCode)
			}
			cells[3] = (time.Duration(r.DurationMS) * time.Millisecond).String()
			cells[4], cells[5] = size(r.StdoutBytes), size(r.StderrBytes)
		}
		t.row(cells...)
	}
	return t.flush()
}

type runLogsOptions struct {
	id      string
	follow  bool
	command int
}

func newRunLogs(p *program) *cobra.Command {
	var o runLogsOptions
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "Print what a shell call's commands have written",
		Long: `Print what a shell call's commands have written so far: standard output on
standard output, standard error on standard error. Each stream is in its order;
which line of one came before which of the other is not kept. A command that
says 2>&1 has one stream and one order.

Of long streams shelld keeps a beginning and an end, see output.spool_per_stream
of its configuration. The exit code is 125 when bytes are missing.

With -f go on until the last process that can write has ended, which may be one
that a command left in the background.`,
		Args: callOperand.one,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			if o.command < 0 {
				return &usageError{command: cmd.CommandPath(), err: fmt.Errorf("--command %d: commands count from 1", o.command)}
			}
			return runRunLogs(cmd.Context(), p, o)
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the streams end")
	cmd.Flags().IntVar(&o.command, "command", 0, "only this command's, counted from 1, without labels")
	return cmd
}

func runRunLogs(ctx context.Context, p *program, o runLogsOptions) error {
	call, err := p.client.ShellCall(ctx, o.id)
	if err != nil {
		return err
	}
	which := make([]int, len(call.Action.Commands))
	for i := range which {
		which[i] = i
	}
	if o.command > len(which) {
		return &usageError{command: "shellctl run logs", err: fmt.Errorf("--command %d: the call has %d", o.command, len(which))}
	}
	if o.command > 0 {
		which = which[o.command-1 : o.command]
	}
	run, fail := context.WithCancelCause(ctx)
	defer fail(errOver)
	streams := p.follow(run, call.ID, which, len(which) > 1, client.OutputRange{Follow: o.follow}, fail)
	select {
	case <-streams.done:
	case <-run.Done(): // who is stuck in a write is left
	}
	if run.Err() != nil {
		return context.Cause(run)
	}
	if err := streams.complete(); err != nil {
		return err
	}
	return streams.whole()
}

func newRunCancel(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID…",
		Short: "End shell calls with all that they started",
		Args:  callOperand.some,
		RunE:  func(cmd *cobra.Command, args []string) error { return runRunCancel(cmd.Context(), p, args) },
	}
}

func runRunCancel(ctx context.Context, p *program, ids []string) error {
	return p.each(ids, func(id string) error {
		call, err := p.client.CancelShellCall(ctx, id)
		if err != nil {
			return err
		}
		if p.json {
			return writeJSON(p.out, call)
		}
		_, err = fmt.Fprintf(p.out, "%s %s\n", call.ID, call.Status)
		return err
	})
}
