package sandbox

import (
	"errors"
	"fmt"
	"time"
)

// The classes of failure. Every error that leaves this package or an
// implementation of its interfaces matches at most one of them with
// errors.Is; what matches none is a fault of shelld itself.
var (
	// ErrInvalid says that the request cannot be carried out as it stands.
	ErrInvalid = errors.New("invalid request")
	// ErrNotFound says that no such object exists, or exists any more.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that the request contradicts the object's state.
	ErrConflict = errors.New("conflict")
	// ErrTooLarge says that the request exceeds a size limit.
	ErrTooLarge = errors.New("too large")
	// ErrExhausted says that a count limit is reached; later may be better.
	ErrExhausted = errors.New("exhausted")
	// ErrUnavailable says that a part that is needed is away for now.
	ErrUnavailable = errors.New("unavailable")
	// ErrBroken says that a sandbox cannot be trusted or used any more: its
	// process 1 is gone, does not answer, or does not keep to the protocol.
	// There is nothing to do but to remove it.
	ErrBroken = errors.New("broken sandbox")
	// ErrStorageFull says that the disk has no room.
	ErrStorageFull = errors.New("storage full")
)

// Code is the stable, machine-readable name of a failure, as the API shows it.
type Code string

// The codes, grouped by the class that they belong to.
const (
	CodeInvalidValue    Code = "invalid_value"
	CodeMissingField    Code = "missing_field"
	CodeAboveCeiling    Code = "above_ceiling"
	CodeUnsupported     Code = "unsupported"
	CodeContainerFailed Code = "container_failed"

	CodeNotFound Code = "not_found"

	CodeCallIDConflict Code = "call_id_conflict"
	CodeInUse          Code = "in_use"

	CodeTooLarge Code = "too_large"

	CodeTooManyRuns       Code = "too_many_runs"
	CodeTooManyContainers Code = "too_many_containers"

	CodeNotReady            Code = "not_ready"
	CodeEngineUnavailable   Code = "engine_unavailable"
	CodeLimitsUnenforceable Code = "limits_unenforceable"
	CodeStorageFull         Code = "storage_full"
)

// Error is a classified failure with what its reader needs to act on it.
type Error struct {
	// Class is one of the sentinels above; Unwrap returns it and Cause.
	Class error
	// Code is never empty.
	Code Code
	// Param is the path of the request field at fault, such as
	// "action.commands[2]"; empty when no field is.
	Param string
	// Message says what is wrong, why, and what to do, in one sentence or two.
	Message string
	// RetryAfter is when trying again makes sense. Zero: no advice.
	RetryAfter time.Duration
	// NoRetry says that the request must not be repeated as it is, although
	// errors of this class may be: a part of it has been done.
	NoRetry bool
	// Cause is the underlying error, for the log. May be nil.
	Cause error
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("%s: %v", e.Message, e.Cause)
	}
	return e.Message
}

func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Cause}
}

// Invalid returns an [ErrInvalid] error with code [CodeInvalidValue] for the
// request field param.
func Invalid(param, format string, args ...any) *Error {
	return &Error{Class: ErrInvalid, Code: CodeInvalidValue, Param: param, Message: fmt.Sprintf(format, args...)}
}

// NotFound returns an [ErrNotFound] error for the object of the given kind.
func NotFound(kind, id string) *Error {
	return &Error{Class: ErrNotFound, Code: CodeNotFound, Message: fmt.Sprintf("no %s with id %q; it never existed or was deleted", kind, id)}
}

// Unavailable returns an [ErrUnavailable] error with the given code.
func Unavailable(code Code, cause error, format string, args ...any) *Error {
	return &Error{Class: ErrUnavailable, Code: code, Message: fmt.Sprintf(format, args...), RetryAfter: time.Second, Cause: cause}
}
