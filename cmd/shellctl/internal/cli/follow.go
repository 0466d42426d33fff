package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/shelld/shelld/client"
	"github.com/shelld/shelld/rpc"
)

// stalled is how long a stream may be silent although bytes of it are
// outstanding after the call's end. They are in the spool by then, so that
// only a spool that lost them is slower.
const stalled = 10 * time.Second

var (
	errComplete = errors.New("the stream was read as far as the call goes")
	errStalled  = errors.New("the stream stands still")
)

// follower copies one stream of one command to its destination.
type follower struct {
	command int
	stream  string
	to      io.Writer
	// flush ends a line that has no end; nil for raw streams.
	flush func() error
	// stop ends a read that waits.
	stop context.CancelCauseFunc
	// gap is what was not kept, known when run has returned; midLine is whether
	// the destination was left in the middle of a line.
	gap     string
	midLine bool

	mu       sync.Mutex
	reading  bool
	received int64
	// limit is how much of the stream belongs to the call; -1 while that is
	// not known.
	limit int64
	timer *time.Timer
}

// followers are all streams of a call.
type followers struct {
	each []*follower
	wait sync.WaitGroup
	err  io.Writer
	// done is closed when every follower has returned.
	done chan struct{}
}

// follow begins to copy the streams of the call's n commands, each until its
// end or what finish says. An error is given to fail. Streams of several
// commands are labelled. ctx ends all.
func (p *program) follow(ctx context.Context, callID string, which []int, several bool, how client.OutputRange, fail context.CancelCauseFunc) *followers {
	f := &followers{err: p.err, done: make(chan struct{})}
	shared := new(sync.Mutex) // stdout and stderr may be one terminal
	for _, command := range which {
		for _, stream := range []string{client.Stdout, client.Stderr} {
			to := p.out
			if stream == client.Stderr {
				to = p.err
			}
			one := &follower{command: command, stream: stream, to: to, limit: -1}
			if several {
				l := &labelled{label: label(command), to: to, shared: shared}
				one.to, one.flush = l, l.flush
			}
			f.each = append(f.each, one)
			var life context.Context
			life, one.stop = context.WithCancelCause(ctx)
			f.wait.Go(func() {
				if err := one.run(life, p.client, callID, how); err != nil {
					fail(err)
				}
			})
		}
	}
	go func() { // ends with the followers
		f.wait.Wait()
		close(f.done)
	}()
	return f
}

// finish tells the followers that the call has ended, and how much of each
// stream is its own; background processes may hold it open for longer.
func (f *followers) finish(results []rpc.ShellResult) {
	for _, one := range f.each {
		for _, r := range results {
			if r.CommandIndex != one.command {
				continue
			}
			if one.stream == client.Stdout {
				one.finish(r.StdoutBytes)
			} else {
				one.finish(r.StderrBytes)
			}
		}
	}
}

// complete says what of the streams is missing, when all followers are done:
// what the daemon did not keep is noted, see whole; anything else is an error.
func (f *followers) complete() error {
	for _, one := range f.each {
		switch {
		case one.gap != "":
			note := fmt.Sprintf("[shelld] %s of command %d: bytes %s were not kept; output.spool_per_stream and output.spool_total of shelld's configuration say how much is", one.stream, one.command+1, one.gap)
			if err := f.say(note); err != nil {
				return err
			}
		case one.received < one.limit:
			return fmt.Errorf("%s of command %d is incomplete: shelld sent %d of %d bytes", one.stream, one.command+1, one.received, one.limit)
		}
	}
	return nil
}

// whole is an error, without anything left to say, when something of the
// streams was not kept. Whatever the commands' own codes are: who takes an
// output for all that was written must not go on.
func (f *followers) whole() error {
	for _, one := range f.each {
		if one.gap != "" {
			return &exitError{code: exitFailed}
		}
	}
	return nil
}

// notes says how commands ended that did not end by themselves, when all
// followers are done.
func (f *followers) notes(results []rpc.ShellResult, several bool) error {
	for _, r := range results {
		if r.Note == nil || *r.Note == "" {
			continue
		}
		text := *r.Note
		if !strings.HasPrefix(text, "[shelld] ") {
			text = "[shelld] " + text
		}
		if several {
			text = label(r.CommandIndex) + text
		}
		if err := f.say(text); err != nil {
			return err
		}
	}
	return nil
}

// say writes a line of ours to stderr, never into a line of a command's.
func (f *followers) say(text string) error {
	text = printable(text) + "\n"
	for _, one := range f.each {
		if one.stream == client.Stderr && one.midLine {
			text, one.midLine = "\n"+text, false
		}
	}
	_, err := io.WriteString(f.err, text)
	return err
}

func (f *follower) run(ctx context.Context, c *client.Client, callID string, how client.OutputRange) error {
	defer f.stop(errComplete)
	out, err := c.Output(ctx, callID, f.command, f.stream, how)
	if err != nil {
		return ended(err)
	}
	defer func() { _ = out.Close() }() // the reads told
	buf := make([]byte, 64<<10)
	for {
		f.await()
		n, err := out.Read(buf)
		piece, last := f.take(buf[:n])
		if len(piece) > 0 {
			if _, err := f.to.Write(piece); err != nil {
				return err
			}
			f.midLine = f.flush == nil && piece[len(piece)-1] != '\n'
		}
		if last || err != nil {
			f.gap = out.Gap()
			err = ended(err)
			if f.flush != nil {
				err = errors.Join(err, f.flush())
			}
			return err
		}
	}
}

// ended returns the error of a stream that did not end as it should.
func ended(err error) error {
	if err == io.EOF || errors.Is(err, errComplete) || errors.Is(err, errStalled) { //nolint:errorlint // io.EOF is bare
		return nil
	}
	return err
}

func (f *follower) finish(limit int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limit = limit
	if f.received >= limit {
		f.stop(errComplete)
		return
	}
	f.timer = time.AfterFunc(stalled, func() { f.stop(errStalled) })
	if !f.reading {
		f.timer.Stop()
	}
}

// await marks the begin of a read.
func (f *follower) await() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = true
	if f.timer != nil {
		f.timer.Reset(stalled)
	}
}

// take marks the end of a read, and returns what of it belongs to the call and
// whether that was the last of it.
func (f *follower) take(piece []byte) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reading = false
	if f.timer != nil {
		f.timer.Stop()
	}
	if f.limit >= 0 && int64(len(piece)) > f.limit-f.received {
		piece = piece[:max(0, f.limit-f.received)]
	}
	f.received += int64(len(piece))
	return piece, f.limit >= 0 && f.received >= f.limit
}
