package server

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"

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
		follow, err := queryBool(r, "follow")
		if err != nil {
			return err
		}
		out, err := s.opts.Manager.Output(r.Context(), sandbox.CallID(r.PathValue("call_id")), index, stream)
		if err != nil {
			return err
		}
		defer out.Close() //nolint:errcheck // it is only read
		from, to, status, err := s.outputRange(w, r, out, follow)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.WriteHeader(status)
		var dst io.Writer = w
		if follow {
			control := http.NewResponseController(w)
			_ = control.Flush()
			dst = flusher{w, control}
		}
		if err := out.Read(r.Context(), dst, from, to, follow); err != nil {
			s.log.DebugContext(r.Context(), "output not sent whole", "path", r.URL.Path, "err", err)
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's own means to break off an answer
		}
		return nil
	}
}

// outputRange works out which bytes are asked for and sets the headers that
// describe them.
func (s *server) outputRange(w http.ResponseWriter, r *http.Request, out sandbox.Output, follow bool) (from, to int64, status int, err error) {
	size := out.Produced()
	gapFrom, gapTo := out.Gap()
	if gapFrom < gapTo {
		w.Header().Set(gapHeader, fmt.Sprintf("%d-%d", gapFrom, gapTo))
	}
	text := r.Header.Get("Range")
	if text == "" {
		if follow {
			return 0, -1, http.StatusOK, nil
		}
		w.Header().Set("Content-Length", strconv.FormatInt(size-(gapTo-gapFrom), 10))
		return 0, size, http.StatusOK, nil
	}
	from, to, ok := parseRange(text, size)
	if !ok || from < gapTo && gapFrom < to {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return 0, 0, 0, &httpError{
			status: http.StatusRequestedRangeNotSatisfiable, code: string(sandbox.CodeInvalidValue), param: "Range",
			message: fmt.Sprintf("range %q cannot be served: the stream has %d bytes so far, of which those from %d to %d were not kept", clip(text), size, gapFrom, gapTo),
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
	n, err := io.Copy(stdin, r.Body)
	closeErr := stdin.Close()
	if err == nil {
		err = closeErr
	}
	if err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, io.ErrClosedPipe) {
		return &sandbox.Error{Class: sandbox.ErrInvalid, Code: sandbox.CodeInvalidValue, Message: "the standard input did not arrive whole", Cause: err}
	}
	s.writeJSON(w, r, http.StatusOK, map[string]int64{"bytes": n})
	return nil
}

func queryBool(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, sandbox.Invalid(name, "%s must be true or false, not %q", name, clip(text))
	}
	return v, nil
}
