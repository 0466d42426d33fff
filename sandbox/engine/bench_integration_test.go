package engine

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// envBench is the number of sandboxes that TestEngineCreateTimes makes.
const envBench = "SHELLD_BENCH"

// TestEngineCreateTimes prints how long a sandbox takes, and its steps.
func TestEngineCreateTimes(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(envBench))
	if err != nil {
		n = 3 // enough to see that the steps are recorded
	}
	steps := &stepRecorder{times: map[string][]time.Duration{}}
	e := openEngine(t, func(o *Options) { o.Logger = slog.New(steps) })
	for range n {
		begin := time.Now()
		instance := create(t, e)
		created := time.Now()
		if err := e.Delete(t.Context(), instance.ID); err != nil {
			t.Fatal(err)
		}
		steps.add("create", created.Sub(begin))
		steps.add("delete", time.Since(created))
	}
	for _, name := range []string{"create", "lease", "root", "container", "task", "start", "guest", "release", "delete"} {
		times := steps.times[name]
		if len(times) != n {
			t.Fatalf("%s was measured %d times; want %d", name, len(times), n)
		}
		slices.Sort(times)
		t.Logf("%-9s p50 %6.1f ms, p90 %6.1f ms", name, ms(times[n/2]), ms(times[n*9/10]))
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// stepRecorder collects the durations that Create logs.
type stepRecorder struct {
	mu    sync.Mutex
	times map[string][]time.Duration
}

func (s *stepRecorder) add(name string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times[name] = append(s.times[name], d)
}

func (s *stepRecorder) Enabled(context.Context, slog.Level) bool { return true }

func (s *stepRecorder) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if name, ok := strings.CutSuffix(a.Key, "_ms"); ok {
			s.add(name, time.Duration(a.Value.Float64()*float64(time.Millisecond)))
		}
		return true
	})
	return nil
}

func (s *stepRecorder) WithAttrs([]slog.Attr) slog.Handler { return s }

func (s *stepRecorder) WithGroup(string) slog.Handler { return s }
