package limit

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// killCases are what commands do to get away. Each script runs in a cgroup; the
// kill comes when it holds at least min processes.
var killCases = []struct {
	name   string
	script string
	min    int
	// needsPids marks scripts that only a limit on processes holds.
	needsPids bool
}{
	{name: "one", script: "exec sleep 1000", min: 1},
	{name: "tree", script: "i=0; while [ $i -lt 120 ]; do sleep 1000 & i=$((i+1)); done; wait", min: 121},
	{name: "deaf", script: "trap '' HUP INT QUIT TERM; sleep 1000 & wait; sleep 1000", min: 2},
	{name: "double fork", script: "(setsid sh -c '(sleep 1000 &) ; sleep 1000' &) ; sleep 1000", min: 3},
	{name: "stopped", script: "sleep 1000 & kill -STOP $!; kill -STOP $$", min: 2},
	// Each link of a chain starts the next in a new session and ends, so that
	// no list of processes stays true.
	{name: "setsid storm", script: `export S='setsid sh -c "$S" &'; i=0; while [ $i -lt 10 ]; do sh -c "$S" & i=$((i+1)); done; wait; sleep 1000`, min: 5},
	{name: "fork bomb", script: `exec perl -e 'while (1) { fork }'`, min: 150, needsPids: true},
}

func TestKill(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, g := newSandbox(t, tree, "box")
		bystander := takeRun(t, s)
		spawn(t, bystander, "exec sleep 1000")
		for _, c := range killCases {
			t.Run(c.name, func(t *testing.T) {
				r := takeRun(t, s)
				report, err := r.SetLimits(Limits{Pids: 200})
				if err != nil {
					t.Fatal(err)
				}
				if c.needsPids && !report.Pids.Enforced {
					t.Skip("not here: this hierarchy cannot limit processes")
				}
				spawn(t, r, c.script)
				waitFor(t, "the script is under way", func() bool { return len(pidsOf(t, r)) >= c.min })
				began := time.Now()
				if err := r.Kill(budget(t)); err != nil {
					t.Fatal(err)
				}
				t.Log("killed in", time.Since(began))
				if pids := pidsOf(t, r); len(pids) > 0 {
					t.Errorf("%d processes left", len(pids))
				}
				if err := r.Release(); err != nil {
					t.Error(err)
				}
				waitFor(t, "the cgroup is removed", func() bool { return !r.group.exists() })
				if err := r.Kill(budget(t)); err != nil {
					t.Errorf("kill of a removed run: %v", err)
				}
			})
		}
		if len(pidsOf(t, bystander)) != 1 {
			t.Error("a process of another run was killed")
		}
		if !alive(g.pid()) {
			t.Error("the guest was killed")
		}
	})
}

// TestKillMembers: a process that is not, or no longer, in the cgroup is not
// killed, whatever its id was listed for.
func TestKillMembers(t *testing.T) {
	eachMode(t, func(t *testing.T, tree *Tree) {
		s, _ := newSandbox(t, tree, "box")
		r, other := takeRun(t, s), takeRun(t, s)
		member, stranger := spawn(t, r, "exec sleep 1000").Process.Pid, spawn(t, other, "exec sleep 1000").Process.Pid
		const nobodys = 1 << 30 // above any process id
		if err := r.group.killMembers([]int{stranger, nobodys, member}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the member is dead", func() bool { return len(pidsOf(t, r)) == 0 })
		if !slices.Equal(pidsOf(t, other), []int{stranger}) {
			t.Error("a process of another cgroup was killed")
		}
	})
}

// On v1 a guest thread is in the run's cgroup while it forks.
func TestKillSparesGuest(t *testing.T) {
	t.Parallel()
	tree := newTree(t, mountRoots[0])
	if tree.Mode() != V1 {
		t.Skip("only on v1 is the guest ever inside a run")
	}
	s, g := newSandbox(t, tree, "box")
	r := takeRun(t, s)
	cmd := spawn(t, r, "exec sleep 1000")
	for _, h := range r.group.hs {
		g.tell(t, "echo 0 > "+filepath.Join(h.dir, r.group.rel, "tasks"))
	}
	inside := func() bool {
		pids, err := r.group.pids()
		if err != nil {
			t.Fatal(err)
		}
		return slices.Contains(pids, g.pid())
	}
	waitFor(t, "the guest is inside", inside)
	if pids := pidsOf(t, r); !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("PIDs = %v, want only %d", pids, cmd.Process.Pid)
	}

	errEnough := errors.New("waited enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errEnough)
	defer cancel()
	if err := r.Kill(ctx); !errors.Is(err, errEnough) {
		t.Errorf("Kill with the guest inside = %v, want %v", err, errEnough)
	}
	if len(pidsOf(t, r)) > 0 || !alive(g.pid()) {
		t.Error("Kill did not kill exactly what is not the guest")
	}
	// What the guest forks into the run while a kill goes on dies as well.
	killed := make(chan error, 1)
	go func() { killed <- r.Kill(budget(t)) }()
	g.tell(t, "sleep 1000 &")
	for _, h := range s.group.hs {
		g.tell(t, "echo 0 > "+filepath.Join(h.dir, s.group.rel, "tasks"))
	}
	if err := <-killed; err != nil {
		t.Error(err)
	}
	if !alive(g.pid()) || inside() {
		t.Error("the guest did not come back alive")
	}
}

// A shelld that dies in the middle of a v1 kill leaves the run frozen.
func TestSandboxThaws(t *testing.T) {
	t.Parallel()
	tree := newTree(t, mountRoots[0])
	if tree.Mode() != V1 {
		t.Skip("v2 kills without freezing")
	}
	s, g := newSandbox(t, tree, "box")
	r := takeRun(t, s)
	spawn(t, r, "exec sleep 1000")
	if err := r.group.setFrozen(true); err != nil {
		t.Fatal(err)
	}
	again := openTree(t, mountRoots[0], strings.TrimPrefix(tree.root.rel, "/"))
	if _, err := again.Sandbox(budget(t), "box", g.pid()); err != nil {
		t.Fatal(err)
	}
	if frozen, err := r.group.frozen(); frozen || err != nil {
		t.Errorf("frozen = %v, %v", frozen, err)
	}
}
