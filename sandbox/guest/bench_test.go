package guest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkRun compares a command through the guest with the same fork and
// exec on the host, alternating, and reports the medians and their ratio.
func BenchmarkRun(b *testing.B) {
	for _, mode := range []Mode{CgroupV2, CgroupV1, Anchored} {
		b.Run(string(mode), func(b *testing.B) {
			r := newBox(b).runner(b, mode)
			req := r.command(b, "bench", "true")
			var guest, host []time.Duration
			for i := 0; b.Loop(); i++ {
				req.ID = fmt.Sprint("bench", i)
				begin := time.Now()
				throughGuest(b, r, req)
				guest = append(guest, time.Since(begin))
				begin = time.Now()
				onHost(b)
				host = append(host, time.Since(begin))
			}
			report(b, guest, host)
		})
	}
}

// BenchmarkRunsAtOnce compares the throughput of 32 at once.
func BenchmarkRunsAtOnce(b *testing.B) {
	const width = 32
	for _, mode := range []Mode{CgroupV2, CgroupV1} {
		b.Run(string(mode), func(b *testing.B) {
			r := newBox(b).runner(b, mode)
			var requests []StartRequest
			for i := range width {
				requests = append(requests, r.command(b, fmt.Sprint("bench", i), "true"))
			}
			var guest, host []time.Duration
			for b.Loop() {
				guest = append(guest, atOnce(width, func(i int) { throughGuest(b, r, requests[i]) }))
				host = append(host, atOnce(width, func(int) { onHost(b) }))
			}
			report(b, guest, host)
		})
	}
}

func atOnce(n int, f func(int)) time.Duration {
	begin := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
	return time.Since(begin)
}

func throughGuest(b *testing.B, r *runner, req StartRequest) {
	b.Helper()
	p, err := r.Start(b.Context(), req)
	if err != nil {
		b.Error(err)
		return
	}
	if res, err := collect(p); err != nil || res.exit.Status != 0 {
		b.Errorf("status %#x, %v", res.exit.Status, err)
	}
	if err := r.Forget(p.ID); err != nil {
		b.Error(err)
	}
}

func onHost(b *testing.B) {
	b.Helper()
	cmd := exec.Command("/bin/sh", "-c", "true")
	cmd.Dir = "/"
	if _, err := cmd.Output(); err != nil {
		b.Error(err)
	}
}

func report(b *testing.B, guest, host []time.Duration) {
	b.Helper()
	quantile := func(all []time.Duration, q float64) float64 {
		slices.Sort(all)
		return all[int(q*float64(len(all)-1))].Seconds() * 1000
	}
	b.ReportMetric(quantile(guest, 0.5), "guest-p50-ms")
	b.ReportMetric(quantile(guest, 0.99), "guest-p99-ms")
	b.ReportMetric(quantile(host, 0.5), "host-p50-ms")
	b.ReportMetric(quantile(guest, 0.5)/quantile(host, 0.5), "ratio")
}

// BenchmarkMemory reports the proportional set size of a guest among twenty,
// after a run and after many.
func BenchmarkMemory(b *testing.B) {
	const count, many = 20, 200
	for b.Loop() {
		var boxes []*box
		var runners []*runner
		for range count {
			box := newBox(b)
			boxes = append(boxes, box)
			runners = append(runners, box.runner(b, CgroupV2))
		}
		total := func() (kib float64) {
			for _, box := range boxes {
				kib += pss(b, box.cmd.Process.Pid)
			}
			return kib / count
		}
		for _, r := range runners {
			throughGuest(b, r, r.command(b, "one", "true"))
		}
		b.ReportMetric(total(), "idle-KiB")
		for _, r := range runners {
			req := r.command(b, "many", "true")
			for i := range many {
				req.ID = fmt.Sprint("many", i)
				throughGuest(b, r, req)
			}
		}
		b.ReportMetric(total(), "used-KiB")
	}
}

// pss returns the proportional set size of a process. Unit: KiB.
func pss(b *testing.B, pid int) (kib float64) {
	b.Helper()
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(rollup, []byte("\nPss:"))
	if _, err := fmt.Sscan(string(rest), &kib); err != nil {
		b.Fatal(err)
	}
	return kib
}
