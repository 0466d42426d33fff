package engine

import (
	"bytes"
	"fmt"

	"github.com/BurntSushi/toml"
)

// privateRun is where shims put their sockets. The path is compiled into them,
// so each engine has its own directory mounted there.
const privateRun = "/run/containerd"

// disabledPlugins are the parts of containerd that nothing here uses. Fewer
// plugins start faster and leave less to attack.
func disabledPlugins() []string {
	return []string{
		"io.containerd.cri.v1.images",
		"io.containerd.cri.v1.runtime",
		"io.containerd.grpc.v1.cri",
		"io.containerd.image-verifier.v1.bindir",
		"io.containerd.internal.v1.opt",
		"io.containerd.internal.v1.restart",
		"io.containerd.internal.v1.tracing",
		"io.containerd.monitor.task.v1.cgroups",
		"io.containerd.nri.v1.nri",
		"io.containerd.snapshotter.v1.blockfile",
		"io.containerd.snapshotter.v1.erofs",
		"io.containerd.differ.v1.erofs",
		"io.containerd.mount-handler.v1.erofs",
		"io.containerd.tracing.processor.v1.otlp",
	}
}

type containerdConfig struct {
	Version         int                       `toml:"version"`
	Root            string                    `toml:"root"`
	State           string                    `toml:"state"`
	DisabledPlugins []string                  `toml:"disabled_plugins"`
	RequiredPlugins []string                  `toml:"required_plugins"`
	Debug           containerdDebug           `toml:"debug"`
	Plugins         map[string]map[string]any `toml:"plugins"`
}

type containerdDebug struct {
	Level string `toml:"level"`
}

// renderConfig is the configuration of our containerd, in version 4 of the
// format, which containerd 2.4 and later read.
func renderConfig(dirs Dirs) ([]byte, error) {
	cfg := containerdConfig{
		Version:         4,
		Root:            dirs.containerdRoot(),
		State:           privateRun + "/state",
		DisabledPlugins: disabledPlugins(),
		RequiredPlugins: []string{
			"io.containerd.metadata.v1.bolt",
			"io.containerd.runtime.v2.task",
			"io.containerd.snapshotter.v1.native",
		},
		Debug: containerdDebug{Level: "warn"},
		Plugins: map[string]map[string]any{
			"io.containerd.server.v1.grpc":  {"address": dirs.containerdSocket()},
			"io.containerd.server.v1.ttrpc": {"address": dirs.containerdSocket() + ".ttrpc"},
			// Both are off unless they have an address.
			"io.containerd.server.v1.debug":   {"address": ""},
			"io.containerd.server.v1.metrics": {"address": ""},
		},
	}
	var buf bytes.Buffer
	if err := toml.NewEncoder(&buf).Encode(cfg); err != nil {
		return nil, fmt.Errorf("encode containerd configuration: %w", err)
	}
	return buf.Bytes(), nil
}
