package rpc

// ContainerCreate is the body of POST /v1/containers. Unknown fields are
// ignored, as upstream does.
type ContainerCreate struct {
	// Name is required by POST /v1/containers.
	Name          string            `json:"name,omitempty"`
	ExpiresAfter  *ExpiresAfter     `json:"expires_after,omitempty"`
	FileIDs       []string          `json:"file_ids,omitempty"`
	MemoryLimit   *string           `json:"memory_limit,omitempty"`
	NetworkPolicy *NetworkPolicy    `json:"network_policy,omitempty"`
	Skills        []any             `json:"skills,omitempty"`
	Image         *string           `json:"image,omitempty"`
	Env           map[string]string `json:"env,omitempty"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// ExpiresAfter says when an idle container expires.
type ExpiresAfter struct {
	// Anchor is always "last_active_at".
	Anchor string `json:"anchor"`
	// Minutes of idleness.
	Minutes int `json:"minutes"`
}

// NetworkPolicy says what of the network commands may reach.
type NetworkPolicy struct {
	// Type is "disabled" or "allowlist".
	Type           string   `json:"type"`
	AllowedDomains []string `json:"allowed_domains,omitempty"`
}

// Container is the container object.
type Container struct {
	ID     string `json:"id"`
	Object string `json:"object"`
	// CreatedAt and the other times are Unix seconds.
	CreatedAt int64  `json:"created_at"`
	Name      string `json:"name"`
	// Status is "running", "expired" or "failed".
	Status        string            `json:"status"`
	StatusReason  *string           `json:"status_reason"`
	LastActiveAt  int64             `json:"last_active_at"`
	ExpiresAfter  ExpiresAfter      `json:"expires_after"`
	MemoryLimit   string            `json:"memory_limit"`
	NetworkPolicy NetworkPolicy     `json:"network_policy"`
	Image         string            `json:"image"`
	Limits        Limits            `json:"limits"`
	Labels        map[string]string `json:"labels"`
	// Auto is true for containers that a shell call made for itself.
	Auto bool `json:"auto,omitempty"`
}

// Limits are the limits in force in a container.
type Limits struct {
	Memory Limit `json:"memory"`
	Pids   Limit `json:"pids"`
}

// Limit is one limit and whether this machine enforces it.
type Limit struct {
	// Value is in bytes for memory, a count for pids.
	Value    int64 `json:"value"`
	Enforced bool  `json:"enforced"`
}

// Deleted is the answer to a delete.
type Deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// List is upstream's list envelope.
type List[T any] struct {
	Object  string `json:"object"`
	Data    []T    `json:"data"`
	FirstID string `json:"first_id"`
	LastID  string `json:"last_id"`
	HasMore bool   `json:"has_more"`
}
