package output

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// scanPiece is how much is read at once to count characters. Unit: bytes; it
// fits into a second-level cache.
const scanPiece = 128 << 10

// A view is what a spool holds at one moment. Bytes that the ring may lose
// later are copied, so at most the ring is in memory.
type view struct {
	head io.ReaderAt // valid below meta.Head, where nothing ever changes
	ring []byte      // the bytes from meta.Tail to meta.Produced
	meta Meta
}

// view takes the view of now.
func (s *Spool) view() (*view, error) {
	v := &view{head: s, meta: s.Meta()}
	size := v.meta.Produced - v.meta.Tail
	// Backwards, because the writer of a live stream comes from the front.
	buf := make([]byte, size)
	for to := size; to > 0; {
		from := max(0, to-scanPiece)
		_, err := s.ReadAt(buf[from:to], v.meta.Tail+from)
		if errors.Is(err, ErrGap) {
			buf = buf[to:]
			v.meta.Tail += to
			break
		}
		if err != nil {
			return nil, err
		}
		to = from
	}
	v.ring = buf
	return v, nil
}

// ReadAt reads bytes that are there; p must not reach into the gap or beyond
// the end.
func (v *view) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if off < v.meta.Head {
		n = int(min(int64(len(p)), v.meta.Head-off))
		if _, err := v.head.ReadAt(p[:n], off); err != nil {
			return 0, err
		}
	}
	if n < len(p) {
		n += copy(p[n:], v.ring[off+int64(n)-v.meta.Tail:])
	}
	return n, nil
}

// A section is a range of a view without a gap in it.
type section struct {
	view     *view
	from, to int64
	chars    int64  // how many characters it decodes to
	data     []byte // all of it, if it is small
}

func (v *view) section(from, to int64) (section, error) {
	s := section{view: v, from: from, to: to}
	err := s.count()
	return s, err
}

// sections returns the stored parts: before the gap and behind it. Without a
// gap the second is empty, so that a character across the border is whole.
func (v *view) sections() (before, behind section, err error) {
	if v.meta.Lost() == 0 {
		before, err = v.section(0, v.meta.Produced)
		return before, section{view: v}, err
	}
	if before, err = v.section(0, v.meta.Head); err == nil {
		behind, err = v.section(v.meta.Tail, v.meta.Produced)
	}
	return before, behind, err
}

// count sets chars, and data if one piece holds the section.
func (s *section) count() error {
	buf := make([]byte, min(scanPiece, s.to-s.from))
	carry := 0 // bytes of a character that the last piece has begun
	for off := s.from; off < s.to; {
		n := int(min(int64(len(buf)-carry), s.to-off))
		if _, err := s.view.ReadAt(buf[carry:carry+n], off); err != nil {
			return fmt.Errorf("count characters: %w", err)
		}
		off += int64(n)
		piece := buf[:carry+n]
		whole := len(piece)
		if off < s.to {
			whole = wholePrefix(piece)
		}
		s.chars += countChars(piece[:whole])
		if len(buf) == int(s.to-s.from) {
			s.data = buf
			return nil
		}
		carry = copy(buf, piece[whole:])
	}
	return nil
}

// first returns the first n characters as text; n is at most chars.
func (s *section) first(n int64) (string, error) {
	p, err := s.read(s.from, min(s.to, s.from+n*utf8.UTFMax))
	if err != nil {
		return "", err
	}
	end := 0
	for ; n > 0 && end < len(p); n-- {
		_, size := utf8.DecodeRune(p[end:])
		end += size
	}
	return decode(p[:end]), nil
}

// last returns the last n characters as text; n is at most chars.
func (s *section) last(n int64) (string, error) {
	if n == 0 {
		return "", nil
	}
	// The most that n characters may take. If that begins inside a character,
	// the rest of it decodes to invalid bytes, which are skipped: behind them
	// are 4n-3 bytes or more, so n characters or more.
	p, err := s.read(max(s.from, s.to-n*utf8.UTFMax), s.to)
	if err != nil {
		return "", err
	}
	for skip := countChars(p) - n; skip > 0; skip-- {
		_, size := utf8.DecodeRune(p)
		p = p[size:]
	}
	return decode(p), nil
}

func (s *section) read(from, to int64) ([]byte, error) {
	if s.data != nil {
		return s.data[from-s.from : to-s.from], nil
	}
	p := make([]byte, to-from)
	if _, err := s.view.ReadAt(p, from); err != nil {
		return nil, fmt.Errorf("read output: %w", err)
	}
	return p, nil
}

// wholePrefix returns the length of p without a character that is begun but
// not finished at its end.
func wholePrefix(p []byte) int {
	for i := len(p) - 1; i >= 0 && i > len(p)-utf8.UTFMax; i-- {
		if utf8.RuneStart(p[i]) {
			if utf8.FullRune(p[i:]) {
				break
			}
			return i
		}
	}
	return len(p)
}

// countChars returns how many characters p decodes to, each invalid byte being
// one. It is [utf8.RuneCount], but goes over plain ASCII in large steps.
func countChars(p []byte) (n int64) {
	const high = 0x8080808080808080
	for len(p) > 0 {
		skip := 0
		for len(p)-skip >= 32 {
			q := p[skip : skip+32]
			if (binary.NativeEndian.Uint64(q)|binary.NativeEndian.Uint64(q[8:])|
				binary.NativeEndian.Uint64(q[16:])|binary.NativeEndian.Uint64(q[24:]))&high != 0 {
				break
			}
			skip += 32
		}
		n += int64(skip)
		p = p[skip:]
		// What is not plain, or the rest; a little more of it at once.
		for end := min(len(p), 64); end > 0; n++ {
			_, size := utf8.DecodeRune(p)
			p = p[size:]
			end -= size
		}
	}
	return n
}

// decode returns p as valid text, with one U+FFFD for each invalid byte.
func decode(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	var b strings.Builder
	b.Grow(len(p) + len(p)/2)
	for len(p) > 0 {
		r, size := utf8.DecodeRune(p)
		b.WriteRune(r)
		p = p[size:]
	}
	return b.String()
}
