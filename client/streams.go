package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/shelld/shelld/rpc"
)

// The output streams of a command.
const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// OutputRange selects what of a stream is read. The zero value is what has been
// written so far.
type OutputRange struct {
	// Follow goes on until the last process that holds the stream has closed
	// it, which background processes may do long after their command.
	Follow bool
	// From is the offset of the first byte. Unit: bytes of the stream as it was
	// produced.
	From int64
	// To is the offset after the last byte. Zero: the end.
	To int64
}

// Output is an open output stream. Read it to io.EOF and close it. An error
// other than io.EOF says that more was to come.
type Output struct {
	// cause is why reading was given up; nil while it was not.
	cause func() error
	res   *http.Response
	stop  context.CancelCauseFunc
}

// errOutputClosed is why reads fail after Close.
var errOutputClosed = errors.New("output stream is closed")

// Output opens the raw bytes of a command's stdout or stderr. index counts the
// call's commands from 0. ctx bounds the reading too. A range that touches bytes
// which were not kept is refused; see [Output.Gap].
func (c *Client) Output(ctx context.Context, callID string, index int, stream string, which OutputRange) (*Output, error) {
	r := request{method: http.MethodGet, path: commandPath(callID, index, stream), header: http.Header{}}
	if which.Follow {
		r.query = url.Values{"follow": {"true"}}
	}
	if which.From > 0 || which.To > 0 {
		last := ""
		if which.To > 0 {
			last = strconv.FormatInt(which.To-1, 10)
		}
		r.header.Set("Range", "bytes="+strconv.FormatInt(which.From, 10)+"-"+last)
	}
	ctx, stop := context.WithCancelCause(ctx)
	res, err := c.do(ctx, r) //nolint:bodyclose // Output.Close does
	if err != nil {
		stop(err)
		return nil, fmt.Errorf("open %s of command %d: %w", stream, index, err)
	}
	return &Output{cause: func() error { return context.Cause(ctx) }, res: res, stop: stop}, nil
}

// Read reads the next bytes of the stream, waiting for them when following.
func (o *Output) Read(p []byte) (int, error) {
	n, err := o.res.Body.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	if cause := o.cause(); cause != nil {
		return n, cause
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errCut
	}
	return n, fmt.Errorf("read output: %w", err)
}

// Gap returns the offsets of the bytes that were not kept, as FROM-TO, when the
// output outgrew the daemon's spool; empty when none are missing. What became
// missing while following is known after io.EOF.
func (o *Output) Gap() string {
	if gap := o.res.Trailer.Get("X-Shelld-Gap"); gap != "" {
		return gap
	}
	return o.res.Header.Get("X-Shelld-Gap")
}

// Close stops reading. It may be called while a Read waits, which then fails,
// and more than once.
func (o *Output) Close() error {
	o.stop(errOutputClosed)
	return o.res.Body.Close()
}

// WriteStdin streams stdin to a command of a call that was made with "stdin":
// "stream". The end of stdin is the command's end of file. It returns how many
// bytes the command's pipe took: fewer than were sent when the command stopped
// reading. Only one writer is let in; a second is refused with "in_use".
//
// WriteStdin may return while a Read of stdin is still waiting; that Read's
// bytes are lost.
func (c *Client) WriteStdin(ctx context.Context, callID string, index int, stdin io.Reader) (int64, error) {
	r := request{
		method:      http.MethodPut,
		path:        commandPath(callID, index, "stdin"),
		body:        io.NopCloser(stdin), // hides the type: chunked, as it comes
		contentType: "application/octet-stream",
	}
	var written rpc.StdinWritten
	if err := c.call(ctx, r, &written); err != nil {
		return 0, fmt.Errorf("write stdin of command %d: %w", index, err)
	}
	return written.Bytes, nil
}
