package sandbox

import "time"

// Status is the state of a container. A deleted container has none: it is not
// found.
type Status string

const (
	// StatusCreating is a container whose sandbox is being started. It is
	// recorded before anything happens, so that a daemon that died in between
	// can clean up, and never shown.
	StatusCreating Status = "creating"
	// StatusRunning is a container that commands can run in.
	StatusRunning Status = "running"
	// StatusFailed is a container whose sandbox is gone; StatusReason says why.
	StatusFailed Status = "failed"
	// StatusDeleting is a container that is being removed; never shown.
	StatusDeleting Status = "deleting"
)

// ImageHost is the image that shows the host's own programs, read-only.
const ImageHost = "host"

// Container is the record of a container.
type Container struct {
	ID           ID        `json:"id"`
	Spec         Spec      `json:"spec"`
	Status       Status    `json:"status"`
	StatusReason string    `json:"status_reason,omitempty"`
	CreatedAt    time.Time `json:"created_at"`
	LastActiveAt time.Time `json:"last_active_at"`
	// EndedAt is when the sandbox failed; zero while it runs.
	EndedAt time.Time `json:"ended_at,omitzero"`
	// Auto says that a shell call made the container for itself.
	Auto bool `json:"auto,omitempty"`
	// Transient says that the container is deleted with the call that made it.
	Transient bool `json:"transient,omitempty"`
	// Limits are the limits in force.
	Limits Limits `json:"limits"`
}

// Spec is what the caller asked for, with defaults filled in.
type Spec struct {
	Name  string `json:"name"`
	Image string `json:"image"`
	// IdleMinutes is how long the container may be idle before it expires.
	IdleMinutes int `json:"idle_minutes"`
	// MemoryLimit is the size as the caller wrote it, such as "1g".
	MemoryLimit string            `json:"memory_limit"`
	MemoryBytes int64             `json:"memory_bytes"`
	Env         map[string]string `json:"env,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// Limits are the limits of a container, each with whether it is enforced.
type Limits struct {
	Memory Limit `json:"memory"`
	Pids   Limit `json:"pids"`
}

// Limit is one limit.
type Limit struct {
	// Value is in bytes for memory, a count for pids.
	Value int64 `json:"value"`
	// Enforced is true only after the kernel has been read back.
	Enforced bool `json:"enforced"`
}

// Query selects a page of containers or shell calls, by creation time.
type Query struct {
	// Limit is the greatest number of objects to return; at least 1.
	Limit int
	// Ascending returns the oldest first.
	Ascending bool
	// After is the id of the last object of the page before; empty: the first
	// page.
	After string
	// Name selects containers with exactly this name. Empty: all.
	Name string
	// Container and Status select shell calls. Empty: all.
	Container ID
	Status    CallStatus
}
