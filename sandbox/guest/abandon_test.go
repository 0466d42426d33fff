package guest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// startUnseen starts a command without waiting for the answer.
func (r *runner) startUnseen(t *testing.T, request StartRequest) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("nobody waits")
	cancel(gone)
	p, err := r.Start(ctx, request)
	if err == nil { // the answer was that fast
		err = p.Close()
	} else if errors.Is(err, gone) {
		err = nil
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestKillOfARunThatStarts kills commands before it is known that they run.
func TestKillOfARunThatStarts(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.runner(t, Anchored)
	for i := range 20 {
		id := fmt.Sprint("run", i)
		r.startUnseen(t, r.command(t, id, "sleep 1000 & sleep 1000"))
		if err := r.Kill(t.Context(), id); err != nil {
			t.Errorf("kill: %v", err)
		}
		if left := b.processes(); len(left) != 0 {
			t.Errorf("left of %s: %v", id, left)
		}
		if err := r.Forget(id); err != nil {
			t.Error(err)
		}
	}
	b.quiet(t)
}

// TestForgetOfARunThatStarts: a record must not outlive that it was forgotten
// before the guest had begun to start the command.
func TestForgetOfARunThatStarts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *box, r *runner) {
		for i := range 50 {
			id := fmt.Sprint("run", i)
			r.startUnseen(t, r.command(t, id, "true"))
			if err := r.Forget(id); err != nil {
				t.Fatal(err)
			}
		}
		// A newer connection drops what the guest has not read of this one.
		if err := r.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.quiet(t)
		eventually(t, "all to be forgotten", func() bool { return len(b.connect(t).Runs()) == 0 })
	})
}

// TestForgottenRun: what a run has left can be listed and killed when its
// pipes are closed and its record is gone.
func TestForgottenRun(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	r := b.runner(t, Anchored)
	got := r.run(t, "left", "setsid sleep 1000 >/dev/null 2>&1 & setsid sh -c 'sleep 1000' >/dev/null 2>&1 & echo $!")
	listed, err := r.Processes(t.Context(), "left")
	if err != nil || len(listed) < 2 {
		t.Fatalf("listed %v, %v", listed, err)
	}
	if pid := strings.TrimSpace(got.stdout); !slices.ContainsFunc(listed, func(p int) bool { return fmt.Sprint(p) == pid }) {
		t.Errorf("%v is without %s", listed, pid)
	}
	if listed, err := r.Processes(t.Context(), "unknown"); len(listed) != 0 || err != nil {
		t.Errorf("of an unknown run: %v, %v", listed, err)
	}
	if err := r.Kill(t.Context(), "left"); err != nil {
		t.Error(err)
	}
	if left := b.processes(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if listed, err := r.Processes(t.Context(), "left"); len(listed) != 0 || err != nil {
		t.Errorf("listed afterwards: %v, %v", listed, err)
	}
	if err := r.Kill(t.Context(), "left"); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Errorf("second kill: %v", err)
	}
	b.quiet(t)
}

// TestLargestCommand starts the largest command that the API takes, in the
// characters that take most room on the way.
func TestLargestCommand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, _ *box, r *runner) {
		const piece = 100_000
		request := r.command(t, "large", `echo "$#"; printf %s "$1" | wc -c; printenv E1 | wc -c`)
		request.Argv = append(request.Argv, "sh")
		for range 10 {
			request.Argv = append(request.Argv, strings.Repeat("\x01", piece))
		}
		for i := range 5 {
			request.Env = append(request.Env, fmt.Sprintf("E%d=%s", i, strings.Repeat("\x02", piece)))
		}
		p, err := r.Start(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.finish(t, p); got.stdout != "10\n100000\n100001\n" {
			t.Errorf("got %q", got.stdout)
		}
	})
}
