package output

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// put returns a finished spool that holds data, without the pipe.
func put(tb testing.TB, dir string, head, ring int64, data []byte) *Spool {
	tb.Helper()
	meta := Meta{Produced: int64(len(data)), Ring: ring, Complete: true}
	meta.Head = min(head, meta.Produced)
	meta.Tail = max(meta.Head, meta.Produced-ring)
	file := append([]byte(nil), data[:meta.Head]...)
	file = append(file, make([]byte, min(ring, meta.Produced-meta.Head))...)
	for off := meta.Tail; off < meta.Produced; off++ {
		file[meta.Head+(off-meta.Head)%ring] = data[off]
	}
	path := filepath.Join(dir, fmt.Sprint(rand.Uint64()))
	if err := os.WriteFile(path, file, 0o600); err != nil {
		tb.Fatal(err)
	}
	s, err := Open(path, meta, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// model is the rule of the cut, written down as simply as possible.
func model(out, errOut [2][]byte, lostOut, lostErr int64, limit int) Result {
	outChars, errChars := chars(out, lostOut), chars(errOut, lostErr)
	outShare, errShare := (limit+1)/2, limit/2
	switch {
	case outChars+errChars <= limit:
		outShare, errShare = outChars, errChars
	case outChars < outShare:
		errShare = limit - outChars
	case errChars < errShare:
		outShare = limit - errChars
	}
	return Result{Stdout: modelText(out, lostOut, outShare), Stderr: modelText(errOut, lostErr, errShare)}
}

func chars(parts [2][]byte, lost int64) int {
	return len([]rune(string(parts[0]))) + len([]rune(string(parts[1]))) + int(lost)
}

func modelText(parts [2][]byte, lost int64, share int) Text {
	head, tail := []rune(string(parts[0])), []rune(string(parts[1]))
	total := chars(parts, lost)
	t := Text{Chars: int64(total), LostBytes: lost, Bytes: int64(len(parts[0])+len(parts[1])) + lost}
	if lost == 0 {
		head = []rune(string(parts[0]) + string(parts[1]))
		t.Chars = int64(len(head))
		if len(head) <= share {
			t.Text = string(head)
			return t
		}
		tail = head
	}
	if total > share {
		head = head[:min(len(head), (share+1)/2)]
		tail = tail[len(tail)-min(len(tail), share/2):]
	}
	t.Truncated = true
	t.CutChars = t.Chars - int64(len(head)+len(tail))
	t.Text = string(head) + fmt.Sprintf(" ... %d chars truncated ... ", t.CutChars) + string(tail)
	return t
}

// checkCut compares Cut with the model for two streams in small spools.
func checkCut(tb testing.TB, dir string, out, errOut []byte, head, ring int64, limit int) {
	tb.Helper()
	s, e := put(tb, dir, head, ring, out), put(tb, dir, head, ring, errOut)
	defer func() { _, _, _, _ = s.Close(), e.Close(), os.Remove(s.path), os.Remove(e.path) }()
	got, err := Cut(s, e, limit)
	if err != nil {
		tb.Fatal(err)
	}
	split := func(data []byte, m Meta) [2][]byte {
		if m.Lost() == 0 {
			return [2][]byte{data, nil}
		}
		return [2][]byte{data[:m.Head], data[m.Tail:]}
	}
	want := model(split(out, s.Meta()), split(errOut, e.Meta()), s.Meta().Lost(), e.Meta().Lost(), limit)
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Fatalf("head %d, ring %d, limit %d, stdout %q, stderr %q (-want +got):\n%s", head, ring, limit, out, errOut, diff)
	}
	if !utf8.ValidString(got.Stdout.Text) || !utf8.ValidString(got.Stderr.Text) {
		tb.Fatal("text is not valid UTF-8")
	}
}

func TestCutExamples(t *testing.T) {
	t.Parallel()
	digits := "0123456789"
	tests := []struct {
		name, out, err   string
		limit            int
		wantOut, wantErr string
	}{
		{"fits exactly", digits, "", 10, digits, ""},
		{"fits with room", digits, "", 11, digits, ""},
		{"one too many", digits, "", 9, "01234 ... 1 chars truncated ... 6789", ""},
		{"one character", digits, "", 1, "0 ... 9 chars truncated ... ", ""},
		{"stderr leaves room", digits, "ab", 8, "012 ... 4 chars truncated ... 789", "ab"},
		{"stdout leaves room", "ab", digits, 8, "ab", "012 ... 4 chars truncated ... 789"},
		{"halves", digits, digits, 9, "012 ... 5 chars truncated ... 89", "01 ... 6 chars truncated ... 89"},
		{"sum fits", digits, digits, 20, digits, digits},
		{"stderr gets nothing of one", digits, digits, 1, "0 ... 9 chars truncated ... ", " ... 10 chars truncated ... "},
		{"wide characters", "aé日本🙂aé日本🙂", "", 5, "aé日 ... 5 chars truncated ... 本🙂", ""},
		{"control characters stay", "\x00\x1b[1m", "", 10, "\x00\x1b[1m", ""},
		{"invalid bytes", "a\xff\xfeb\xe3\x81", "", 10, "a\ufffd\ufffdb\ufffd\ufffd", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, e := newSpool(t, Options{}), newSpool(t, Options{})
			fill(t, s, []byte(tt.out))
			fill(t, e, []byte(tt.err))
			r, err := Cut(s, e, tt.limit)
			if err != nil {
				t.Fatal(err)
			}
			if r.Stdout.Text != tt.wantOut || r.Stderr.Text != tt.wantErr {
				t.Errorf("got %q and %q, want %q and %q", r.Stdout.Text, r.Stderr.Text, tt.wantOut, tt.wantErr)
			}
		})
	}
}

// The text of case C06 with every limit: cut between code points, always valid.
func TestCutNeverSplits(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("aé日本🙂", 40))
	dir := t.TempDir()
	for limit := range 210 {
		checkCut(t, dir, text, nil, 1<<20, 64, limit)
		checkCut(t, dir, text, text[3:], 101, 1<<20, limit)
		checkCut(t, dir, text[1:], text, 50, 37, limit)
	}
}

func TestCutRandom(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for seed := range uint64(3000) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		checkCut(t, dir, randomBytes(rnd, rnd.IntN(200)), randomBytes(rnd, rnd.IntN(100)),
			rnd.Int64N(80), rnd.Int64N(80)+1, rnd.IntN(150))
	}
	// Larger than a piece of the count, so that characters cross its borders.
	for seed := range uint64(12) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		checkCut(t, dir, randomBytes(rnd, 3*scanPiece+rnd.IntN(1000)), randomBytes(rnd, scanPiece+rnd.IntN(9)-4),
			rnd.Int64N(4*scanPiece), rnd.Int64N(scanPiece)+1, rnd.IntN(2*scanPiece))
	}
}

func TestCountChars(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		p := randomBytes(rnd, rnd.IntN(600))
		if got, want := countChars(p), int64(utf8.RuneCount(p)); got != want {
			t.Fatalf("%q: got %d, want %d", p, got, want)
		}
	}
}

func FuzzCut(f *testing.F) {
	f.Add([]byte("0123456789"), []byte("e"), uint16(4), uint16(3), uint16(9))
	f.Add([]byte("aé日本🙂\xff\x80\xe3\x81"), []byte("\xf0\x9f"), uint16(7), uint16(1), uint16(3))
	f.Add([]byte("\x80\x80\x80\x80\x80"), []byte("\xf0\x9f\x99\x82\x82"), uint16(0), uint16(9), uint16(2))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, out, errOut []byte, head, ring, limit uint16) {
		checkCut(t, dir, out, errOut, int64(head), int64(ring)+1, int(limit))
	})
}
