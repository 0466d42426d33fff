package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/client"
)

// program is what all commands share.
type program struct {
	in       io.Reader
	out, err io.Writer
	version  string
	now      func() time.Time

	// socket and json are the global flags.
	socket string
	json   bool
	client *client.Client
}

// Main runs shellctl on the process's streams and returns its exit code. A
// second signal calls exit at once.
func Main(version string, args []string, exit func(int)) int {
	// Writing to a pipe that nobody reads must be an error, so that exec can
	// cancel its call before it ends.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := withSignals(context.Background(), exit)
	defer stop()
	p := &program{
		in: os.Stdin, out: pipeWriter{os.Stdout}, err: pipeWriter{os.Stderr},
		version: version, now: time.Now,
	}
	return p.run(ctx, args)
}

func (p *program) run(ctx context.Context, args []string) int {
	root := newRoot(p) //nolint:contextcheck // cobra hands ctx to the commands
	root.SetArgs(args)
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	err := root.ExecuteContext(ctx)
	if p.client != nil {
		p.client.Close()
	}
	if cause := interruption(ctx); cause != nil && err != nil {
		err = cause
	}
	p.report(err)
	return exitCode(err)
}

const rootHelp = `Run commands in sandboxes of shelld, and look after the sandboxes.

With --json results are JSON on standard output, and an error is the last line
of standard error: {"error":{"message":"…","code":"…"}}. Without a code of the
API, code is "usage", "not_running" or "client".

Every command ends with 0, or 125 when shelld or the usage is at fault;
exec has more codes, see 'shellctl exec --help'.`

func newRoot(p *program) *cobra.Command {
	root := &cobra.Command{
		Use:           "shellctl",
		Short:         "Run commands in sandboxes",
		Long:          rootHelp,
		Version:       p.version,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRun: func(*cobra.Command, []string) {
			p.client = client.New(client.Options{Socket: p.socket, UserAgent: "shellctl/" + p.version})
		},
	}
	group(root)
	root.SetFlagErrorFunc(flagError)
	root.SetVersionTemplate("shellctl {{.Version}}\n")
	flags := root.PersistentFlags()
	flags.StringVar(&p.socket, "socket", "", "path of the daemon's socket (default: $SHELLD_SOCKET, else the usual place)")
	flags.BoolVar(&p.json, "json", false, "results and errors as JSON")
	root.AddCommand(
		newExec(p), newCall(p), newContainer(p), newRun(p), newInfo(p), newShutdown(p), newVersion(p),
	)
	return root
}

// group makes a command of one that only holds others: alone it shows its
// help, and what it does not know is an error that suggests what it does.
func group(cmd *cobra.Command) { groupOr(cmd, nil) }

// groupOr is group with a further suggestion for arguments that are no command.
func groupOr(cmd *cobra.Command, otherwise func(args []string) string) {
	cmd.Args = cobra.ArbitraryArgs
	cmd.SuggestionsMinimumDistance = 2 // letters that may be wrong
	cmd.Flags().SetInterspersed(false) // what follows an unknown command is not ours
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		err := fmt.Errorf("unknown command %q", args[0])
		near := cmd.SuggestionsFor(args[0])
		switch {
		case len(near) > 0 && cmd.ArgsLenAtDash() < 0:
			err = fmt.Errorf("%w, did you mean %q?", err, near[0])
		case otherwise != nil:
			err = fmt.Errorf("%w; %s", err, otherwise(args))
		}
		return &usageError{command: cmd.CommandPath(), err: err}
	}
}
