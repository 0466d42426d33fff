package runner

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	bash = "/bin/bash"
	sh   = "/bin/sh"

	// commandUID and commandGID are what every command runs as: the user
	// "sandbox" of each image.
	commandUID, commandGID = 1000, 1000

	// maxArgument is the longest text passed as one argument. Unit: bytes. The
	// kernel takes 128 KiB (MAX_ARG_STRLEN); this leaves room for the wrapper.
	maxArgument = 100 << 10
)

// argv returns the arguments that make the shell run text. A text that is too
// long for one argument is passed in pieces, which eval puts together; $0 and
// the positional parameters are as for a short one.
func argv(shell, text string) []string {
	if len(text) <= maxArgument {
		return []string{shell, "-c", "--", text} // the text may begin with a dash
	}
	args := []string{shell, "-c", "", shell}
	var script strings.Builder
	script.WriteString(`eval "set --;`)
	for i := 1; text != ""; i++ {
		n := min(maxArgument, len(text))
		args, text = append(args, text[:n]), text[n:]
		script.WriteString("${" + strconv.Itoa(i) + "}")
	}
	script.WriteString(`"`)
	args[2] = script.String()
	return args
}

// environ returns the environment of a command: a fixed one, on top of it the
// container's and on top of that the call's. Nothing of shelld's own comes in.
func environ(shell string, container, call map[string]string) []string {
	env := map[string]string{
		"HOME":    "/home/sandbox",
		"LANG":    "C.UTF-8",
		"LOGNAME": "sandbox",
		"PATH":    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"SHELL":   shell,
		"USER":    "sandbox",
	}
	maps.Copy(env, container)
	maps.Copy(env, call)
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
