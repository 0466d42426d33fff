package rpc

// Info is the answer of GET /v1/info.
type Info struct {
	Object  string `json:"object"`
	Version string `json:"version"`
	// PID is the daemon's process id.
	PID int `json:"pid"`
	// Mode is "root" or "rootless".
	Mode string `json:"mode"`
	// Ready says whether calls are served; NotReady says why not.
	Ready    bool    `json:"ready"`
	NotReady *string `json:"not_ready"`
	Engine   Engine  `json:"engine"`
	Cgroup   Cgroup  `json:"cgroup"`
	// Containers and Runs count what lives now.
	Containers int `json:"containers"`
	Runs       int `json:"runs"`
	// Config names the files the configuration was read from.
	Config []string `json:"config"`
	// Extensions names the features beyond the first release, for clients
	// that test for one.
	Extensions []string `json:"extensions"`
}

// Engine is the state of the containerd underneath.
type Engine struct {
	// Status is "running" or "unavailable".
	Status  string `json:"status"`
	Version string `json:"version"`
	Address string `json:"address"`
}

// Cgroup says how sandboxes are held by cgroups on this machine.
type Cgroup struct {
	// Version is 1 or 2; 0 when no usable cgroup exists.
	Version int `json:"version"`
	// Reason says why there is none; null when there is.
	Reason *string `json:"reason"`
}

// Shutdown is the body of POST /v1/shutdown.
type Shutdown struct {
	// Sandboxes also stops every sandbox and the engine; without it they live
	// on and the next daemon adopts them.
	Sandboxes bool `json:"sandboxes"`
}

// Status is the answer of operations that have nothing else to say.
type Status struct {
	Status string `json:"status"`
}
