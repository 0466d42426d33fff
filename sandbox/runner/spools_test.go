package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/output"
)

func openSpools(t *testing.T, dir string, head, total int64) *Spools {
	t.Helper()
	s, err := OpenSpools(dir, head, total)
	if err != nil {
		t.Fatalf("open spools: %v", err)
	}
	return s
}

// fill stores what a command wrote and returns what the record keeps of it.
func fill(t *testing.T, s *Spools, call sandbox.CallID, index int, stream sandbox.Stream, text string) json.RawMessage {
	t.Helper()
	spool := s.create(call, index, stream)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error)
	go func() {
		_, err := w.WriteString(text)
		written <- errors.Join(err, w.Close())
	}()
	if err := errors.Join(spool.Consume(t.Context(), r), <-written, r.Close(), spool.Err()); err != nil {
		t.Fatalf("store: %v", err)
	}
	meta := encodeMeta(spool)
	if err := spool.Close(); err != nil {
		t.Fatal(err)
	}
	return meta
}

// read reads a stored stream.
func read(t *testing.T, s *Spools, call sandbox.CallID, index int, stream sandbox.Stream, meta json.RawMessage, from, to int64, follow bool) (string, sandbox.Output) {
	t.Helper()
	out, err := s.Open(call, index, stream, meta)
	if err != nil {
		t.Fatalf("open stream: %v", err)
	}
	defer out.Close() // it is only read
	var text bytes.Buffer
	if err := out.Read(t.Context(), &text, from, to, follow); err != nil {
		t.Errorf("read stream: %v", err)
	}
	return text.String(), out
}

func TestSpools(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "spool")
	s := openSpools(t, dir, 1<<20, 10<<20)
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made before anything is kept")
	}
	call := sandbox.NewCallID()
	metas := map[string]json.RawMessage{}
	for index := range 2 {
		for _, stream := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
			name := fmt.Sprint(index, stream)
			metas[name] = fill(t, s, call, index, stream, name)
		}
	}
	for _, again := range []*Spools{s, openSpools(t, dir, 1<<20, 10<<20)} { // also after a restart
		for index := range 2 {
			for _, stream := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
				name := fmt.Sprint(index, stream)
				if got, _ := read(t, again, call, index, stream, metas[name], 0, -1, false); got != name {
					t.Errorf("stream %s has %q", name, got)
				}
			}
		}
	}
	for _, part := range []struct {
		from, to int64
		follow   bool
		want     string
	}{{2, 4, false, "td"}, {1, -1, true, "stdout"}, {7, -1, false, ""}, {0, 0, false, ""}} {
		if got, _ := read(t, s, call, 0, sandbox.Stdout, metas["0stdout"], part.from, part.to, part.follow); got != part.want {
			t.Errorf("%+v: %q", part, got)
		}
	}
}

func TestEmptyStream(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openSpools(t, dir, 1<<20, 1<<20)
	call := sandbox.NewCallID()
	meta := fill(t, s, call, 0, sandbox.Stdout, "")
	if meta != nil {
		t.Errorf("an empty stream is kept as %s", meta)
	}
	got, out := read(t, s, call, 0, sandbox.Stdout, meta, 0, -1, true)
	if got != "" || out.Produced() != 0 {
		t.Errorf("an empty stream has %q, %d bytes", got, out.Produced())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("an empty stream has files: %v, %v", entries, err)
	}
}

// What a command wrote that was lost with its daemon is served from the file.
func TestLostStream(t *testing.T) {
	t.Parallel()
	s, call := openSpools(t, t.TempDir(), 1<<20, 1<<20), sandbox.NewCallID()
	fill(t, s, call, 0, sandbox.Stdout, "written before the end\n")
	got, out := read(t, s, call, 0, sandbox.Stdout, nil, 0, -1, true)
	if want := "written before the end\n"; got != want || out.Produced() != int64(len(want)) {
		t.Errorf("got %q, %d bytes, want %q", got, out.Produced(), want)
	}
}

func TestMissingStream(t *testing.T) {
	t.Parallel()
	s := openSpools(t, t.TempDir(), 1<<20, 1<<20)
	call := sandbox.NewCallID()
	meta := fill(t, s, call, 0, sandbox.Stdout, "x")
	if err := s.Remove(call); err != nil {
		t.Fatal(err)
	}
	_, err := s.Open(call, 0, sandbox.Stdout, meta)
	if e, ok := errors.AsType[*sandbox.Error](err); !ok || e.Code != sandbox.CodeNotFound || !errors.Is(err, sandbox.ErrNotFound) {
		t.Errorf("open of what is gone: %v", err)
	}
	if _, err := s.Open(call, 0, sandbox.Stdout, json.RawMessage(`"nonsense"`)); err == nil {
		t.Error("opened with a description that is none")
	}
	if err := s.Remove(call); err != nil {
		t.Errorf("remove again: %v", err)
	}
	if err := s.Remove(sandbox.NewCallID()); err != nil {
		t.Errorf("remove of a call without output: %v", err)
	}
}

// used is what all calls have taken.
func used(s *Spools) (sum int64) {
	for _, n := range s.ledger.taken {
		sum += n
	}
	return sum
}

func TestQuota(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const head, total = 64 << 10, 100 << 10
	s := openSpools(t, dir, head, total)
	calls := []sandbox.CallID{sandbox.NewCallID(), sandbox.NewCallID(), sandbox.NewCallID()}
	text := strings.Repeat("0123456789abcdef", 4<<10) // as large as a head
	metas := make([]json.RawMessage, len(calls))
	for i, call := range calls {
		metas[i] = fill(t, s, call, 0, sandbox.Stdout, text)
	}
	if used := used(s); used > total {
		t.Errorf("%d bytes of quota are used, of %d", used, total)
	}
	if got, _ := read(t, s, calls[0], 0, sandbox.Stdout, metas[0], 0, -1, false); got != text {
		t.Errorf("the first stream has %d bytes, want it whole", len(got))
	}
	again := openSpools(t, dir, head, total)
	if got, least := used(again), used(s); got < least {
		t.Errorf("after a restart %d bytes are counted, before %d", got, least)
	}
	for _, call := range calls {
		if err := errors.Join(s.Remove(call), again.Remove(call)); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	for _, s := range []*Spools{s, again} {
		if len(s.ledger.taken) != 0 || !s.ledger.quota.Reserve(total) {
			t.Errorf("bytes are counted when nothing is left: %v", s.ledger.taken)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestGap(t *testing.T) {
	t.Parallel()
	s := openSpools(t, t.TempDir(), 1000, 1<<20)
	call := sandbox.NewCallID()
	size := int64(output.DefaultRing + 100_000)
	text := strings.Repeat("0123456789", int(size/10))
	size = int64(len(text))
	meta := fill(t, s, call, 0, sandbox.Stdout, text)
	got, out := read(t, s, call, 0, sandbox.Stdout, meta, 0, -1, false)
	from, to := out.Gap()
	if from != 1000 || to <= from || out.Produced() != size || int64(len(got)) != size-(to-from) || got != text[:from]+text[to:] {
		t.Errorf("%d of %d bytes kept, gap %d to %d", len(got), out.Produced(), from, to)
	}
}

// The output of unknown calls goes, and nothing else.
func TestPrune(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openSpools(t, dir, 100, 1000)
	known, unknown := sandbox.NewCallID(), sandbox.NewCallID()
	meta := fill(t, s, known, 0, sandbox.Stdout, "kept")
	fill(t, s, unknown, 0, sandbox.Stdout, "not kept")
	if err := os.Mkdir(filepath.Join(dir, "of somebody else"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Prune(func(call sandbox.CallID) bool { return call == known }); err != nil {
		t.Errorf("prune: %v", err)
	}
	folders, err := os.ReadDir(dir)
	if err != nil || len(folders) != 2 {
		t.Errorf("%d folders, %v; want that of the known call and the other's", len(folders), err)
	}
	if text, _ := read(t, s, known, 0, sandbox.Stdout, meta, 0, -1, false); text != "kept" {
		t.Errorf("output of the known call: %q", text)
	}
	if err := openSpools(t, filepath.Join(dir, "none"), 1, 1).Prune(nil); err != nil {
		t.Errorf("prune without a folder: %v", err)
	}
}
