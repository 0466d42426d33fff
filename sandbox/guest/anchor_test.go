package guest

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKillTakesAllOfARunAndNothingElse(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.runner(t, Anchored)
	const tree = `
		sleep 1000 &
		setsid sleep 1000 &
		(setsid sh -c 'sleep 1000 & (setsid sleep 1000 &) ; exit' &)
		sh -c 'trap "" TERM HUP INT; (while :; do sleep 1000; done) & exit' 
		echo ready; %s`
	start := func(id, end string) *Process {
		t.Helper()
		p, err := r.Start(t.Context(), r.command(t, id, strings.Replace(tree, "%s", end, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if got := readLine(t, p); got != "ready" {
			t.Fatalf("%s: got %q", id, got)
		}
		return p
	}
	other, waiting, ended := start("other", "wait"), start("waiting", "wait"), start("ended", "exit 7")
	if exit, err := ended.Exit(); err != nil || exit.Status.ExitStatus() != 7 {
		t.Errorf("exit with processes left: %#x, %v", exit.Status, err)
	}
	before := b.processes()
	for _, p := range []*Process{waiting, ended} {
		if err := r.Kill(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		// At once: the answer promises it.
		now := b.processes()
		if len(now) >= len(before) {
			t.Errorf("%s: %d processes before, %d after", p.ID, len(before), len(now))
		}
		before = now
	}
	if exit, err := waiting.Exit(); err != nil || exit.Status.Signal() != unix.SIGKILL {
		t.Errorf("exit of the killed: %#x, %v", exit.Status, err)
	}
	// The shell and five sleepers under one more shell, and their anchor.
	if left := b.processes(); len(left) != 8 {
		t.Errorf("left of the other run: %v", left)
	}
	select {
	case <-other.Done():
		t.Error("the other run ended")
	default:
	}
	for _, name := range b.processes() {
		if strings.HasPrefix(name, "T ") {
			t.Errorf("a process of the other run is stopped: %s", name)
		}
	}
	if err := r.Kill(t.Context(), "other"); err != nil {
		t.Error(err)
	}
	if left := b.processes(); len(left) != 0 {
		t.Errorf("left after all: %v", left)
	}
	if err := r.Kill(t.Context(), "unknown"); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("got %v, want ESRCH", err)
	}
	for _, p := range []*Process{other, waiting, ended} {
		r.finish(t, p)
	}
	b.quiet(t)
}

func TestKillOfAForkStorm(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.runner(t, Anchored)
	p, err := r.Start(t.Context(), r.command(t, "storm", `
		storm() { i=0; while [ $i -lt 30 ]; do (setsid sh -c 'while :; do (sleep 0.01 &) ; sleep 0.01; done' &) ; i=$((i+1)); done; }
		storm; echo ready; while :; do (true &) ; done`))
	if err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, p); got != "ready" {
		t.Fatalf("got %q", got)
	}
	if err := r.Kill(t.Context(), "storm"); err != nil {
		t.Error(err)
	}
	if left := b.processes(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	r.finish(t, p)
	b.quiet(t)
}

func TestKillIsForAnchorsOnly(t *testing.T) {
	t.Parallel()
	r := newBox(t).runner(t, CgroupV2)
	p, err := r.Start(t.Context(), r.command(t, "limited", "true"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Kill(t.Context(), "limited"); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("got %v", err)
	}
	r.finish(t, p)
}

// TestCommandsCannotReachTheirGuardians tries what a command may not do to
// process 1 and to its anchor.
func TestCommandsCannotReachTheirGuardians(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		if b.program == "" {
			return // not set up like a sandbox
		}
		got := r.run(t, "attack", `
			for s in KILL TERM STOP QUIT; do kill -$s 1 $PPID && echo "$s sent"; done
			for f in environ maps mem fd/0 cwd/ exe root/; do cat /proc/1/$f >/dev/null && echo "read $f"; done
			ls /proc/1/fd; grep -h -E '^Cap' /proc/self/status | grep -v 0000000000000000
			ls -d `+b.dir+`/guest.sock; grep NoNewPrivs.*1 /proc/self/status >/dev/null && echo nnp
			cat /sys/class/net/lo/operstate >/dev/null; exec 2>&1; bash -c ': </dev/tcp/127.0.0.1/9'`)
		if !strings.HasPrefix(got.stdout, "nnp\n") || !strings.Contains(got.stdout, "Connection refused") {
			t.Errorf("got %q", got.stdout)
		}
	})
}

// readLine reads a line and nothing more.
func readLine(tb testing.TB, p *Process) string {
	tb.Helper()
	var line []byte
	var one [1]byte
	for {
		if n, err := p.Stdout.Read(one[:]); n == 0 {
			tb.Fatalf("read: %v", err)
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

// processes lists what runs below process 1, as state and name; zombies, which
// only wait for their parents, are left out.
func (b *box) processes() []string {
	var list []string
	for todo := []int{b.cmd.Process.Pid}; len(todo) > 0; todo = todo[1:] {
		for _, pid := range childrenOf(todo[0]) {
			todo = append(todo, pid)
			if stat := readStat(pid); len(stat) > 2 && stat[2] != "Z" {
				list = append(list, stat[2]+" "+stat[1]+" "+strconv.Itoa(pid))
			}
		}
	}
	return list
}
