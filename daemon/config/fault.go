package config

import (
	"fmt"
	"strings"
)

// Fault is one thing that is wrong with the configuration.
type Fault struct {
	// File is the path of the file at fault; empty when the value comes from
	// none.
	File string
	// Line counts from 1; 0 when the fault is not at one line.
	Line int
	// Key is the path of the key, such as "limits.timeout"; empty when the
	// fault is the file itself.
	Key string
	// Message says what is wrong and what to do; it continues "KEY ".
	Message string
}

// String returns "FILE:LINE: KEY MESSAGE", without the parts that are unknown.
func (f Fault) String() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File)
		if f.Line > 0 {
			fmt.Fprintf(&b, ":%d", f.Line)
		}
		b.WriteString(": ")
	}
	if f.Key != "" {
		b.WriteString(f.Key + " ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// Error holds every fault that was found; never none.
type Error struct{ Faults []Fault }

// Error returns the faults, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}
