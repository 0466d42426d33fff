package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/shelld/shelld/rpc"
)

const execHelp = `Run a program, or shell texts, in a fresh container that is deleted afterwards,
or in an existing one.

Standard output, standard error and the exit code are the command's own.
Several texts run together; their lines are labelled "[1] ", "[2] " and so on,
and lines of more than 64 KiB are broken. What shelld has to say of a run is
"[shelld] …" on standard error. Standard input is not read without -i.

Each stream is in its order; which line of one was written before which of the
other is not kept. With 2>&1 in the text there is one stream and one order.
Output is passed on while it is written. When it comes faster than it is read,
shelld keeps output.spool_per_stream of each stream (see its configuration),
and exec names the bytes that were not kept and ends with 125.

PROG and its arguments reach the shell of the container quoted, so that they
stay what they are; PROG may still be one of its builtins.

Ctrl-C cancels the commands, with all that they started. A process that a
command leaves in the background does not hold up exec; in a fresh container it
ends with the container.

With --json nothing is forwarded; the shell call object is printed at the end.

Exit codes:
  the command's own; of several commands the first that is not 0
  124   timeout
  125   shelld or the usage is at fault, the end of a command is not known, or
        its output is not whole
  126   the command cannot be run
  127   the command was not found
  128+n the command was ended by signal n
  130   interrupted by Ctrl-C (143 by SIGTERM, 129 by SIGHUP); 141 when nobody
        reads the output`

type execOptions struct {
	texts     []string
	args      []string
	container string
	keep      bool
	timeout   time.Duration
	maxOutput int64
	env       []string
	dir       string
	image     string
	memory    string
	stdin     bool
	tty       bool
}

func newExec(p *program) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] -- PROG [ARG…]  |  exec [flags] -c TEXT [-c TEXT…]",
		Short: "Run commands in a sandbox",
		Long:  execHelp,
		Example: `  shellctl exec -- python3 -c 'print(6 * 7)'
  shellctl exec -c 'make -j2 2>&1 | tail' --timeout 10m
  tar c src | shellctl exec -i -C cntr_… -- tar x`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.args = args
			if err := o.check(cmd.Flags().Changed("timeout"), cmd.Flags().Changed("max-output")); err != nil {
				return &usageError{command: cmd.CommandPath(), err: err}
			}
			return runExec(cmd.Context(), p, o)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringArrayVarP(&o.texts, "command", "c", nil, "shell text to run; repeat for several at once")
	flags.StringVarP(&o.container, "container", "C", "", "run in this container, by id or name, instead of a fresh one")
	flags.BoolVar(&o.keep, "keep", false, "keep the fresh container, and print its id on standard error")
	flags.DurationVar(&o.timeout, "timeout", 0, "time limit of each command, such as 30s (default: the daemon's)")
	flags.Int64Var(&o.maxOutput, "max-output", 0, "characters of each command's output in --json results (default: the daemon's)")
	flags.StringArrayVarP(&o.env, "env", "e", nil, "set a variable: NAME=VALUE, or NAME to pass ours on; repeat for several")
	flags.StringVarP(&o.dir, "workdir", "w", "", "working directory, an absolute path in the container")
	flags.StringVar(&o.image, "image", "", "image of the fresh container")
	flags.StringVar(&o.memory, "memory", "", "memory limit of the fresh container, such as 512m")
	flags.BoolVarP(&o.stdin, "stdin", "i", false, "forward standard input")
	flags.BoolVarP(&o.tty, "tty", "t", false, "")
	_ = flags.MarkHidden("tty") // only to say that there is none
	_ = cmd.RegisterFlagCompletionFunc("container", p.completeContainers)
	return cmd
}

// check finds what no daemon needs to be asked about.
func (o *execOptions) check(timeoutSet, maxOutputSet bool) error {
	switch {
	case o.tty:
		return errors.New("commands get no terminal; leave -t out, and use -i alone to forward standard input")
	case len(o.texts) == 0 && len(o.args) == 0:
		return errors.New("nothing to run; give a program after --, or a shell text with -c")
	case len(o.texts) > 0 && len(o.args) > 0:
		return fmt.Errorf("both -c and the program %q are given; choose one", o.args[0])
	case o.stdin && len(o.texts) > 1:
		return errors.New("-i needs a single command: standard input cannot be shared")
	case o.container != "" && o.keep:
		return errors.New("--keep is for a fresh container; the one of -C is kept anyway")
	case o.container != "" && (o.image != "" || o.memory != ""):
		return errors.New("--image and --memory are for a fresh container; the one of -C has its own")
	case timeoutSet && o.timeout < time.Millisecond:
		return fmt.Errorf("--timeout %s is less than 1ms", o.timeout)
	case maxOutputSet && o.maxOutput < 1:
		return fmt.Errorf("--max-output %d is less than 1", o.maxOutput)
	}
	for i, text := range o.texts {
		if text == "" {
			return fmt.Errorf("shell text %d of -c is empty", i+1)
		}
		if !utf8.ValidString(text) {
			return fmt.Errorf("shell text %d of -c is not UTF-8", i+1)
		}
	}
	if len(o.args) > 0 && o.args[0] == "" {
		return errors.New("the program's name is empty")
	}
	return nil
}

// request is the shell call that the options describe.
func (o *execOptions) request() (rpc.ShellCallCreate, error) {
	req := rpc.ShellCallCreate{
		Action:           &rpc.ShellAction{Commands: o.texts},
		Environment:      &rpc.Environment{Type: "container_reference", ContainerID: o.container},
		WorkingDirectory: optional(o.dir),
	}
	if len(o.args) > 0 {
		req.Action.Commands = []string{quoteArgs(o.args)}
	}
	if o.container == "" {
		req.Environment = &rpc.Environment{Type: "container_auto", DeleteAfter: !o.keep}
		req.Environment.Image, req.Environment.MemoryLimit = optional(o.image), optional(o.memory)
	}
	if o.timeout > 0 {
		ms := o.timeout.Milliseconds()
		req.Action.TimeoutMS = &ms
	}
	if o.maxOutput > 0 {
		req.Action.MaxOutputLength = &o.maxOutput
	}
	if o.stdin {
		req.Stdin = optional("stream")
	}
	var err error
	req.Env, err = variables(o.env)
	return req, err
}

// variables reads NAME=VALUE; NAME alone takes the value from our environment.
func variables(settings []string) (map[string]string, error) {
	if len(settings) == 0 {
		return nil, nil //nolint:nilnil // no variables is a value
	}
	env := make(map[string]string, len(settings))
	for _, s := range settings {
		name, value, given := strings.Cut(s, "=")
		if !given {
			if value, given = os.LookupEnv(name); !given {
				return nil, fmt.Errorf("-e %s: there is no such variable here; give a value: -e %s=VALUE", name, name)
			}
		}
		if name == "" || !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("-e %q: neither name nor value may be other than UTF-8, and the name not empty", s)
		}
		env[name] = value
	}
	return env, nil
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func runExec(ctx context.Context, p *program, o execOptions) error {
	var err error
	if o.container, err = p.containerID(ctx, o.container); err != nil {
		return err
	}
	req, err := o.request()
	if err != nil {
		return &usageError{command: "shellctl exec", err: err}
	}
	started, err := p.client.StartShellCall(ctx, req)
	if err != nil {
		return err
	}
	defer started.Close()
	if o.keep && !p.json {
		if _, err := fmt.Fprintf(p.err, "[shelld] container %s\n", started.ContainerID); err != nil {
			return err
		}
	}
	s := &session{p: p, call: started, stdin: o.stdin}
	if !p.json {
		s.commands = len(req.Action.Commands)
	}
	call, err := s.wait(ctx)
	if p.json && call != nil {
		err = errors.Join(err, writeJSON(p.out, call))
	}
	if err != nil {
		return err
	}
	code := callCode(call)
	if code == 0 {
		return nil
	}
	if hint := o.hint(code); hint != "" && !p.json {
		if _, err := fmt.Fprintf(p.err, "hint: %s\n", printable(hint)); err != nil {
			return err
		}
	}
	return &exitError{code: code}
}

// hint helps those who gave a whole command line as the program's name.
func (o *execOptions) hint(code int) string {
	if code != exitNotFound || len(o.args) != 1 || !strings.Contains(strings.TrimSpace(o.args[0]), " ") {
		return ""
	}
	text := quoted(o.args[0])
	return text + " was taken for the name of one program; to run it as a shell text: shellctl exec -c " + text
}
