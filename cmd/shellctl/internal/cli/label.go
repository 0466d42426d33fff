package cli

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// maxLine is how much of a line is held back for its end before it is broken.
// Unit: bytes.
const maxLine = 64 << 10

// labelled writes the lines of one stream with a label, whole, so that the
// lines of streams that share a destination stay apart.
type labelled struct {
	label string
	to    io.Writer
	// shared is held while writing; all streams of a destination share one.
	shared *sync.Mutex
	part   []byte
}

func label(command int) string { return "[" + strconv.Itoa(command+1) + "] " }

// Write passes on the lines that p completes.
func (l *labelled) Write(p []byte) (int, error) {
	var out []byte
	for rest := p; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n') + 1
		if end == 0 {
			end = len(rest)
		}
		if room := maxLine - len(l.part); end > room {
			end = room
		}
		l.part = append(l.part, rest[:end]...)
		rest = rest[end:]
		if l.part[len(l.part)-1] == '\n' || len(l.part) >= maxLine {
			out = l.take(out)
		}
	}
	return len(p), l.write(out)
}

// take appends the held line to out and holds none.
func (l *labelled) take(out []byte) []byte {
	out = append(out, l.label...)
	out = append(out, l.part...)
	if l.part[len(l.part)-1] != '\n' {
		out = append(out, '\n')
	}
	l.part = l.part[:0]
	return out
}

// flush writes a last line that has no end, and ends it.
func (l *labelled) flush() error {
	if len(l.part) == 0 {
		return nil
	}
	return l.write(l.take(nil))
}

func (l *labelled) write(out []byte) error {
	if len(out) == 0 {
		return nil
	}
	l.shared.Lock()
	defer l.shared.Unlock()
	_, err := l.to.Write(out)
	return err
}
