package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// table writes aligned columns. What came from elsewhere cannot break it.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, head ...string) *table {
	t := &table{w: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	// The writer keeps its first error for flush.
	_, _ = io.WriteString(t.w, strings.Join(cells, "\t")+"\n")
}

func (t *table) flush() error { return t.w.Flush() }

// ago is how long a time is past, coarse: "12s ago".
func (p *program) ago(unix int64) string {
	return coarse(max(0, p.now().Sub(time.Unix(unix, 0)))) + " ago"
}

// coarse is a duration in its largest unit.
func coarse(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	default:
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
}

// size is a count of bytes in binary units: "1.5 GiB".
func size(bytes int64) string {
	if bytes < 1024 {
		return strconv.FormatInt(bytes, 10) + " B"
	}
	value, unit := float64(bytes)/1024, 0
	for value >= 1024 && unit < 3 {
		value, unit = value/1024, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + " " + []string{"KiB", "MiB", "GiB", "TiB"}[unit]
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// join is "a: b", or a alone.
func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + ": " + b
}
