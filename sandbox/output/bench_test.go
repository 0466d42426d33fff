package output

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// BenchmarkGigabyte compares storing and cutting 1 GiB with `| cat` of it, in
// turns. The ratio of the medians is the metric x-cat.
func BenchmarkGigabyte(b *testing.B) {
	const limit = 4096
	var cat, spool []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := exec.CommandContext(b.Context(), "sh", "-c", "head -c 1G /dev/zero | cat >/dev/null").Run(); err != nil {
			b.Fatal(err)
		}
		cat = append(cat, time.Since(start))

		start = time.Now()
		s, empty := newSpool(b, Options{}), newSpool(b, Options{})
		spoolCommand(b, s, "head", "-c", "1G", "/dev/zero")
		r, err := Cut(s, empty, limit)
		if err != nil || r.Stdout.Chars != 1<<30 {
			b.Fatal(r.Stdout.Chars, err)
		}
		spool = append(spool, time.Since(start))
		if err := os.Remove(s.path); err != nil {
			b.Fatal(err)
		}
	}
	slices.Sort(cat)
	slices.Sort(spool)
	b.ReportMetric(float64(spool[len(spool)/2])/float64(cat[len(cat)/2]), "x-cat")
	b.ReportMetric(float64(cat[len(cat)/2].Milliseconds()), "cat-ms")
	b.ReportMetric(float64(spool[len(spool)/2].Milliseconds()), "spool-ms")
}

// spoolCommand runs a program with its output going to s, until its end.
func spoolCommand(tb testing.TB, s *Spool, name string, args ...string) {
	tb.Helper()
	r, w := newPipe(tb)
	cmd := exec.CommandContext(tb.Context(), name, args...)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	if err := s.Consume(tb.Context(), r); err != nil {
		tb.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		tb.Error(err)
	}
}

// BenchmarkNoOutput is what a stream costs that stays empty: the price that
// every command pays twice. The pipe itself is not counted.
func BenchmarkNoOutput(b *testing.B) {
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	for b.Loop() {
		b.StopTimer()
		r, w := newPipe(b)
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		s := New("/nonexistent/stdout", Options{})
		if err := s.Consume(ctx, r); err != nil {
			b.Fatal(err)
		}
		if _, err := Cut(s, s, 4096); err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = r.Close()
		b.StartTimer()
	}
}

// BenchmarkSmallOutput is what a stream with a line of output costs, with the
// making of its file and the cut but without the pipe.
func BenchmarkSmallOutput(b *testing.B) {
	ctx, cancel := context.WithCancelCause(b.Context())
	defer cancel(nil)
	path, empty := filepath.Join(b.TempDir(), "stdout"), New("", Options{})
	for b.Loop() {
		b.StopTimer()
		r, w := newPipe(b)
		if _, err := w.WriteString("hello, world\n"); err != nil {
			b.Fatal(err)
		}
		_ = w.Close()
		b.StartTimer()
		s := New(path, Options{})
		if err := s.Consume(ctx, r); err != nil {
			b.Fatal(err)
		}
		if r, err := Cut(s, empty, 4096); err != nil || r.Stdout.Chars != 13 {
			b.Fatal(r, err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = r.Close()
		_ = os.Remove(s.path)
		b.StartTimer()
	}
}

// BenchmarkCount is the counting of characters in memory.
func BenchmarkCount(b *testing.B) {
	for name, unit := range map[string]string{"ascii": "plain text\n", "mixed": "plain text with an é in it and more\n", "cjk": "日本語", "invalid": "\xff"} {
		var p []byte
		for len(p) < scanPiece {
			p = append(p, unit...)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p)))
			for b.Loop() {
				countChars(p)
			}
		})
	}
}
