package limit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestSetLimits(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, _ := newSandbox(t, tree, "box")
		r := takeRun(t, s)
		limits := Limits{MemoryBytes: 64 << 20, Pids: 50, CPUMillis: 1500}
		for _, set := range []func(Limits) (Report, error){tree.SetLimits, s.SetLimits, r.SetLimits} {
			// Up, down, and off again.
			for _, l := range []Limits{limits, {MemoryBytes: 1 << 30, Pids: 500, CPUMillis: 2000}, limits, {}} {
				report, err := set(l)
				if err != nil {
					t.Fatal(err)
				}
				check := func(what, controller string, got Applied, want int64) {
					enforced := hasController(t, tree, controller)
					if got != (Applied{Value: want, Enforced: enforced}) {
						t.Errorf("%s = %+v, want %d, enforced %v", what, got, want, enforced)
					}
				}
				check("memory", ctlMemory, report.MemoryBytes, l.MemoryBytes)
				check("pids", ctlPids, report.Pids, l.Pids)
				check("cpu", ctlCPU, report.CPUMillis, l.CPUMillis)
			}
		}
		if err := r.Release(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.SetLimits(limits); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("limits of a removed run: %v", err)
		}
	})
}

func TestSwapOn(t *testing.T) {
	t.Parallel()
	const titles = "Filename\tType\tSize\tUsed\tPriority\n"
	for text, want := range map[string]bool{"": false, titles: false, titles + "/dev/sda2 partition 1 0 -2\n": true} {
		list := filepath.Join(t.TempDir(), "swaps")
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := swapOn(list); got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := swapOn(filepath.Join(t.TempDir(), "none")); got || err != nil {
		t.Errorf("without a list: %v, %v", got, err)
	}
}

// TestSwapIsNotLimited: on a kernel that does not account swap, which shows in
// files that are missing, a limit holds only where there is no swap.
func TestSwapIsNotLimited(t *testing.T) {
	t.Parallel()
	on, err := swapOn("/proc/swaps")
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]hierarchy{
		"memory.max":            {v2: true},
		"memory.limit_in_bytes": {controllers: []string{ctlMemory}},
	} {
		h.dir = t.TempDir()
		if err := os.WriteFile(filepath.Join(h.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		g := group{hs: []hierarchy{h}, rel: "/"}
		for _, value := range []int64{4096, 0} {
			if err := os.Truncate(filepath.Join(h.dir, name), 0); err != nil {
				t.Fatal(err)
			}
			got, err := applied(value, g.setMemory)
			if want := !on || value == 0; got.Enforced != want || err != nil {
				t.Errorf("%s of %d with swap %v: %+v, %v", name, value, on, got, err)
			}
		}
	}
	if got, err := applied(1, func(int64) (int64, error) { return 0, errSwap }); got != (Applied{Value: 1}) || err != nil {
		t.Errorf("with swap: %+v, %v", got, err)
	}
}

func hasController(tb testing.TB, tree *Tree, controller string) bool {
	tb.Helper()
	if tree.Mode() == V1 {
		return tree.root.file(controller, "") != ""
	}
	_, err := tree.root.enable(controller)
	return err == nil
}

func TestMemoryLimitKills(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, g := newSandbox(t, tree, "box")
		r := takeRun(t, s)
		report, err := r.SetLimits(Limits{MemoryBytes: 32 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if !report.MemoryBytes.Enforced {
			t.Skip("not here: this hierarchy cannot limit memory")
		}
		if n, err := r.OOMKills(); n != 0 || err != nil {
			t.Errorf("OOMKills = %d, %v before anything ran", n, err)
		}
		spawn(t, r, `exec perl -e '$x = "x" x (256 << 20); sleep 1000'`)
		waitFor(t, "the kernel kills", func() bool {
			n, err := r.OOMKills()
			if err != nil {
				t.Fatal(err)
			}
			return n > 0
		})
		if !alive(g.pid()) {
			t.Error("the guest was killed")
		}
	})
}

func TestParseCPUMax(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"max 100000", 0, true},
		{"150000 100000", 1500, true},
		{"5000 50000", 100, true},
		{"1000", 0, false},
		{"1000 0", 0, false},
		{"x 100000", 0, false},
	} {
		got, err := parseCPUMax(c.text)
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("parseCPUMax(%q) = %d, %v", c.text, got, err)
		}
	}
}
