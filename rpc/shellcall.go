package rpc

// ShellCallCreate is the body of POST /v1/shell_calls. A whole upstream
// "shell_call" item is accepted as it is: Type, ID, Status, Caller and
// CreatedBy are then read and ignored. Any other unknown field is refused.
type ShellCallCreate struct {
	CallID           *string           `json:"call_id,omitempty"`
	Action           *ShellAction      `json:"action,omitempty"`
	Environment      *Environment      `json:"environment,omitempty"`
	Env              map[string]string `json:"env,omitempty"`
	WorkingDirectory *string           `json:"working_directory,omitempty"`
	NetworkPolicy    *NetworkPolicy    `json:"network_policy,omitempty"`
	// Stdin is "none" (the default) or "stream".
	Stdin      *string `json:"stdin,omitempty"`
	Background *bool   `json:"background,omitempty"`
	// Stream, KeepBackground and Limits may have the one value that says what
	// is served: false, true and no limits.
	Stream         *bool          `json:"stream,omitempty"`
	KeepBackground *bool          `json:"keep_background,omitempty"`
	Limits         map[string]any `json:"limits,omitempty"`

	Type      any `json:"type,omitempty"`
	ID        any `json:"id,omitempty"`
	Status    any `json:"status,omitempty"`
	Caller    any `json:"caller,omitempty"`
	CreatedBy any `json:"created_by,omitempty"`
}

// ShellAction is the action of a shell call.
type ShellAction struct {
	Commands []string `json:"commands"`
	// TimeoutMS bounds each command. Unit: milliseconds. Null: the default.
	TimeoutMS *int64 `json:"timeout_ms"`
	// MaxOutputLength bounds stdout and stderr of each command together.
	// Unit: Unicode code points. Null: the default.
	MaxOutputLength *int64 `json:"max_output_length"`
}

// Environment says where a call runs: "container_reference" with ContainerID,
// or "container_auto" (also "local") with the fields of [ContainerCreate].
type Environment struct {
	Type        string `json:"type"`
	ContainerID string `json:"container_id,omitempty"`

	// DeleteAfter deletes a container_auto container when the call has ended.
	DeleteAfter bool `json:"delete_after,omitempty"`
	ContainerCreate
}

// ShellCall is the shell call object.
type ShellCall struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	CreatedAt   int64  `json:"created_at"`
	CompletedAt *int64 `json:"completed_at"`
	// Status is "in_progress", "completed", "canceled" or "failed".
	Status      string      `json:"status"`
	ContainerID string      `json:"container_id"`
	CallID      string      `json:"call_id"`
	Action      ShellAction `json:"action"`
	// Output is null while the call is in progress.
	Output  *ShellCallOutput `json:"output"`
	Results []ShellResult    `json:"results"`
}

// ShellCallOutput is exactly the upstream item, so that it can be sent on to a
// model API as it is.
type ShellCallOutput struct {
	Type            string        `json:"type"`
	ID              string        `json:"id"`
	CallID          string        `json:"call_id"`
	Status          string        `json:"status"`
	MaxOutputLength int64         `json:"max_output_length"`
	Output          []OutputChunk `json:"output"`
}

// OutputChunk is what one command wrote and how it ended.
type OutputChunk struct {
	Stdout  string  `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Outcome Outcome `json:"outcome"`
}

// Outcome is upstream's: "exit" with a code, or "timeout".
type Outcome struct {
	Type     string `json:"type"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

// ShellResult is everything else that is known of one command.
type ShellResult struct {
	CommandIndex int `json:"command_index"`
	// Reason is why the command ended: "exit", "signal", "timeout",
	// "canceled" or "lost".
	Reason string `json:"reason"`
	// ExitCode is 128 plus the signal's number for a command that a signal
	// ended; null when it is not known.
	ExitCode *int `json:"exit_code"`
	// Signal is the signal's name without SIG, such as "KILL".
	Signal     *string `json:"signal"`
	DurationMS int64   `json:"duration_ms"`
	CPUMS      int64   `json:"cpu_ms"`
	// MemoryPeakBytes is null where it was not measured.
	MemoryPeakBytes *int64 `json:"memory_peak_bytes"`
	StdoutBytes     int64  `json:"stdout_bytes"`
	StderrBytes     int64  `json:"stderr_bytes"`
	Truncated       bool   `json:"truncated"`
	// BackgroundPIDs are the processes that the command left running, by their
	// ids inside the sandbox.
	BackgroundPIDs []int   `json:"background_pids"`
	Note           *string `json:"note"`
}

// StdinWritten is the answer to a streamed standard input.
type StdinWritten struct {
	// Bytes is how many the command's pipe took.
	Bytes int64 `json:"bytes"`
}
