package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// maxItem is how long an item may be: more than the daemon takes, so that it is
// the daemon who says so. Unit: bytes.
const maxItem = 9 << 20

const callHelp = `Read one shell_call item of a model's answer (JSON) from standard input, run it,
and print the shell_call_output item that answers it.

The item goes to the daemon as it is; fields of the API such as "environment"
may be added to it. The exit code is 0 however the commands ended: the item
says that.`

func newCall(p *program) *cobra.Command {
	return &cobra.Command{
		Use:   "call < ITEM",
		Short: "Run one shell_call item",
		Long:  callHelp,
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runCall(cmd.Context(), p) },
	}
}

func runCall(ctx context.Context, p *program) error {
	item, err := readItem(p.in)
	if err != nil {
		return &usageError{command: "shellctl call", err: err}
	}
	started, err := p.client.StartShellCallItem(ctx, item)
	if err != nil {
		return err
	}
	defer started.Close()
	call, err := (&session{p: p, call: started}).wait(ctx)
	if err != nil {
		return err
	}
	if call.Output == nil {
		return fmt.Errorf("call %s is in progress and has no output item yet; see 'shellctl run show %s'", call.ID, call.ID)
	}
	return writeJSON(p.out, call.Output)
}

func readItem(r io.Reader) (json.RawMessage, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxItem))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	var fields map[string]json.RawMessage
	var syntax *json.SyntaxError
	switch err := json.Unmarshal(text, &fields); {
	case len(text) == 0:
		return nil, errors.New("standard input is empty; give one shell_call item")
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("standard input is not one JSON object: %w (at byte %d)", err, syntax.Offset)
	case err != nil || fields == nil:
		return nil, errors.New("standard input is JSON but not an object")
	}
	return text, nil
}
