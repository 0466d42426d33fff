package daemon

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/daemon/config"
	"github.com/shelld/shelld/daemon/instance"
	"github.com/shelld/shelld/rpc/socket/xdg"
	"github.com/shelld/shelld/sandbox/engine"
)

func (f *flags) configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check or show the configuration", Args: cobra.NoArgs}
	cmd.AddCommand(
		&cobra.Command{
			Use: "check [FILE]", Short: "Report every fault of the configuration", Args: cobra.MaximumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) == 1 {
					f.config = args[0]
				}
				cfg, err := f.load()
				if err != nil {
					return err
				}
				if _, err := config.FindPaths(xdg.Host(), cfg, f.root, f.run); err != nil {
					return err
				}
				for _, file := range cfg.Files() {
					cmd.Println(file + ": ok")
				}
				if len(cfg.Files()) == 0 {
					places, err := configPlaces()
					if err != nil {
						return err
					}
					cmd.Printf("no configuration file (looked for %s); the defaults apply\n", strings.Join(places, ", "))
				}
				return nil
			},
		},
		&cobra.Command{
			Use: "default", Short: "Print a file that explains every key", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				if places, err := configPlaces(); err == nil { // it is good to read without
					cmd.Printf("# This file is read from %s.\n", strings.Join(places, ", then from "))
				}
				_, err := cmd.OutOrStdout().Write(config.DefaultFile())
				return err
			},
		},
		&cobra.Command{
			Use: "dump", Short: "Print the values that apply and where each comes from", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				cfg, err := f.load()
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(config.Dump(cfg))
				return err
			},
		},
	)
	return cmd
}

// configPlaces returns where configuration is looked for without --config, in
// the order in which it applies: the administrator's file and the user's own.
func configPlaces() ([]string, error) {
	var places []string
	host := xdg.Host()
	for _, env := range []xdg.Env{{UID: 0, Getenv: host.Getenv}, host} {
		dir, err := env.Dir(xdg.Config)
		if err != nil {
			return nil, err
		}
		places = append(places, filepath.Join(dir, "config.toml"))
	}
	return slices.Compact(places), nil // root has but one
}

// engineCommand runs the engine process, which shelld starts by itself unless
// systemd does.
func (f *flags) engineCommand() *cobra.Command {
	return &cobra.Command{
		Use: "engine", Short: "Run the engine: containerd in namespaces of its own", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A daemon that starts its engine tells it all places; it has read
			// the file that says them, and that may be another than ours.
			cfg := config.Default()
			if f.root == "" || f.run == "" || f.libexec == "" {
				var err error
				if cfg, err = f.load(); err != nil {
					return err
				}
			}
			opts, err := f.setUp(cfg)
			if err != nil {
				return err
			}
			// The engine is often the first to use the folder.
			if err := instance.Prepare(opts.Paths.Root); err != nil {
				return err
			}
			return engine.Run(cmd.Context(), engine.HostOptions{
				Dirs:   opts.engineDirs(),
				Ready:  func() { notify(opts.Log, "READY=1") },
				Logger: opts.Log,
			})
		},
	}
}

func holdCommand() *cobra.Command {
	return &cobra.Command{
		Use: HoldCommand, Hidden: true, Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) { <-cmd.Context().Done() },
	}
}
