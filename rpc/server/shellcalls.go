package server

import (
	"net/http"
	"strings"
	"unicode"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

// announceHeader asks for the response headers as soon as the commands run.
const announceHeader = "X-Shelld-Announce"

const (
	notePrefix = "[shelld] "
	// maxNoteLine caps a note with its prefix. Unit: code points. Source: the
	// API's contract.
	maxNoteLine = 400
)

func (s *server) createShellCall(w http.ResponseWriter, r *http.Request) error {
	var req rpc.ShellCallCreate
	if err := decode(w, r, &req, true); err != nil {
		return err
	}
	spec, err := s.callSpec(req)
	if err != nil {
		return err
	}
	active, err := s.opts.Manager.Run(r.Context(), spec)
	if err != nil {
		return err
	}
	call := active.Call()
	w.Header().Set("X-Shelld-Call", string(call.ID))
	w.Header().Set("X-Shelld-Container", string(call.ContainerID))
	if spec.Background {
		active.Leave()
		s.writeJSON(w, r, http.StatusOK, callObject(call))
		return nil
	}
	announced := r.Header.Get(announceHeader) != ""
	if announced {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // a client that is gone shows in Wait
	}
	call, err = active.Wait(r.Context())
	if err != nil && announced {
		// The status is out; breaking the connection is the one way left to
		// say that there is no result.
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's own means
	}
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, callObject(call))
	return nil
}

func (s *server) listShellCalls(w http.ResponseWriter, r *http.Request) error {
	values, err := query(r, "limit", "order", "after", "container_id", "status")
	if err != nil {
		return err
	}
	q, err := listQuery(values)
	if err != nil {
		return err
	}
	q.Container, q.Status = sandbox.ID(values.Get("container_id")), sandbox.CallStatus(values.Get("status"))
	switch q.Status {
	case "", sandbox.CallInProgress, sandbox.CallCompleted, sandbox.CallCanceled, sandbox.CallFailed:
	default:
		return sandbox.Invalid("status", "status must be in_progress, completed, canceled or failed, not %q", clip(string(q.Status)))
	}
	calls, more, err := s.opts.Manager.Calls(r.Context(), q)
	if err != nil {
		return err
	}
	objects := make([]rpc.ShellCall, len(calls))
	for i, c := range calls {
		objects[i] = callObject(c)
	}
	s.writeJSON(w, r, http.StatusOK, page(objects, func(c rpc.ShellCall) string { return c.ID }, more))
	return nil
}

func (s *server) getShellCall(w http.ResponseWriter, r *http.Request) error {
	call, err := s.opts.Manager.Call(r.Context(), sandbox.CallID(r.PathValue("call_id")))
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, callObject(call))
	return nil
}

func (s *server) cancelShellCall(w http.ResponseWriter, r *http.Request) error {
	call, err := s.opts.Manager.Cancel(r.Context(), sandbox.CallID(r.PathValue("call_id")))
	if err != nil {
		return err
	}
	s.writeJSON(w, r, http.StatusOK, callObject(call))
	return nil
}

// oneLine makes a note fit one line behind notePrefix, whatever error's text it
// carries: without control characters and line ends, and clipped.
func oneLine(note string) string {
	words := strings.FieldsFunc(strings.ToValidUTF8(note, "?"), func(c rune) bool {
		return unicode.IsSpace(c) || !unicode.IsPrint(c)
	})
	text := []rune(strings.Join(words, " "))
	if most := maxNoteLine - len(notePrefix); len(text) > most {
		text = append(text[:most-1], '…')
	}
	return string(text)
}

// commandIndex reads the command's index from the path.
func commandIndex(r *http.Request) (int, error) {
	n, ok := wholeNumber(r.PathValue("index"))
	if !ok {
		return 0, sandbox.Invalid("index", "the command's index must be a whole number from 0, not %q", clip(r.PathValue("index")))
	}
	return n, nil
}

func callObject(c sandbox.Call) rpc.ShellCall {
	timeout, maxOutput := c.Spec.Timeout.Milliseconds(), int64(c.Spec.MaxOutput)
	call := rpc.ShellCall{
		ID:          string(c.ID),
		Object:      "shell_call",
		CreatedAt:   c.CreatedAt.Unix(),
		Status:      string(c.Status),
		ContainerID: string(c.ContainerID),
		CallID:      c.Spec.CallID,
		Action:      rpc.ShellAction{Commands: c.Spec.Commands, TimeoutMS: &timeout, MaxOutputLength: &maxOutput},
		Results:     make([]rpc.ShellResult, len(c.Results)),
	}
	if c.Status == sandbox.CallInProgress {
		return call
	}
	completed := c.CompletedAt.Unix()
	call.CompletedAt = &completed
	call.Output = &rpc.ShellCallOutput{
		Type: "shell_call_output", ID: c.ID.OutputID(), CallID: c.Spec.CallID, Status: "completed",
		MaxOutputLength: maxOutput, Output: make([]rpc.OutputChunk, len(c.Results)),
	}
	if c.Status != sandbox.CallCompleted {
		call.Output.Status = "incomplete"
	}
	for i, r := range c.Results {
		call.Output.Output[i] = outputChunk(r)
		call.Results[i] = resultObject(i, r)
	}
	return call
}

// outputChunk is the part of a result that a model sees.
func outputChunk(r sandbox.Result) rpc.OutputChunk {
	chunk := rpc.OutputChunk{Stdout: r.Stdout, Stderr: r.Stderr}
	if note := oneLine(r.Note); note != "" {
		if n := len(chunk.Stderr); n > 0 && chunk.Stderr[n-1] != '\n' {
			chunk.Stderr += "\n"
		}
		chunk.Stderr += notePrefix + note + "\n"
	}
	if r.Reason == sandbox.ReasonTimeout {
		chunk.Outcome = rpc.Outcome{Type: "timeout"}
	} else {
		code := r.ExitCode
		chunk.Outcome = rpc.Outcome{Type: "exit", ExitCode: &code}
	}
	return chunk
}

func resultObject(index int, r sandbox.Result) rpc.ShellResult {
	object := rpc.ShellResult{
		CommandIndex:    index,
		Reason:          string(r.Reason),
		DurationMS:      r.Duration.Milliseconds(),
		CPUMS:           r.CPU.Milliseconds(),
		MemoryPeakBytes: optional(r.MemoryPeak),
		StdoutBytes:     r.StdoutBytes,
		StderrBytes:     r.StderrBytes,
		Truncated:       r.Truncated,
		BackgroundPIDs:  r.Background,
		Note:            optional(oneLine(r.Note)),
		Signal:          optional(sandbox.SignalName(r.Signal)),
	}
	if r.Reason != sandbox.ReasonLost {
		object.ExitCode = &r.ExitCode
	}
	if object.BackgroundPIDs == nil {
		object.BackgroundPIDs = []int{}
	}
	return object
}
