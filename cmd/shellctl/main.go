// Command shellctl is the command line of shelld: it runs commands in
// sandboxes and looks after the sandboxes and the daemon.
package main

import (
	"os"

	"github.com/shelld/shelld/cmd/shellctl/internal/cli"
)

// version is stamped by the build.
var version = "devel"

func main() {
	os.Exit(cli.Main(version, os.Args[1:], os.Exit))
}
