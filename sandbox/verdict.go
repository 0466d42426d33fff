package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
)

// Fingerprint is a hash of all that the caller asked for but the call id. Two
// specs with equal fingerprints ask for the same.
func (s CallSpec) Fingerprint() string {
	s.CallID = ""
	text, err := json.Marshal(s) // maps are written in key order
	if err != nil {
		return "" // cannot be: the type has no values that JSON lacks
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// verdict derives the state of a call from how its commands ended.
func verdict(results []Result) CallStatus {
	status := CallCompleted
	for _, r := range results {
		switch r.Reason {
		case ReasonLost:
			return CallFailed
		case ReasonCanceled:
			status = CallCanceled
		case ReasonExit, ReasonSignal, ReasonTimeout:
		}
	}
	return status
}

// notStarted returns the result of a command that err kept from starting.
func notStarted(err error) Result {
	if errors.Is(err, errCanceled) || errors.Is(err, errAbandoned) {
		return Result{
			Reason: ReasonCanceled, ExitCode: 128 + int(syscall.SIGKILL), Signal: syscall.SIGKILL,
			Note: "canceled before it started",
		}
	}
	return Lost("the sandbox did not start the command: " + err.Error())
}

func callIDConflict(callID string) *Error {
	return &Error{
		Class: ErrConflict, Code: CodeCallIDConflict, Param: "call_id",
		Message: fmt.Sprintf("another call was made with call_id %q and a different request; use a new call_id for a new request", callID),
	}
}

func failedContainer(c Container) *Error {
	return &Error{
		Class: ErrInvalid, Code: CodeContainerFailed,
		Message: fmt.Sprintf("container %s has failed: %s; delete it and create another", c.ID, c.StatusReason),
	}
}

func unenforceable() *Error {
	return &Error{
		Class: ErrUnavailable, Code: CodeLimitsUnenforceable,
		Message: "this machine does not let shelld enforce memory and process limits, so no container was started; `shellctl info` has the cause and the fix; to run without limits set limits.allow_unenforced = true",
	}
}

func noCommand(c Call, index int) *Error {
	return &Error{
		Class: ErrNotFound, Code: CodeNotFound,
		Message: fmt.Sprintf("shell call %s has no output of command %d; it has %d commands, counted from 0", c.ID, index, len(c.Spec.Commands)),
	}
}
