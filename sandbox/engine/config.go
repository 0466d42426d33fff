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
	TempDir         string                    `toml:"temp"`
	OOMScore        int                       `toml:"oom_score"`
	DisabledPlugins []string                  `toml:"disabled_plugins"`
	RequiredPlugins []string                  `toml:"required_plugins"`
	Debug           containerdDebug           `toml:"debug"`
	GRPC            containerdListen          `toml:"grpc"`
	TTRPC           containerdListen          `toml:"ttrpc"`
	Plugins         map[string]map[string]any `toml:"plugins"`
}

type containerdDebug struct {
	Level string `toml:"level"`
}

type containerdListen struct {
	Address string `toml:"address"`
}

// renderConfig is the configuration of our containerd. Version 3 of the format
// is read by containerd 2.0 and later.
func renderConfig(dirs Dirs) ([]byte, error) {
	cfg := containerdConfig{
		Version:         3,
		Root:            dirs.containerdRoot(),
		State:           privateRun + "/state",
		TempDir:         "",
		DisabledPlugins: disabledPlugins(),
		RequiredPlugins: []string{
			"io.containerd.metadata.v1.bolt",
			"io.containerd.runtime.v2.task",
			"io.containerd.snapshotter.v1.native",
		},
		Debug: containerdDebug{Level: "warn"},
		GRPC:  containerdListen{Address: dirs.containerdSocket()},
		TTRPC: containerdListen{Address: dirs.containerdSocket() + ".ttrpc"},
		Plugins: map[string]map[string]any{
			// Deleting a sandbox removes its snapshot at once, not at the
			// next collection.
			"io.containerd.gc.v1.scheduler": {"deletion_threshold": 1, "schedule_delay": "0ms"},
		},
	}
	var buf bytes.Buffer
	if err := toml.NewEncoder(&buf).Encode(cfg); err != nil {
		return nil, fmt.Errorf("encode containerd configuration: %w", err)
	}
	return buf.Bytes(), nil
}
