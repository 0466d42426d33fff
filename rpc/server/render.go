package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

// maxMessage caps the message of an error, which may quote what was sent. Unit:
// bytes.
const maxMessage = 500

// httpError is a failure of the HTTP layer itself.
type httpError struct {
	status               int
	code, param, message string
}

func (e *httpError) Error() string { return e.message }

// statuses maps each class of the domain to its HTTP status.
func statuses(class error) int {
	switch class {
	case sandbox.ErrInvalid: //nolint:errorlint // a class is a sentinel itself
		return http.StatusBadRequest
	case sandbox.ErrNotFound:
		return http.StatusNotFound
	case sandbox.ErrConflict:
		return http.StatusConflict
	case sandbox.ErrTooLarge:
		return http.StatusRequestEntityTooLarge
	case sandbox.ErrExhausted:
		return http.StatusTooManyRequests
	case sandbox.ErrUnavailable:
		return http.StatusServiceUnavailable
	case sandbox.ErrStorageFull:
		return http.StatusInsufficientStorage
	default:
		return http.StatusInternalServerError
	}
}

// renderError writes the error envelope; it is the only place that does.
func (s *server) renderError(w http.ResponseWriter, r *http.Request, requestID string, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // nobody is there to read it
	}
	status, code, param := http.StatusInternalServerError, rpc.CodeInternal, ""
	message := "shelld failed; the log has the details under request id " + requestID
	var retryAfter time.Duration
	noRetry := false
	if e, ok := errors.AsType[*httpError](err); ok {
		status, code, param, message = e.status, e.code, e.param, e.message
	} else if errors.Is(err, sandbox.ErrBroken) { // a sandbox that did not come up
		status, code = http.StatusServiceUnavailable, string(sandbox.CodeEngineUnavailable)
		message, retryAfter = "the sandbox did not come up; try again, and see the log under request id "+requestID, time.Second
		s.log.WarnContext(r.Context(), "sandbox broken", "request_id", requestID, "err", err)
	} else if e, ok := errors.AsType[*sandbox.Error](err); ok {
		status, code, param, message = statuses(e.Class), string(e.Code), e.Param, e.Message
		retryAfter, noRetry = e.RetryAfter, e.NoRetry
		if status >= http.StatusInternalServerError && e.Cause != nil {
			s.log.WarnContext(r.Context(), "request not served", "request_id", requestID, "method", r.Method, "path", r.URL.Path, "status", status, "err", err)
		}
	}
	kind := rpc.TypeInvalidRequest
	if status >= http.StatusInternalServerError {
		kind = rpc.TypeServer
	}
	if status == http.StatusInternalServerError {
		s.log.ErrorContext(r.Context(), "request failed", "request_id", requestID, "method", r.Method, "path", r.URL.Path, "status", status, "err", err)
	}
	envelope := rpc.ErrorResponse{Error: rpc.Error{Message: clipTo(message, maxMessage), Type: kind, Code: &code}}
	if param != "" {
		envelope.Error.Param = &param
	}
	if retryAfter > 0 {
		w.Header().Set("Retry-After-Ms", strconv.FormatInt(retryAfter.Milliseconds(), 10))
	}
	if noRetry || !worthRetrying(status, code) {
		w.Header().Set("X-Should-Retry", "false")
	}
	s.writeJSON(w, r, status, envelope)
}

// worthRetrying says whether the same request may succeed later. The SDKs
// retry 409, 429 and 5xx unless told not to.
func worthRetrying(status int, code string) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusInternalServerError:
		return true
	case http.StatusServiceUnavailable:
		return code != string(sandbox.CodeLimitsUnenforceable)
	default:
		return false
	}
}

// encode writes JSON in which texts stay readable, without a line end.
func encode(body any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(body)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), err
}

// writeJSON writes a whole answer. A client that is gone is no fault of ours,
// so that is logged for the curious only.
func (s *server) writeJSON(w http.ResponseWriter, r *http.Request, status int, body any) {
	text, err := encode(body)
	if err != nil {
		s.log.ErrorContext(r.Context(), "answer not encoded", "path", r.URL.Path, "err", err)
		status, text = http.StatusInternalServerError, []byte(`{"error":{"message":"shelld failed to encode its answer","type":"server_error","param":null,"code":"internal"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	if _, err := w.Write(text); err != nil { //nolint:gosec // it is JSON, and nosniff says so to browsers
		s.log.DebugContext(r.Context(), "answer not sent", "path", r.URL.Path, "err", err)
	}
}
