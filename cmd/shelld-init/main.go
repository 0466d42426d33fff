// Command shelld-init is process 1 of every sandbox. It starts the commands
// that shelld asks for over a socket and passes their pipes back; package
// guest has all of it.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/shelld/shelld/sandbox/guest"
)

func main() {
	// A small heap is worth more than rare collections: this process is in
	// memory once per sandbox.
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	runtime.GOMAXPROCS(max(2, min(runtime.NumCPU(), maxProcs)))
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shelld-init:", err)
		os.Exit(1)
	}
}

const (
	// gcPercent brings the first collection at 0.8 MiB of heap instead of 4.
	gcPercent = 20
	// maxProcs is enough to fork and to reap at once, on any machine.
	maxProcs = 4
	// memoryLimit is soft: above it the collector works harder. Unit: bytes.
	memoryLimit = 24 << 20
)

func run(args []string) error {
	if len(args) == 1 && args[0] == guest.AnchorArg {
		return guest.RunAnchor()
	}
	flags := flag.NewFlagSet("shelld-init", flag.ContinueOnError)
	dir := flags.String("dir", "/.shelld", "mounted `directory` to listen in; it is detached then")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return guest.Run(guest.Options{Dir: *dir})
}
