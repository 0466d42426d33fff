package config

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// Dump returns the configuration as a file that [Load] accepts, each value
// with a comment that says where it comes from.
func Dump(c *Config) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "version = %d\n", version)
	section := ""
	for _, k := range c.keys() {
		if k.section() != section {
			section = k.section()
			fmt.Fprintf(&b, "\n[%s]\n", section)
		}
		fmt.Fprintf(&b, "%s = %s # %s\n", k.base(), k.render(), comment(c.Origin(k.name)))
	}
	return b.Bytes()
}

// DefaultFile returns a file that explains every key and sets none, to begin
// from.
func DefaultFile() []byte {
	var b bytes.Buffer
	b.WriteString("# Configuration of shelld. The values shown are the built-in ones; remove the\n" +
		"# \"#\" before a key to change it. `shelld config check` checks the file,\n" +
		"# `shelld config dump` shows what applies and why. Sizes have units k, m, g;\n" +
		"# durations ms, s, m, h. What /etc/shelld/config.toml sets for a key marked\n" +
		"# (ceiling), the user's own file cannot go beyond.\n")
	fmt.Fprintf(&b, "version = %d\n", version)
	section := ""
	for _, k := range Default().keys() {
		if k.section() != section {
			section = k.section()
			fmt.Fprintf(&b, "\n[%s]\n", section)
		} else {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "# %s\n", strings.ReplaceAll(k.doc, "\n", "\n# "))
		if k.ceiling {
			b.WriteString("# (ceiling)\n")
		}
		fmt.Fprintf(&b, "#%s = %s\n", k.base(), k.render())
	}
	return b.Bytes()
}

// render returns the value as TOML.
func (k key) render() string {
	switch field := k.field.(type) {
	case *time.Duration:
		return `"` + formatDuration(*field) + `"`
	case *Size:
		return `"` + field.String() + `"`
	default:
		text, err := toml.Marshal(map[string]any{"k": k.field})
		if err != nil { // no kind of field that the table has
			return fmt.Sprintf("%q", err)
		}
		return strings.TrimSpace(strings.TrimPrefix(string(text), "k = "))
	}
}

// comment makes text fit for a comment: a path may hold anything but NUL.
func comment(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return '?'
		}
		return r
	}, text)
}
