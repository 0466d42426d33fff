// Command shelld is the daemon: it owns the sandboxes and serves the API.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/shelld/shelld/daemon"
)

// version is stamped by the build.
var version = "devel"

func main() {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup means it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := daemon.Main(ctx, version, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shelld:", err)
		os.Exit(1)
	}
}
