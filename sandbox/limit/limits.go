package limit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits are hard caps on a cgroup and all below it. The zero value of each
// field means no cap.
type Limits struct {
	// MemoryBytes caps memory; the kernel rounds it down to whole pages. Swap
	// cannot be used to get around it.
	MemoryBytes int64
	// Pids caps the number of processes and threads.
	Pids int64
	// CPUMillis caps processor time, in thousandths of one processor, at
	// least 10. On v1 the kernel refuses a cap above that of a cgroup further
	// up, and one below that of a cgroup further down.
	CPUMillis int64
}

// Report says what became of each of the [Limits].
type Report struct {
	MemoryBytes Applied
	Pids        Applied
	CPUMillis   Applied
}

// Applied is one limit as it is in force.
type Applied struct {
	// Value is the limit as read back from the kernel; 0 for none. When it is
	// not enforced it is the one that was asked for.
	Value int64
	// Enforced is false when nothing on this machine holds the limit.
	Enforced bool
}

const (
	// cpuPeriod is the span over which processor time is capped. Unit:
	// microseconds. The kernel's default.
	cpuPeriod = 100_000
	// cpuMillisMin keeps the quota at the 1 ms that the kernel demands.
	cpuMillisMin = 10
	// v1Unlimited is the least that a v1 memory limit is when there is none:
	// the kernel shows the greatest number of whole pages.
	v1Unlimited = 1 << 62
)

func (l Limits) unenforced() Report {
	return Report{
		MemoryBytes: Applied{Value: l.MemoryBytes},
		Pids:        Applied{Value: l.Pids},
		CPUMillis:   Applied{Value: l.CPUMillis},
	}
}

// setLimits sets each limit and reads it back. That the machine lacks the
// means for one is no error and shows in the report.
func (g group) setLimits(l Limits) (Report, error) {
	if !g.exists() {
		return l.unenforced(), fmt.Errorf("set limits of cgroup %s: %w", g.rel, fs.ErrNotExist)
	}
	var (
		r    Report
		errs [3]error
	)
	r.MemoryBytes, errs[0] = applied(l.MemoryBytes, g.setMemory)
	r.Pids, errs[1] = applied(l.Pids, g.setPids)
	r.CPUMillis, errs[2] = applied(l.CPUMillis, g.setCPU)
	if err := errors.Join(errs[:]...); err != nil {
		return r, fmt.Errorf("set limits of cgroup %s: %w", g.rel, err)
	}
	return r, nil
}

var (
	// errNoController says that the cgroup lacks the means for a limit.
	errNoController = errors.New("no such controller")
	// errSwap says that memory beyond the limit goes to swap.
	errSwap = errors.New("swap is not limited")
)

func applied(value int64, set func(int64) (int64, error)) (Applied, error) {
	got, err := set(value)
	if errors.Is(err, errNoController) || errors.Is(err, errSwap) || errors.Is(err, fs.ErrNotExist) {
		return Applied{Value: value}, nil
	}
	if err != nil {
		return Applied{Value: value}, err
	}
	return Applied{Value: got, Enforced: true}, nil
}

// knob writes a controller's file.
func (g group) knob(controller, name, value string) error {
	path := g.file(controller, name)
	if path == "" {
		return errNoController
	}
	return writeFile(path, value)
}

// reading reads a controller's file without the newline.
func (g group) reading(controller, name string) (string, error) {
	path := g.file(controller, name)
	if path == "" {
		return "", errNoController
	}
	text, err := os.ReadFile(path)
	return strings.TrimSuffix(string(text), "\n"), err
}

// orMax writes a limit as both versions take it for pids and v2 for all.
func orMax(value int64) string {
	if value == 0 {
		return "max"
	}
	return strconv.FormatInt(value, 10)
}

func parseMax(text string) (int64, error) {
	if text == "max" {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

func (g group) setMemory(value int64) (int64, error) {
	if !g.v2() {
		return g.setMemoryV1(value)
	}
	if err := g.knob(ctlMemory, "memory.max", orMax(value)); err != nil {
		return 0, err
	}
	swap := "max"
	if value > 0 {
		swap = "0"
	}
	if err := g.limitSwap("memory.swap.max", swap, value); err != nil {
		return 0, err
	}
	text, err := g.reading(ctlMemory, "memory.max")
	if err != nil {
		return 0, err
	}
	return parseMax(text)
}

// limitSwap writes the file that keeps a limit of value bytes from being got
// around by swap. A kernel that does not account swap has no such file, which
// does no harm where there is no swap.
func (g group) limitSwap(name, text string, value int64) error {
	err := g.knob(ctlMemory, name, text)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if value == 0 {
		return nil
	}
	on, err := swapOn("/proc/swaps")
	if err == nil && on {
		err = errSwap
	}
	return err
}

// swapOn reports whether a list such as /proc/swaps has any swap in it. A
// kernel without swap has no list.
func swapOn(list string) (bool, error) {
	text, err := os.ReadFile(list)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for swap: %w", err)
	}
	_, entries, _ := strings.Cut(string(text), "\n") // the first line has titles
	return strings.TrimSpace(entries) != "", nil
}

// dieTogether makes a v2 cgroup lose all its processes or none for want of
// memory, whichever limit is met, its own or that of a cgroup further up. The
// kernel kills the highest cgroup that says so, so only runs may.
func (g group) dieTogether() error {
	err := g.knob(ctlMemory, "memory.oom.group", "1")
	if errors.Is(err, fs.ErrNotExist) { // memory is not limited here
		return nil
	}
	return err
}

func (g group) setMemoryV1(value int64) (int64, error) {
	text := "-1"
	if value > 0 {
		text = strconv.FormatInt(value, 10)
	}
	const limit, withSwap = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	err := g.knob(ctlMemory, limit, text)
	// The sum with swap may never be the smaller one: raise it first.
	if errors.Is(err, unix.EINVAL) {
		err = errors.Join(g.knob(ctlMemory, withSwap, text), g.knob(ctlMemory, limit, text))
	}
	if err != nil {
		return 0, err
	}
	if err := g.limitSwap(withSwap, text, value); err != nil {
		return 0, err
	}
	text, err = g.reading(ctlMemory, limit)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if n >= v1Unlimited {
		n = 0
	}
	return n, err
}

func (g group) setPids(value int64) (int64, error) {
	if err := g.knob(ctlPids, "pids.max", orMax(value)); err != nil {
		return 0, err
	}
	text, err := g.reading(ctlPids, "pids.max")
	if err != nil {
		return 0, err
	}
	return parseMax(text)
}

func (g group) setCPU(value int64) (int64, error) {
	if value > 0 {
		value = max(value, cpuMillisMin)
	}
	quota := value * (cpuPeriod / 1000)
	if g.v2() {
		err := g.knob(ctlCPU, "cpu.max", orMax(quota)+" "+strconv.Itoa(cpuPeriod))
		if err != nil {
			return 0, err
		}
		text, err := g.reading(ctlCPU, "cpu.max")
		if err != nil {
			return 0, err
		}
		return parseCPUMax(text)
	}
	if quota == 0 {
		quota = -1
	}
	// The period is the kernel's default, unless this kernel has no quotas.
	if err := g.knob(ctlCPU, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)); err != nil {
		return 0, err
	}
	text, err := g.reading(ctlCPU, "cpu.cfs_quota_us")
	if err != nil {
		return 0, err
	}
	got, err := strconv.ParseInt(text, 10, 64)
	return max(got, 0) * 1000 / cpuPeriod, err
}

// parseCPUMax reads the text of cpu.max, "quota period" in microseconds, as
// thousandths of a processor.
func parseCPUMax(text string) (int64, error) {
	quota, period, ok := strings.Cut(text, " ")
	if !ok {
		return 0, fmt.Errorf("read cpu.max %q: no period", text)
	}
	if quota == "max" {
		return 0, nil
	}
	q, err := strconv.ParseInt(quota, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read cpu.max: %w", err)
	}
	p, err := strconv.ParseInt(period, 10, 64)
	if err != nil || p <= 0 {
		return 0, fmt.Errorf("read cpu.max %q: bad period", text)
	}
	return q * 1000 / p, nil
}

// oomKills returns the kernel's count of processes of this cgroup that it
// killed for want of memory.
func (g group) oomKills() (int64, error) {
	name := "memory.oom_control"
	if g.v2() {
		name = "memory.events"
	}
	text, err := g.reading(ctlMemory, name)
	if errors.Is(err, errNoController) || gone(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read memory events: %w", err)
	}
	return counter(text, "oom_kill")
}
