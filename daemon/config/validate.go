package config

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/shelld/shelld/sandbox/engine/hostimage"
)

// imageHost is the image that is always there.
const imageHost = "host"

// Validate checks the values themselves and how they fit together. The error,
// if any, is an [*Error] with all faults, in the order of the default file.
func (c *Config) Validate() error {
	v := validator{config: c}
	v.path("listen.socket", c.Listen.Socket)
	v.path("engine.address", c.Engine.Address)
	v.path("engine.libexec", c.Engine.Libexec)
	if c.Image.Default != imageHost {
		v.fault("image.default", "is %q, but the only image is %q", c.Image.Default, imageHost)
	}
	v.hostPaths(c.Image.HostPaths)

	v.atLeast("limits.timeout", c.Limits.Timeout > 0, "0s")
	v.atLeast("limits.max_timeout", c.Limits.MaxTimeout > 0, "0s")
	if c.Limits.Timeout > c.Limits.MaxTimeout {
		v.fault("limits.timeout", "is %s, above limits.max_timeout (%s); lower it or raise that", formatDuration(c.Limits.Timeout), formatDuration(c.Limits.MaxTimeout))
	}
	v.atLeast("limits.max_containers", c.Limits.MaxContainers > 0, "0")
	v.atLeast("limits.max_runs", c.Limits.MaxRuns > 0, "0")

	v.atLeast("output.max_length", c.Output.MaxLength > 0, "0")
	v.atLeast("output.max_length_ceiling", c.Output.MaxLengthCeiling > 0, "0")
	if c.Output.MaxLength > c.Output.MaxLengthCeiling {
		v.fault("output.max_length", "is %d, above output.max_length_ceiling (%d); lower it or raise that", c.Output.MaxLength, c.Output.MaxLengthCeiling)
	}
	v.atLeast("output.spool_per_stream", c.Output.SpoolPerStream > 0, "0")
	v.atLeast("output.spool_total", c.Output.SpoolTotal > 0, "0")
	if c.Output.SpoolPerStream > c.Output.SpoolTotal {
		v.fault("output.spool_per_stream", "is %s, above output.spool_total (%s); lower it or raise that", c.Output.SpoolPerStream, c.Output.SpoolTotal)
	}
	if c.Output.Keep < 0 {
		v.fault("output.keep", "must not be negative")
	}
	if len(v.faults) > 0 {
		return &Error{Faults: v.faults}
	}
	return nil
}

// settle lowers built-in defaults to caps that a file has set below them, so
// that setting the cap alone is enough.
func (c *Config) settle() {
	settle(c, "limits.timeout", &c.Limits.Timeout, "limits.max_timeout", c.Limits.MaxTimeout)
	settle(c, "output.max_length", &c.Output.MaxLength, "output.max_length_ceiling", c.Output.MaxLengthCeiling)
	settle(c, "output.spool_per_stream", &c.Output.SpoolPerStream, "output.spool_total", c.Output.SpoolTotal)
}

func settle[T ~int | ~int64](c *Config, name string, value *T, capName string, limit T) {
	if _, set := c.origins[name]; set || *value <= limit {
		return
	}
	*value = limit
	c.origins[name] = origin{note: "lowered to " + capName}
}

type validator struct {
	config *Config
	faults []Fault
}

func (v *validator) fault(name, format string, args ...any) {
	from := v.config.origins[name]
	v.faults = append(v.faults, Fault{File: from.file, Line: from.line, Key: name, Message: fmt.Sprintf(format, args...)})
}

func (v *validator) atLeast(name string, ok bool, bound string) {
	if !ok {
		v.fault(name, "must be greater than %s", bound)
	}
}

func (v *validator) path(name, path string) {
	if path != "" && !filepath.IsAbs(path) {
		v.fault(name, "must be an absolute path, not %q", path)
	}
}

// hostPaths judges the names only: whoever mounts them checks what they lead to.
func (v *validator) hostPaths(paths []string) {
	const name = "image.host_paths"
	for i, path := range paths {
		if err := hostimage.CheckHostPath(path); err != nil {
			v.fault(name, "cannot have %v", err)
		} else if slices.Contains(paths[:i], path) {
			v.fault(name, "has %q twice", path)
		}
	}
}
