package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
)

// Fingerprint is a hash of all that the caller asked for but the call id and
// whether it waits for the end. Two specs with equal fingerprints ask for the
// same.
func (s CallSpec) Fingerprint() string {
	s.CallID, s.Background = "", false
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

// notStarted returns the result of a command that err kept from starting, as
// far as is known.
func notStarted(err error) Result {
	if errors.Is(err, errCanceled) || errors.Is(err, errAbandoned) {
		return Result{
			Reason: ReasonCanceled, ExitCode: 128 + int(syscall.SIGKILL), Signal: syscall.SIGKILL,
			Note: "canceled before it started",
		}
	}
	return Lost("its sandbox did not answer when it was started; whether it ran is not known: " + err.Error())
}

// errInterrupted marks the error of a call that the next daemon ends.
var errInterrupted = errors.New("interrupted")

// interrupted is what the clients of a call are told whose commands have, or
// may have, been started when the daemon stops.
func interrupted(id CallID) *Error {
	return &Error{
		Class: ErrUnavailable, Code: CodeNotReady, NoRetry: true, Cause: errInterrupted,
		Message: fmt.Sprintf("shelld stopped while shell call %s ran; sent again its commands might run twice; when shelld is back, GET /v1/shell_calls/%s says what became of it", id, id),
	}
}

// unsettled says that the end of a call is not in its record yet.
func unsettled(c Call) *Error {
	return Unavailable(CodeNotReady, nil, "shell call %s has ended, but its end could not be recorded yet; try again", c.ID)
}

func callIDConflict(callID string) *Error {
	return &Error{
		Class: ErrConflict, Code: CodeCallIDConflict, Param: "call_id",
		Message: fmt.Sprintf("another call was made with call_id %q and a different request; use a new call_id for a new request", callID),
	}
}

// unusable says why no command can run in a container that is there.
func unusable(c Container) *Error {
	if c.Status == StatusRunning {
		return Unavailable(CodeEngineUnavailable, nil, "the sandbox of container %s runs but cannot be reached for now; shelld keeps trying", c.ID)
	}
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
