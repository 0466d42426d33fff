package sandbox

import (
	"encoding/json"
	"syscall"
	"time"
)

// CallStatus is the state of a shell call.
type CallStatus string

const (
	// CallInProgress is a call with commands that have not ended.
	CallInProgress CallStatus = "in_progress"
	// CallCompleted is a call whose commands all ended by themselves or at
	// their limits.
	CallCompleted CallStatus = "completed"
	// CallCanceled is a call that was ended by its client.
	CallCanceled CallStatus = "canceled"
	// CallFailed is a call with at least one command that was lost.
	CallFailed CallStatus = "failed"
)

// Reason says why a command ended. Every command has exactly one.
type Reason string

const (
	// ReasonExit is a shell that exited by itself.
	ReasonExit Reason = "exit"
	// ReasonSignal is a shell that a signal ended, not sent by shelld.
	ReasonSignal Reason = "signal"
	// ReasonTimeout is a command that was killed at its deadline.
	ReasonTimeout Reason = "timeout"
	// ReasonCanceled is a command that was killed because its client left or
	// asked for it, or because its container was deleted.
	ReasonCanceled Reason = "canceled"
	// ReasonLost is a command whose end is not known: its sandbox died, or
	// shelld did. No exit code is invented for it.
	ReasonLost Reason = "lost"
)

// Call is the record of a shell call.
type Call struct {
	ID          CallID     `json:"id"`
	ContainerID ID         `json:"container_id"`
	Status      CallStatus `json:"status"`
	CreatedAt   time.Time  `json:"created_at"`
	// CompletedAt is zero while the call is in progress.
	CompletedAt time.Time `json:"completed_at,omitzero"`
	Spec        CallSpec  `json:"spec"`
	// Fingerprint is equal for two requests that ask for the same. See
	// [CallSpec.Fingerprint].
	Fingerprint string `json:"fingerprint,omitempty"`
	// Results has one entry for each command, in order; empty while the call
	// is in progress.
	Results []Result `json:"results,omitempty"`
}

// CallSpec is what the caller asked for, with defaults filled in.
type CallSpec struct {
	// CallID is the caller's own id; two calls in the same place with the same
	// one are the same call.
	CallID   string   `json:"call_id"`
	Commands []string `json:"commands"`
	// Timeout bounds each command; the time a machine sleeps does not count.
	Timeout time.Duration `json:"timeout"`
	// MaxOutput bounds the result texts of each command. Unit: code points.
	MaxOutput int               `json:"max_output"`
	Env       map[string]string `json:"env,omitempty"`
	// Dir is the working directory; absolute.
	Dir string `json:"dir"`
	// Stdin says that the caller streams each command's standard input;
	// otherwise it is at end of file.
	Stdin bool `json:"stdin,omitempty"`
	// Background says that the call does not depend on a waiting client.
	Background bool `json:"background,omitempty"`

	// ContainerID is the container to run in. Empty: Auto says which to make.
	ContainerID ID `json:"container,omitempty"`
	// Auto is the container to make for the call.
	Auto *Spec `json:"auto,omitempty"`
	// DeleteAfter deletes the made container when the call has ended.
	DeleteAfter bool `json:"delete_after,omitempty"`
}

// Result is how one command ended and what it wrote.
type Result struct {
	Reason Reason `json:"reason"`
	// ExitCode is the shell's exit code, 128 plus the signal's number when a
	// signal ended it, and -1 when it is not known.
	ExitCode int `json:"exit_code"`
	// Signal is the signal that ended the shell; zero when none did.
	Signal   syscall.Signal `json:"signal,omitempty"`
	Duration time.Duration  `json:"duration"`
	CPU      time.Duration  `json:"cpu"`
	// MemoryPeak is in bytes; zero where it was not measured.
	MemoryPeak int64 `json:"memory_peak,omitempty"`

	// Stdout and Stderr are the texts, cut to the call's limit.
	Stdout    string `json:"stdout"`
	Stderr    string `json:"stderr"`
	Truncated bool   `json:"truncated,omitempty"`
	// StdoutBytes and StderrBytes are what the command wrote in all until the
	// result was fixed.
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	// Background are the processes left running, by their ids in the sandbox.
	Background []int `json:"background,omitempty"`
	// Note is one sentence about an end other than an exit that a model can
	// act on; empty otherwise.
	Note string `json:"note,omitempty"`
	// StdoutMeta and StderrMeta are what [Outputs] needs to find the streams
	// again; opaque here.
	StdoutMeta json.RawMessage `json:"stdout_meta,omitempty"`
	StderrMeta json.RawMessage `json:"stderr_meta,omitempty"`
}

// Lost returns the result of a command whose end is not known, and why.
func Lost(note string) Result {
	return Result{Reason: ReasonLost, ExitCode: -1, Note: note}
}
