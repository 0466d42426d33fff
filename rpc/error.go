package rpc

import (
	"fmt"
	"time"
)

// Error is the error envelope's content, and on the client side the Go error
// that carries it. Programs look at Code.
type Error struct {
	// Message says what is wrong, why, and what to do.
	Message string `json:"message"`
	// Type is "invalid_request_error" for every 4xx, "server_error" for 5xx.
	Type string `json:"type"`
	// Param is the path of the request field at fault; null when none is.
	Param *string `json:"param"`
	// Code is the stable name of the failure. Null only in answers of servers
	// that are not shelld.
	Code *string `json:"code"`

	// Status is the HTTP status that the envelope came with.
	Status int `json:"-"`
	// RequestID is the answer's x-request-id.
	RequestID string `json:"-"`
	// RetryAfter is the server's advice; zero when it gave none.
	RetryAfter time.Duration `json:"-"`
}

// ErrorResponse is the body of every answer that is not 2xx.
type ErrorResponse struct {
	Error Error `json:"error"`
}

// The error types of the envelope, as upstream names them.
const (
	TypeInvalidRequest = "invalid_request_error"
	TypeServer         = "server_error"
)

// Codes that arise at the HTTP layer itself; the others are the domain's.
const (
	CodeUnknownField         = "unknown_field"
	CodeUnauthorized         = "unauthorized"
	CodeForbidden            = "forbidden"
	CodeMethodNotAllowed     = "method_not_allowed"
	CodeUnsupportedMediaType = "unsupported_media_type"
	CodeInternal             = "internal"
)

func (e *Error) Error() string {
	if e.Code == nil || *e.Code == "" {
		return fmt.Sprintf("HTTP %d: %s", e.Status, e.Message)
	}
	return fmt.Sprintf("%s (%s)", e.Message, *e.Code)
}

// Is makes errors.Is(err, &Error{Code: …}) compare codes, so that a caller can
// test for one code without reading fields. See [WithCode].
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code != nil && e.Code != nil && *t.Code == *e.Code
}

// WithCode returns a target for errors.Is that matches every [Error] with
// that code.
func WithCode(code string) error { return &Error{Code: &code} }
