package cli

import (
	"io"

	"github.com/spf13/cobra"
)

func newVersion(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print shellctl's version; info has the daemon's",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return runVersion(p) },
	}
}

func runVersion(p *program) error {
	if p.json {
		return writeJSON(p.out, map[string]string{"version": p.version})
	}
	_, err := io.WriteString(p.out, "shellctl "+p.version+"\n")
	return err
}
