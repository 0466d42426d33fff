package sandbox

import (
	"context"
	"time"
)

// Store remembers containers and calls across daemons. Every write is in the
// file when the method returns, so that kill -9 loses nothing. Its methods
// are safe for concurrent use.
type Store interface {
	PutContainer(ctx context.Context, c Container) error
	// DeleteContainer removes the record of a container that ended at the given
	// time, which OldCalls goes by. One that does not exist is no error.
	DeleteContainer(ctx context.Context, id ID, ended time.Time) error
	// TouchContainer records when the container was last active.
	TouchContainer(ctx context.Context, id ID, lastActive time.Time) error
	// Containers returns every container, oldest first.
	Containers(ctx context.Context) ([]Container, error)

	// AddCall records a new call. If another call has the same scope and
	// CallSpec.CallID it records nothing and returns that call and false.
	AddCall(ctx context.Context, scope string, c Call) (existing Call, added bool, err error)
	// PutCall replaces the record of a call that AddCall has made.
	PutCall(ctx context.Context, c Call) error
	// DeleteCall removes the record of a call. One that does not exist is no
	// error.
	DeleteCall(ctx context.Context, id CallID) error
	// Call returns the call or an [ErrNotFound] error.
	Call(ctx context.Context, id CallID) (Call, error)
	// CallByKey returns the call with that scope and CallSpec.CallID, or an
	// [ErrNotFound] error.
	CallByKey(ctx context.Context, scope, callID string) (Call, error)
	// Calls returns a page of calls and whether there are more. An After that
	// does not exist is an [ErrInvalid] error.
	Calls(ctx context.Context, q Query) (page []Call, more bool, err error)
	// OpenCalls returns every call that is in progress.
	OpenCalls(ctx context.Context) ([]Call, error)
	// OldCalls returns calls whose container is gone, and which had ended, as it
	// had, before the given time.
	OldCalls(ctx context.Context, before time.Time) ([]CallID, error)
}
