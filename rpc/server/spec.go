package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

const (
	anchor         = "last_active_at"
	policyDisabled = "disabled"

	// maxCommands is how many commands one call may have. Source: the API's
	// contract.
	maxCommands = 64
	// maxCommand caps the text of a command. Unit: bytes. Source: the API's
	// contract; the kernel takes arguments of 2 MiB in all (execve(2)).
	maxCommand = 1 << 20
	// maxEnv and maxEnvEntry cap an environment: together 512 KiB, so that it
	// fits beside a command of maxCommand, and each entry below the kernel's
	// 128 KiB (MAX_ARG_STRLEN). Unit: bytes.
	maxEnv      = 512 << 10
	maxEnvEntry = 128<<10 - 1
	maxEnvCount = 1024
	// maxPath is the kernel's PATH_MAX without the final NUL. Unit: bytes.
	maxPath = 4095

	maxName       = 256
	maxLabels     = 64
	maxLabel      = 1024
	maxIdle       = 7 * 24 * 60 // minutes
	minMemory     = 16 << 20    // bytes; a shell and a small program fit
	maxCallIDSize = 64          // characters
	maxQuote      = 64          // bytes of what was sent, in messages
)

// containerSpec checks the fields of a container and fills in defaults. Prefix
// is put before the names of fields in errors.
func (s *server) containerSpec(req rpc.ContainerCreate, prefix string) (sandbox.Spec, error) {
	spec := sandbox.Spec{
		Name: req.Name, Image: s.opts.Defaults.Image, IdleMinutes: s.opts.Defaults.IdleMinutes,
		MemoryLimit: s.opts.Defaults.MemoryLimit, Env: req.Env, Labels: req.Labels,
	}
	if len(req.Name) > maxName || strings.ContainsRune(req.Name, 0) {
		return spec, sandbox.Invalid(prefix+"name", "name must have at most %d bytes and no NUL", maxName)
	}
	if e := req.ExpiresAfter; e != nil {
		if e.Anchor != anchor {
			return spec, sandbox.Invalid(prefix+"expires_after.anchor", "expires_after.anchor must be %q", anchor)
		}
		if e.Minutes < 1 {
			return spec, sandbox.Invalid(prefix+"expires_after.minutes", "expires_after.minutes must be at least 1")
		}
		if e.Minutes > maxIdle {
			return spec, aboveCeiling(prefix+"expires_after.minutes", fmt.Sprintf("expires_after.minutes must be at most %d (7 days)", maxIdle))
		}
		spec.IdleMinutes = e.Minutes
	}
	if len(req.FileIDs) > 0 {
		return spec, unsupported(prefix+"file_ids", "files are not served yet; leave file_ids out")
	}
	if len(req.Skills) > 0 {
		return spec, unsupported(prefix+"skills", "skills are not served yet; leave skills out")
	}
	if req.MemoryLimit != nil {
		spec.MemoryLimit = *req.MemoryLimit
	}
	var ok bool
	if spec.MemoryBytes, ok = parseSize(spec.MemoryLimit); !ok || spec.MemoryBytes < minMemory {
		return spec, sandbox.Invalid(prefix+"memory_limit", `memory_limit must be a size of at least 16m, such as "256m" or "1g", not %q`, spec.MemoryLimit)
	}
	if req.Image != nil {
		spec.Image = *req.Image
	}
	if spec.Image != sandbox.ImageHost {
		return spec, unsupported(prefix+"image", fmt.Sprintf("image %q is not known; the one image is %q", spec.Image, sandbox.ImageHost))
	}
	if err := checkNetwork(req.NetworkPolicy, prefix); err != nil {
		return spec, err
	}
	if err := checkEnv(req.Env, prefix+"env"); err != nil {
		return spec, err
	}
	return spec, checkLabels(req.Labels, prefix+"labels")
}

// callSpec checks a whole shell call and fills in defaults.
func (s *server) callSpec(req rpc.ShellCallCreate) (sandbox.CallSpec, error) {
	d := s.opts.Defaults
	spec := sandbox.CallSpec{
		Timeout: d.Timeout, MaxOutput: d.MaxOutput, Env: req.Env, Dir: "/mnt/data",
		Background: req.Background != nil && *req.Background,
	}
	if req.Action == nil {
		return spec, missing("action", "action is required, with action.commands")
	}
	if err := checkCommands(req.Action.Commands); err != nil {
		return spec, err
	}
	spec.Commands = req.Action.Commands
	if ms := req.Action.TimeoutMS; ms != nil {
		if *ms < 1 {
			return spec, sandbox.Invalid("action.timeout_ms", "action.timeout_ms must be at least 1; leave it out for the default of %s", d.Timeout)
		}
		spec.Timeout = time.Duration(min(*ms, d.MaxTimeout.Milliseconds())) * time.Millisecond
	}
	if n := req.Action.MaxOutputLength; n != nil {
		if *n < 1 {
			return spec, sandbox.Invalid("action.max_output_length", "action.max_output_length must be at least 1; leave it out for the default of %d", d.MaxOutput)
		}
		spec.MaxOutput = int(min(*n, int64(d.OutputCeiling)))
	}
	if req.CallID != nil {
		if n := len([]rune(*req.CallID)); n < 1 || n > maxCallIDSize {
			return spec, sandbox.Invalid("call_id", "call_id must have 1 to %d characters", maxCallIDSize)
		}
		spec.CallID = *req.CallID
	} else {
		spec.CallID = strings.Replace(requestID(), "req_", "call_", 1)
	}
	if err := checkEnv(req.Env, "env"); err != nil {
		return spec, err
	}
	if dir := req.WorkingDirectory; dir != nil {
		if !strings.HasPrefix(*dir, "/") || len(*dir) > maxPath || strings.ContainsRune(*dir, 0) {
			return spec, sandbox.Invalid("working_directory", "working_directory must be an absolute path in the container, such as /mnt/data, not %q", clip(*dir))
		}
		spec.Dir = *dir
	}
	if req.Stdin != nil {
		switch *req.Stdin {
		case "none":
		case "stream":
			spec.Stdin = true
		default:
			return spec, sandbox.Invalid("stdin", `stdin must be "none" or "stream", not %q`, clip(*req.Stdin))
		}
	}
	if err := checkServed(req); err != nil {
		return spec, err
	}
	return spec, s.place(&spec, req.Environment)
}

// checkServed refuses what the API has and this release does not serve.
func checkServed(req rpc.ShellCallCreate) error {
	switch {
	case req.Stream != nil && *req.Stream:
		return unsupported("stream", "event streams are not served yet; leave stream out, and read the output with GET /v1/shell_calls/{call_id}/commands/{index}/stdout?follow=true")
	case req.KeepBackground != nil && !*req.KeepBackground:
		return unsupported("keep_background", "background processes always outlive their command; leave keep_background out")
	case len(req.Limits) > 0:
		return unsupported("limits", "limits of single commands are not served yet; leave limits out, and set memory_limit when creating the container")
	default:
		return checkNetwork(req.NetworkPolicy, "")
	}
}

// place reads where a call is to run.
func (s *server) place(spec *sandbox.CallSpec, env *rpc.Environment) error {
	if env == nil {
		env = &rpc.Environment{Type: "container_auto"}
	}
	switch env.Type {
	case "container_reference":
		if env.ContainerID == "" {
			return missing("environment.container_id", "environment.container_id is required with container_reference")
		}
		if extra := env.ContainerCreate; env.DeleteAfter || extra.Name != "" || extra.ExpiresAfter != nil || len(extra.FileIDs) > 0 ||
			extra.MemoryLimit != nil || extra.NetworkPolicy != nil || len(extra.Skills) > 0 || extra.Image != nil || extra.Env != nil || extra.Labels != nil {
			return sandbox.Invalid("environment", "with container_reference the environment has container_id only; the container keeps what it was created with")
		}
		spec.ContainerID = sandbox.ID(env.ContainerID)
		return nil
	case "container_auto", "local":
		if env.ContainerID != "" {
			return sandbox.Invalid("environment.container_id", "environment.container_id needs type container_reference")
		}
		auto, err := s.containerSpec(env.ContainerCreate, "environment.")
		spec.Auto, spec.DeleteAfter = &auto, env.DeleteAfter
		return err
	case "":
		return missing("environment.type", `environment.type is required: "container_auto" or "container_reference"`)
	default:
		return sandbox.Invalid("environment.type", `environment.type must be "container_auto", "container_reference" or "local", not %q`, clip(env.Type))
	}
}

func checkCommands(commands []string) error {
	if len(commands) == 0 {
		return missing("action.commands", "action.commands must have at least one command")
	}
	if len(commands) > maxCommands {
		return sandbox.Invalid("action.commands", "action.commands has %d commands; at most %d run together", len(commands), maxCommands)
	}
	for i, text := range commands {
		param := fmt.Sprintf("action.commands[%d]", i)
		switch {
		case text == "":
			return sandbox.Invalid(param, "%s is empty", param)
		case len(text) > maxCommand:
			return &sandbox.Error{
				Class: sandbox.ErrTooLarge, Code: sandbox.CodeTooLarge, Param: param,
				Message: fmt.Sprintf("%s has %d bytes; a command may have %d (1 MiB); put the rest into a file", param, len(text), maxCommand),
			}
		case strings.ContainsRune(text, 0):
			return sandbox.Invalid(param, "%s contains a NUL character, which no shell can take", param)
		}
	}
	return nil
}

func checkEnv(env map[string]string, param string) error {
	if len(env) > maxEnvCount {
		return sandbox.Invalid(param, "%s has %d entries; at most %d are taken", param, len(env), maxEnvCount)
	}
	total := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		size := len(name) + len("=") + len(env[name])
		total += size
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			return sandbox.Invalid(param, "%s has the name %q; a name is not empty and has no = and no NUL", param, clip(name))
		case strings.ContainsRune(env[name], 0):
			return sandbox.Invalid(param+"."+clip(name), "%s.%s contains a NUL character", param, clip(name))
		case size > maxEnvEntry:
			return sandbox.Invalid(param+"."+clip(name), "%s.%s has %d bytes with its name; an entry may have %d", param, clip(name), size, maxEnvEntry)
		}
	}
	if total > maxEnv {
		return sandbox.Invalid(param, "%s has %d bytes in all; at most %d are taken", param, total, maxEnv)
	}
	return nil
}

func checkLabels(labels map[string]string, param string) error {
	if len(labels) > maxLabels {
		return sandbox.Invalid(param, "%s has %d entries; at most %d are kept", param, len(labels), maxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if name == "" {
			return sandbox.Invalid(param, "%s has a label without a name", param)
		}
		if len(name)+len(labels[name]) > maxLabel {
			return sandbox.Invalid(param+"."+clip(name), "a label has a name and at most %d bytes", maxLabel)
		}
	}
	return nil
}

func checkNetwork(policy *rpc.NetworkPolicy, prefix string) error {
	param := prefix + "network_policy"
	switch {
	case policy == nil || policy.Type == policyDisabled:
		return nil
	case policy.Type == "allowlist":
		return unsupported(param, `allowlists are not served yet; use {"type":"disabled"} or leave network_policy out`)
	default:
		return sandbox.Invalid(param+".type", `network_policy.type must be "disabled" or "allowlist", not %q`, clip(policy.Type))
	}
}

// parseSize reads a size: digits and one of k, m, g, t, in powers of 1024.
func parseSize(text string) (bytes int64, ok bool) {
	shift := 0
	if n := len(text); n > 0 {
		if i := strings.IndexByte("kmgt", text[n-1]|0x20); i >= 0 {
			shift, text = 10*(i+1), text[:n-1]
		}
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || n<<shift>>shift != n || int64(n<<shift) < 0 {
		return 0, false
	}
	return int64(n << shift), true
}

// clip shortens what a caller has sent for use in a message.
func clip(s string) string { return clipTo(s, maxQuote) }

func clipTo(s string, size int) string {
	if len(s) > size {
		return strings.ToValidUTF8(s[:size], "") + "…"
	}
	return s
}

func missing(param, message string) error {
	return &sandbox.Error{Class: sandbox.ErrInvalid, Code: sandbox.CodeMissingField, Param: param, Message: message}
}

func unsupported(param, message string) error {
	return &sandbox.Error{Class: sandbox.ErrInvalid, Code: sandbox.CodeUnsupported, Param: param, Message: message}
}

func aboveCeiling(param, message string) error {
	return &sandbox.Error{Class: sandbox.ErrInvalid, Code: sandbox.CodeAboveCeiling, Param: param, Message: message}
}
