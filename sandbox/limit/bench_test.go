package limit

import (
	"strconv"
	"testing"
)

func eachModeBench(b *testing.B, bench func(b *testing.B, tree *Tree)) {
	b.Helper()
	for _, root := range mountRoots {
		b.Run(root[1:], func(b *testing.B) { bench(b, newTree(b, root)) })
	}
}

// BenchmarkRun is what a command waits for: a cgroup from the stock, opened.
func BenchmarkRun(b *testing.B) {
	eachModeBench(b, func(b *testing.B, tree *Tree) {
		s, _ := newSandbox(b, tree, "box")
		for b.Loop() {
			b.StopTimer()
			stocked(b, s)
			b.StartTimer()
			r := takeRun(b, s)
			files, err := r.Open()
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			closeAll(files)
			if err := r.Release(); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

// BenchmarkRunMake is the same without a stock, with the removal.
func BenchmarkRunMake(b *testing.B) {
	eachModeBench(b, func(b *testing.B, tree *Tree) {
		s, _ := newSandbox(b, tree, "box")
		stocked(b, s)
		for b.Loop() {
			r, err := s.takeFresh()
			if err != nil {
				b.Fatal(err)
			}
			if err := r.group.remove(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSetLimits sets and reads back all limits of a run.
func BenchmarkSetLimits(b *testing.B) {
	eachModeBench(b, func(b *testing.B, tree *Tree) {
		s, _ := newSandbox(b, tree, "box")
		r := takeRun(b, s)
		for b.Loop() {
			if _, err := r.SetLimits(Limits{MemoryBytes: 64 << 20, Pids: 50, CPUMillis: 1000}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkKill ends a run of one process and of many until it is empty.
func BenchmarkKill(b *testing.B) {
	for _, n := range []int{1, 250} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			eachModeBench(b, func(b *testing.B, tree *Tree) {
				s, _ := newSandbox(b, tree, "box")
				for b.Loop() {
					b.StopTimer()
					r := takeRun(b, s)
					spawn(b, r, "i=1; while [ $i -lt "+strconv.Itoa(n)+" ]; do sleep 1000 & i=$((i+1)); done; exec sleep 1000")
					waitFor(b, "all are there", func() bool { return len(pidsOf(b, r)) >= n })
					b.StartTimer()
					if err := r.Kill(budget(b)); err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					if err := r.Release(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
		})
	}
}

// BenchmarkSandbox takes a sandbox over, the move of its guest included.
func BenchmarkSandbox(b *testing.B) {
	eachModeBench(b, func(b *testing.B, tree *Tree) {
		for b.Loop() {
			b.StopTimer()
			g := newGuest(b, tree, "box")
			b.StartTimer()
			if _, err := tree.Sandbox(budget(b), "box", g.pid()); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := tree.Remove(budget(b), "box"); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}
