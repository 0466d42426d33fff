package engine

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// TestMain lets the test binary stand in for "shelld engine": the engine under
// test starts its own executable.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "engine" {
		if err := engineMain(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this is a main
		}
		return
	}
	m.Run()
}

func engineMain(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if len(args) > 0 && args[0] == "holder" {
		return RunHolder(ctx, args[1:])
	}
	var opts HostOptions
	flags := flag.NewFlagSet("engine", flag.ContinueOnError)
	flags.StringVar(&opts.Root, "root", "", "")
	flags.StringVar(&opts.Run, "run", "", "")
	flags.StringVar(&opts.Libexec, "libexec", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	opts.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	return Run(ctx, opts)
}
