package output

import "fmt"

// Text is one stream as a result shows it.
type Text struct {
	// Text is valid UTF-8. NUL and control characters are kept.
	Text string
	// Truncated says that characters are missing: by the limit, or because
	// the spool has lost them.
	Truncated bool
	// CutChars is how many are missing, the number in the marker. Bytes that
	// the spool has lost count as one character each.
	CutChars int64
	// Chars is how many characters the stream has, lost ones included.
	Chars int64
	// Bytes is how many bytes the stream had when it was cut.
	Bytes int64
	// LostBytes is how many of them are not in the spool any more.
	LostBytes int64
}

// Result is the output of one command as its result shows it.
type Result struct {
	Stdout, Stderr Text
}

// Cut returns the text of both streams, limited to limit characters together.
// A character is a Unicode code point after decoding, which makes one U+FFFD of
// each invalid byte. While the sum fits nothing is cut. Else stdout may keep
// ceil(limit/2) and stderr floor(limit/2), and each what the other leaves. Of a
// cut stream the head keeps ceil and the tail floor of its share, and between
// them stands " ... N chars truncated ... ", which is not counted. A stream
// with a gap is always cut, there at least.
//
// The streams may still grow; what they hold at the moment of the call is cut,
// and Bytes says how much that was. The error is one of reading a file.
func Cut(stdout, stderr *Spool, limit int) (Result, error) {
	out, err := measure(stdout)
	if err != nil {
		return Result{}, fmt.Errorf("cut stdout: %w", err)
	}
	errOut, err := measure(stderr)
	if err != nil {
		return Result{}, fmt.Errorf("cut stderr: %w", err)
	}
	total := int64(max(limit, 0))
	outShare := max(total-total/2, total-errOut.chars())
	errShare := max(total/2, total-out.chars())
	var r Result
	if r.Stdout, err = out.text(outShare); err != nil {
		return Result{}, fmt.Errorf("cut stdout: %w", err)
	}
	if r.Stderr, err = errOut.text(errShare); err != nil {
		return Result{}, fmt.Errorf("cut stderr: %w", err)
	}
	return r, nil
}

// measured is a view with its characters counted.
type measured struct {
	meta           Meta
	before, behind section
}

func measure(s *Spool) (*measured, error) {
	v, err := s.view()
	if err != nil {
		return nil, err
	}
	m := &measured{meta: v.meta}
	m.before, m.behind, err = v.sections()
	return m, err
}

func (m *measured) chars() int64 {
	return m.before.chars + m.meta.Lost() + m.behind.chars
}

// text returns the stream cut to share characters.
func (m *measured) text(share int64) (Text, error) {
	t := Text{Chars: m.chars(), Bytes: m.meta.Produced, LostBytes: m.meta.Lost()}
	head, tail := m.before, m.behind
	headChars, tailChars := share-share/2, share/2
	if m.meta.Lost() == 0 {
		if t.Chars <= share {
			var err error
			t.Text, err = head.first(t.Chars)
			return t, err
		}
		tail = head
	} else if t.Chars <= share {
		headChars, tailChars = head.chars, tail.chars
	}
	headChars, tailChars = min(headChars, head.chars), min(tailChars, tail.chars)
	first, err := head.first(headChars)
	if err != nil {
		return Text{}, err
	}
	last, err := tail.last(tailChars)
	if err != nil {
		return Text{}, err
	}
	t.Truncated = true
	t.CutChars = t.Chars - headChars - tailChars
	t.Text = fmt.Sprintf("%s ... %d chars truncated ... %s", first, t.CutChars, last)
	return t, nil
}
