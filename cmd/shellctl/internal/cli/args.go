package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// operand is what a command wants to be told, as the answer to who does not.
type operand string

const (
	containerOperand operand = "give the container's ID or name; `shellctl container ls` lists them"
	callOperand      operand = "give the shell call's ID; `shellctl run ls` lists them"
)

// one accepts exactly one operand, some at least one.
func (o operand) one(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return surplus(cmd, args[1], "one is enough")
	}
	return o.some(cmd, args)
}

func (o operand) some(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return &usageError{command: cmd.CommandPath(), err: errors.New(string(o))}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return surplus(cmd, args[0], "no arguments are needed")
	}
	return nil
}

// surplus is the error of an argument that nobody asked for.
func surplus(cmd *cobra.Command, arg, why string) error {
	return &usageError{command: cmd.CommandPath(), err: fmt.Errorf("unexpected argument %q; %s", arg, why)}
}

// flagError says how a flag's value has to look rather than how its parser
// stumbled.
func flagError(cmd *cobra.Command, err error) error {
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := wrong.GetFlag()
		switch flag.Value.Type() {
		case "duration":
			err = fmt.Errorf("--%s %q is no duration; write one like 30s, 5m or 1h30m", flag.Name, wrong.GetValue())
		case "int", "int64":
			err = fmt.Errorf("--%s %q is no whole number", flag.Name, wrong.GetValue())
		}
	}
	return &usageError{command: cmd.CommandPath(), err: err}
}
