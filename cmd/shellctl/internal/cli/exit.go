package cli

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/shelld/shelld/rpc"
)

// The exit codes that are not a command's own.
const (
	exitTimeout = 124
	exitFailed  = 125
	// exitNotFound is a shell's code for a program that it does not find.
	exitNotFound = 127
)

// usageError says that the command line is wrong.
type usageError struct {
	// command is the path of the command that was called.
	command string
	err     error
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exitError ends shellctl with the code of a run; nothing is left to say.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

// errBrokenPipe says that nobody reads our output any more.
var errBrokenPipe = errors.New("broken pipe")

// pipeWriter tells a broken pipe of ours from one of the daemon's.
type pipeWriter struct{ io.Writer }

func (w pipeWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		err = errBrokenPipe
	}
	return n, err
}

// exitCode is the one place where an error becomes an exit code.
func exitCode(err error) int {
	var (
		run  *exitError
		sent *interrupt
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &run):
		return run.code
	case errors.As(err, &sent):
		return 128 + int(sent.signal)
	case errors.Is(err, errBrokenPipe):
		return 128 + int(syscall.SIGPIPE)
	default:
		return exitFailed
	}
}

// callCode is the exit code of a call that has ended: of its commands in order,
// the first that is not 0.
func callCode(call *rpc.ShellCall) int {
	for _, result := range call.Results {
		if code := resultCode(result); code != 0 {
			return code
		}
	}
	if len(call.Results) < len(call.Action.Commands) || len(call.Results) == 0 {
		return exitFailed // something was not run to its end, and shelld does not say what
	}
	return 0
}

// resultCode never invents a code: what is not known is shelld's failure.
func resultCode(r rpc.ShellResult) int {
	switch {
	case r.Reason == "timeout":
		return exitTimeout
	case r.Reason == "lost" || r.ExitCode == nil || *r.ExitCode < 0 || *r.ExitCode > 255:
		return exitFailed
	default:
		return *r.ExitCode
	}
}
