package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

// gapHeader names the offsets of a stream that were not kept.
const gapHeader = "X-Shelld-Gap"

// readOutput serves the raw bytes of one stream of a command.
func (s *server) readOutput(stream sandbox.Stream) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		index, err := commandIndex(r)
		if err != nil {
			return err
		}
		values, err := query(r, "follow")
		if err != nil {
			return err
		}
		follow, err := queryBool(values, "follow")
		if err != nil {
			return err
		}
		out, err := s.opts.Manager.Output(r.Context(), sandbox.CallID(r.PathValue("call_id")), index, stream)
		if err != nil {
			return err
		}
		defer out.Close() //nolint:errcheck // it is only read
		from, to, status, err := outputRange(w, r, out, follow)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		if !follow {
			w.WriteHeader(status)
			return s.sendOutput(r, w, out, from, to, false)
		}
		// What a follower misses is known at the end only.
		w.Header().Set("Trailer", gapHeader)
		w.WriteHeader(status)
		control := http.NewResponseController(w)
		_ = control.Flush() // a client that is gone shows when bytes are sent
		if err := s.sendOutput(r, flusher{w, control}, out, from, to, true); err != nil {
			return err
		}
		setGap(w, out)
		return nil
	}
}

// sendOutput copies the bytes. After a failure the answer is broken off, since
// its status is out already.
func (s *server) sendOutput(r *http.Request, w io.Writer, out sandbox.Output, from, to int64, follow bool) error {
	if err := out.Read(r.Context(), w, from, to, follow); err != nil {
		s.log.DebugContext(r.Context(), "output not sent whole", "path", r.URL.Path, "err", err)
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's own means
	}
	return nil
}

// setGap names the part of the stream that was not kept, if any.
func setGap(w http.ResponseWriter, out sandbox.Output) (from, to int64) {
	from, to = out.Gap()
	if from < to {
		w.Header().Set(gapHeader, fmt.Sprintf("%d-%d", from, to))
	}
	return from, to
}

// outputRange works out which bytes are asked for and sets the headers that
// describe them.
func outputRange(w http.ResponseWriter, r *http.Request, out sandbox.Output, follow bool) (from, to int64, status int, err error) {
	size := out.Produced()
	gapFrom, gapTo := setGap(w, out)
	text := r.Header.Get("Range")
	if text == "" {
		if follow {
			return 0, -1, http.StatusOK, nil
		}
		w.Header().Set("Content-Length", strconv.FormatInt(size-(gapTo-gapFrom), 10))
		return 0, size, http.StatusOK, nil
	}
	if rest, ok := strings.CutPrefix(text, "bytes="); ok && follow {
		// The end is not known yet, so only a beginning can be asked for.
		first, open := strings.CutSuffix(rest, "-")
		if n, err := strconv.ParseInt(first, 10, 64); open && err == nil && n >= 0 {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-*/*", n))
			return n, -1, http.StatusPartialContent, nil
		}
	}
	from, to, ok := parseRange(text, size)
	if !ok || follow || from < gapTo && gapFrom < to {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return 0, 0, 0, &httpError{
			status: http.StatusRequestedRangeNotSatisfiable, code: string(sandbox.CodeInvalidValue), param: "Range",
			message: fmt.Sprintf("range %q cannot be served: the stream has %d bytes so far, those from %d to %d were not kept, and with follow only bytes=N- is possible", clip(text), size, gapFrom, gapTo),
		}
	}
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
	w.Header().Set("Content-Length", strconv.FormatInt(to-from, 10))
	return from, to, http.StatusPartialContent, nil
}

// parseRange reads one byte range of RFC 9110: "bytes=A-B", "bytes=A-" or
// "bytes=-N". The end is exclusive.
func parseRange(text string, size int64) (from, to int64, ok bool) {
	spec, ok := strings.CutPrefix(text, "bytes=")
	first, last, found := strings.Cut(spec, "-")
	if !ok || !found {
		return 0, 0, false
	}
	if first == "" {
		n, err := strconv.ParseUint(last, 10, 63)
		return max(0, size-int64(n)), size, err == nil && n > 0 && size > 0
	}
	a, err := strconv.ParseUint(first, 10, 63)
	if err != nil || int64(a) >= size {
		return 0, 0, false
	}
	if last == "" {
		return int64(a), size, true
	}
	b, err := strconv.ParseUint(last, 10, 63)
	if err != nil || b < a {
		return 0, 0, false
	}
	return int64(a), min(int64(b), size-1) + 1, true
}

// flusher sends every piece on at once.
type flusher struct {
	w       io.Writer
	control *http.ResponseController
}

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		err = f.control.Flush()
	}
	return n, err
}

// writeStdin streams the body into a command. Its end, also an early one, is
// the command's end of file.
func (s *server) writeStdin(w http.ResponseWriter, r *http.Request) error {
	index, err := commandIndex(r)
	if err != nil {
		return err
	}
	stdin, err := s.opts.Manager.Stdin(r.Context(), sandbox.CallID(r.PathValue("call_id")), index)
	if err != nil {
		return err
	}
	bodyArrived(w) // a stream takes as long as it takes
	n, err := io.Copy(stdin, r.Body)
	closeErr := stdin.Close()
	if err == nil {
		err = closeErr
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.ErrClosedPipe) {
		return &sandbox.Error{Class: sandbox.ErrInvalid, Code: sandbox.CodeInvalidValue, Message: "the standard input did not arrive whole", Cause: err}
	}
	s.writeJSON(w, r, http.StatusOK, rpc.StdinWritten{Bytes: n})
	return nil
}

func queryBool(values url.Values, name string) (bool, error) {
	switch text := values.Get(name); text {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, sandbox.Invalid(name, "%s must be true or false, not %q", name, clip(text))
	}
}
