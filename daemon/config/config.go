package config

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// version is the only format of the file that there is.
const version = 1

// Config is the effective configuration. It is not changed after it is loaded,
// so it may be shared. Use [Default] or [Load] to make one; the zero value is
// not valid.
type Config struct {
	Listen Listen
	Engine Engine
	Image  Image
	Limits Limits
	Output Output

	// origins tells where the value of a key was set; keys not in it have
	// their default.
	origins map[string]origin
	files   []string
}

// Listen says where the API is served.
type Listen struct {
	// Socket is the absolute path of the API socket. Empty: shelld.sock in
	// the run directory.
	Socket string
}

// Engine says what runs the sandboxes.
type Engine struct {
	// Address is the absolute path of the socket of an existing containerd.
	// Empty: shelld runs its own.
	Address string
	// Libexec is the absolute path of the folder with containerd, its shim,
	// runc and shelld-init. Empty: found from where shelld is installed.
	Libexec string
}

// Image says what sandboxes are made of.
type Image struct {
	// Default is the image of sandboxes that do not ask for one.
	Default string
	// HostPaths are absolute, clean paths of the host that image "host" shows
	// read-only in every sandbox.
	HostPaths []string
}

// Limits caps what clients can ask for.
type Limits struct {
	// Timeout is the time a command gets when its call names none.
	Timeout time.Duration
	// MaxTimeout is the longest timeout that a call can have.
	MaxTimeout time.Duration
	// MaxContainers is how many containers there can be at once.
	MaxContainers int
	// MaxRuns is how many commands can run at once, in all containers.
	MaxRuns int
	// AllowUnenforced lets sandboxes start on a machine that cannot enforce
	// their limits.
	AllowUnenforced bool
}

// Output bounds what is kept of commands' output.
type Output struct {
	// MaxLength is how much of a command's output a result shows when its call
	// does not say. Unit: Unicode code points.
	MaxLength int
	// MaxLengthCeiling is the most that a call can ask for. Unit: as MaxLength.
	MaxLengthCeiling int
	// SpoolPerStream is how much of the beginning of each stream is kept.
	SpoolPerStream Size
	// SpoolTotal is the most that all kept output takes together.
	SpoolTotal Size
	// Keep is for how long output outlives its container.
	Keep time.Duration
}

// Default returns the built-in configuration.
func Default() *Config {
	return &Config{
		Image: Image{Default: imageHost, HostPaths: []string{}},
		Limits: Limits{
			Timeout:       time.Minute,
			MaxTimeout:    time.Hour,
			MaxContainers: 64,
			MaxRuns:       128,
		},
		Output: Output{
			MaxLength:        65536,
			MaxLengthCeiling: 1 << 20,
			SpoolPerStream:   64 * mebibyte,
			SpoolTotal:       2 * gibibyte,
			Keep:             24 * time.Hour,
		},
		origins: map[string]origin{},
	}
}

// Files returns the paths of the files that were read, in order; none when the
// built-in values alone apply.
func (c *Config) Files() []string { return slices.Clone(c.files) }

// Origin tells where the value of the key, such as "limits.timeout", was set:
// "default" or "FILE:LINE", with a remark if it was adapted.
func (c *Config) Origin(name string) string { return c.origins[name].String() }

// clone returns a copy that can be changed without changing c.
func (c *Config) clone() *Config {
	d := *c
	d.Image.HostPaths = slices.Clone(c.Image.HostPaths)
	d.origins = maps.Clone(c.origins)
	d.files = slices.Clone(c.files)
	return &d
}

// origin is where a value was set. The zero value stands for the default.
type origin struct {
	file string
	line int
	// note says why the value is not the one that stands there.
	note string
}

func (o origin) String() string {
	s := "default"
	if o.file != "" {
		s = o.file + ":" + strconv.Itoa(o.line)
	}
	if o.note != "" {
		s += ", " + o.note
	}
	return s
}
