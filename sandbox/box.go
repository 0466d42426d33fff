package sandbox

import (
	"context"
	"encoding/json"
	"io"
	"time"
)

// Boxes makes started sandboxes usable: it places them in their cgroups and
// talks to their guests.
type Boxes interface {
	// CgroupPath returns the cgroup that the sandbox is to be created in, as
	// [BoxSpec.CgroupPath] wants it.
	CgroupPath(id ID) string
	// Open connects to a started sandbox, a new one or one that an earlier
	// daemon has left. What an earlier daemon's commands left is ended, but
	// for the background processes of commands that had ended.
	Open(ctx context.Context, instance Instance, spec Spec) (Box, error)
	// Remove removes what Open and Start made on the host for a sandbox that
	// is gone.
	Remove(ctx context.Context, id ID) error
}

// A Box is a started sandbox in which commands run. Its methods are safe for
// concurrent use.
type Box interface {
	// Start starts a command and returns when it runs. An error that matches
	// [ErrInvalid] or [ErrExhausted] says that nothing has run; after any other
	// the command may have.
	Start(ctx context.Context, cmd Command) (Run, error)
	// Limits returns the limits in force.
	Limits() Limits
	// Done is closed when the sandbox can no longer be used; Err says why.
	Done() <-chan struct{}
	Err() error
	// Close lets go of the sandbox, which lives on. Further calls do nothing.
	Close() error
}

// Command is one command to start.
type Command struct {
	// Call and Index name the run.
	Call  CallID
	Index int
	// Text is for the sandbox's shell.
	Text string
	Env  map[string]string
	Dir  string
	// Stdin says that Run.Stdin will be used.
	Stdin     bool
	Timeout   time.Duration
	MaxOutput int
}

// A Run is a started command. Its methods are safe for concurrent use.
type Run interface {
	// End kills the command with everything it has started; the result's
	// reason becomes reason unless the command had ended already. It works at
	// any time: once the result is fixed it kills what the command has left in
	// the background. Done and Closed follow, unless the sandbox hangs.
	End(reason Reason)
	// Done is closed when the result is fixed. A run that has not ended when
	// its box is closed or fails is done then too, with [ReasonLost].
	Done() <-chan struct{}
	// Result returns the result; only after Done.
	Result() Result
	// Closed is closed when the last writer of the command's streams, its
	// background processes included, is gone, or the box is closed. Streams
	// returns their final state then, and what is known of it before.
	Closed() <-chan struct{}
	Streams() (stdout, stderr json.RawMessage)
	// Stdin returns the command's standard input, or an [ErrConflict] error
	// when none was asked for, or it was taken before.
	Stdin() (io.WriteCloser, error)
	// Close lets go of the run's streams, which live on until the outputs
	// that were handed out are closed too. It does not end the command.
	Close()
	// Output returns one of the command's streams; not after Close. The caller
	// closes it.
	Output(stream Stream) Output
}

// Stream names one of a command's two output streams.
type Stream string

// The streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Output is what a command has written to one stream, while it runs and
// afterwards. Offsets count the bytes that the command produced.
type Output interface {
	// Produced is how many bytes have been written so far.
	Produced() int64
	// Gap is the part that was not kept, from inclusive, to exclusive; equal
	// when all was.
	Gap() (from, to int64)
	// Read copies the bytes from offset from up to offset to, or with follow
	// until the stream ends, to w, leaving out the gap. A negative to means
	// the end.
	Read(ctx context.Context, w io.Writer, from, to int64, follow bool) error
	// Close lets go of the stream.
	Close() error
}

// Outputs holds the streams of commands that have ended.
type Outputs interface {
	// Open finds a stream again by what Result has kept of it.
	Open(call CallID, index int, stream Stream, meta json.RawMessage) (Output, error)
	// Remove removes all streams of a call.
	Remove(call CallID) error
	// Prune removes the streams of all calls that are not known.
	Prune(known func(CallID) bool) error
}
