package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/daemon/config"
	"github.com/shelld/shelld/rpc/socket/xdg"
	"github.com/shelld/shelld/sandbox/engine"
)

// flags are what the command line sets.
type flags struct {
	config, root, run, libexec, logLevel string
	externalEngine                       bool
}

// Main is the main function of shelld. Errors are for the user to read.
func Main(ctx context.Context, version string, args []string) error {
	// The holder runs before anything else can go wrong in a new namespace.
	if len(args) > 1 && args[0] == "engine" && args[1] == "holder" {
		return engine.RunHolder(ctx, args[2:])
	}
	cmd := newCommand(version) //nolint:contextcheck // cobra hands ctx on
	cmd.SetArgs(args)
	return cmd.ExecuteContext(ctx)
}

func newCommand(version string) *cobra.Command {
	var f flags
	root := &cobra.Command{
		Use:   "shelld",
		Short: "Run the daemon that owns the sandboxes",
		Long: `shelld runs shell commands that language models propose in sandboxes on this
machine. It serves its API on a Unix socket; "shellctl" is its client.

With --root and --run it is a private instance that shares nothing with others.`,
		Args:          cobra.NoArgs,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return f.serve(cmd.Context(), version) },
	}
	root.PersistentFlags().StringVar(&f.config, "config", "", "read only this configuration file")
	root.PersistentFlags().StringVar(&f.root, "root", "", "folder of all persistent state")
	root.PersistentFlags().StringVar(&f.run, "run", "", "folder of sockets; the API socket is shelld.sock in it")
	root.PersistentFlags().StringVar(&f.libexec, "libexec", "", "folder of containerd, its shim, runc and shelld-init")
	root.PersistentFlags().StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	root.Flags().BoolVar(&f.externalEngine, "external-engine", false, "do not start the engine; something else, such as systemd, does")
	root.AddCommand(f.configCommand(), f.engineCommand(), holdCommand(), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { cmd.Println("shelld", version) },
	})
	root.SetOut(os.Stdout)
	return root
}

func (f *flags) serve(ctx context.Context, version string) error {
	cfg, err := f.load()
	if err != nil {
		return err
	}
	opts, err := f.setUp(cfg)
	if err != nil {
		return err
	}
	opts.ExternalEngine, opts.Version = f.externalEngine, version
	return Run(ctx, opts)
}

// load reads the configuration.
func (f *flags) load() (*config.Config, error) { return config.Load(xdg.Host(), f.config) }

// setUp works out what both the daemon and its engine need to know.
func (f *flags) setUp(cfg *config.Config) (opts Options, err error) {
	opts.Config = cfg
	if opts.Paths, err = config.FindPaths(xdg.Host(), cfg, f.root, f.run); err != nil {
		return opts, err
	}
	if opts.Libexec, err = f.findLibexec(cfg); err != nil {
		return opts, err
	}
	opts.Log, err = f.logger()
	return opts, err
}

// findLibexec returns the folder of the bundle: the flag's, the file's, or
// ../libexec/shelld beside this program.
func (f *flags) findLibexec(cfg *config.Config) (string, error) {
	if f.libexec != "" {
		return filepath.Abs(f.libexec)
	}
	if cfg.Engine.Libexec != "" {
		return cfg.Engine.Libexec, nil
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Join(filepath.Dir(filepath.Dir(self)), "libexec", "shelld"), nil
}

// logger writes text to standard error; without times under systemd, whose
// journal has its own.
func (f *flags) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", f.logLevel)
	}
	opts := &slog.HandlerOptions{Level: level}
	if os.Getenv("JOURNAL_STREAM") != "" {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}
	return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
}
