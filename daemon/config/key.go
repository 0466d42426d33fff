package config

import (
	"strings"
	"time"
)

// A key is one setting of the file, bound to the field of a [Config].
type key struct {
	// name is the section and the key in it, joined by a dot.
	name string
	// doc explains the key in the default file; lines below 78 characters.
	doc string
	// field points at the value: *string, *bool, *int, *[]string,
	// *time.Duration or *[Size].
	field any
	// ceiling: what the administrator sets, the user cannot go beyond.
	ceiling bool
}

func (k key) section() string { s, _, _ := strings.Cut(k.name, "."); return s }

func (k key) base() string { _, b, _ := strings.Cut(k.name, "."); return b }

// keys lists all settings in the order of the default file. Everything that
// reads, writes, explains or compares settings goes by this table.
func (c *Config) keys() []key {
	return []key{
		{
			name: "listen.socket", field: &c.Listen.Socket,
			doc: "Absolute path of the API socket. Its folder must be yours alone (mode 0700).\n" +
				"Empty: shelld.sock in the run directory. With --run DIR it is always\n" +
				"DIR/shelld.sock; a socket from systemd is used as it is.",
		},
		{
			name: "engine.address", field: &c.Engine.Address,
			doc: "Absolute path of the socket of an existing containerd (only as root).\n" +
				"Empty: shelld starts its own.",
		},
		{
			name: "engine.libexec", field: &c.Engine.Libexec,
			doc: "Folder with containerd, containerd-shim-runc-v2, runc and shelld-init.\n" +
				"Empty: the one that was installed with shelld.",
		},
		{
			name: "image.default", field: &c.Image.Default,
			doc: "Image of sandboxes that do not ask for one. \"host\": this machine's own\n" +
				"programs, read-only.",
		},
		{
			name: "image.host_paths", field: &c.Image.HostPaths, ceiling: true,
			doc: "More folders or files of this machine that sandboxes can read, such as\n" +
				"toolchains: [\"/opt\", \"/home/ann/.cargo\"].",
		},
		{
			name: "limits.timeout", field: &c.Limits.Timeout,
			doc: "How long a command may run when its call does not say.",
		},
		{
			name: "limits.max_timeout", field: &c.Limits.MaxTimeout, ceiling: true,
			doc: "The longest timeout of a command; calls that ask for more get this.",
		},
		{
			name: "limits.max_containers", field: &c.Limits.MaxContainers, ceiling: true,
			doc: "How many containers there can be at once.",
		},
		{
			name: "limits.max_runs", field: &c.Limits.MaxRuns, ceiling: true,
			doc: "How many commands can run at once, in all containers together.",
		},
		{
			name: "limits.allow_unenforced", field: &c.Limits.AllowUnenforced, ceiling: true,
			doc: "Start sandboxes even where this machine cannot enforce their limits. Such\n" +
				"limits are reported as not enforced.",
		},
		{
			name: "output.max_length", field: &c.Output.MaxLength,
			doc: "How much output of a command its result shows when the call does not say.\n" +
				"Unit: characters, stdout and stderr together.",
		},
		{
			name: "output.max_length_ceiling", field: &c.Output.MaxLengthCeiling, ceiling: true,
			doc: "The most that a call can ask for. Unit: characters.",
		},
		{
			name: "output.spool_per_stream", field: &c.Output.SpoolPerStream, ceiling: true,
			doc: "How much is kept on disk of the beginning of each output stream; the last\n" +
				"MiB is kept as well.",
		},
		{
			name: "output.spool_total", field: &c.Output.SpoolTotal, ceiling: true,
			doc: "How much disk all kept output may take; the oldest goes first.",
		},
		{
			name: "output.keep", field: &c.Output.Keep, ceiling: true,
			doc: "How long output is kept after the end of its container. \"0s\": not at all.",
		},
	}
}

// find returns the key of the given name.
func (c *Config) find(name string) (key, bool) {
	for _, k := range c.keys() {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

// within reports whether the value of the user's key does not go beyond that
// of the administrator's. Both are the same key of two configurations.
func (k key) within(admin key) bool {
	switch user := k.field.(type) {
	case *int:
		return *user <= *admin.field.(*int)
	case *bool:
		return !*user || *admin.field.(*bool)
	case *Size:
		return *user <= *admin.field.(*Size)
	case *time.Duration:
		return *user <= *admin.field.(*time.Duration)
	case *[]string:
		for _, path := range *user {
			if !below(path, *admin.field.(*[]string)) {
				return false
			}
		}
		return true
	default:
		return true
	}
}

// below reports whether path is one of roots or lies under one.
func below(path string, roots []string) bool {
	for _, root := range roots {
		if path == root || strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
			return true
		}
	}
	return false
}
