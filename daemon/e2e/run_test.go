package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shelld/shelld/rpc"
)

// TestCallEndsWithItsShell is the first half of case C01: what a command
// leaves running cannot hold its call open.
func TestCallEndsWithItsShell(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		for name, command := range map[string]string{
			"both streams held": "sleep 300 & echo started",
			"only stderr held":  "sleep 300 >/dev/null & echo started",
			"in a new session":  "setsid sleep 300 & echo started",
		} {
			t.Run(name, func(t *testing.T) {
				id := create(t, i)
				var c rpc.ShellCall
				within(t, 2*time.Second, "a call that leaves a process", func() {
					c = call(t, i, timeout(in(id, command), 20*time.Second))
				})
				if out := c.Output.Output[0]; out.Stdout != "started\n" || exitCode(out) != "0" || out.Stderr != "" {
					t.Errorf("got %+v", out)
				}
				within(t, time.Second, "the call after it", func() { sh(t, i, id, "true") })
			})
		}
	})
}

// TestTimeoutEndsEverything is the second half of C01: with the time, all that
// the command has started is up.
func TestTimeoutEndsEverything(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		// An own length of sleep tells these processes from all others.
		mark := markOf(t, 1)
		for name, command := range map[string]string{
			"a loop that writes": "(while :; do date +%%s >> /mnt/data/tick; sleep 0.3; done) & sleep %s",
			"setsid":             "setsid sh -c 'while :; do date +%%s >> /mnt/data/tick; sleep 0.3; done' & sleep %s",
			"double fork":        "( ( setsid sh -c 'while :; do date +%%s >> /mnt/data/tick; sleep 0.3; done' </dev/null >/dev/null 2>&1 & ) & ); sleep %s",
			"signals ignored":    "trap '' TERM HUP INT; (trap '' TERM HUP INT; setsid sleep %[1]s & while :; do date +%%s >> /mnt/data/tick; sleep 0.3; done) & sleep %[1]s",
			"stopped itself":     "(while :; do date +%%s >> /mnt/data/tick; sleep 0.3; done) & sh -c 'kill -STOP $$' & sleep %s",
		} {
			t.Run(name, func(t *testing.T) {
				id := create(t, i)
				var c rpc.ShellCall
				within(t, 2*time.Second+time.Second, "a call of 2 s", func() {
					c = call(t, i, timeout(in(id, "echo before; "+fmt.Sprintf(command, mark)), 2*time.Second))
				})
				out, result := c.Output.Output[0], c.Results[0]
				if exitCode(out) != "timeout" || out.Stdout != "before\n" || result.Reason != "timeout" {
					t.Errorf("got %+v, %+v", out, result)
				}
				if !strings.Contains(out.Stderr, "[shelld] timed out after 2s") {
					t.Errorf("stderr %q does not say so", out.Stderr)
				}
				eventually(t, "no process of the command is left", time.Second, func() bool {
					return len(i.members(t, id)) == 0 && len(withArgument(mark)) == 0
				})
				before := sh(t, i, id, "cat /mnt/data/tick | wc -l")
				if strings.TrimSpace(before) == "0" {
					t.Error("nothing was written before the timeout")
				}
				if after := sh(t, i, id, "sleep 0.7; cat /mnt/data/tick | wc -l"); after != before {
					t.Errorf("the file grows: %s then %s lines", before, after)
				}
			})
		}
	})
}

// markOf returns a number of seconds that no other test sleeps.
func markOf(t *testing.T, n int) string {
	t.Helper()
	sum := sha256.Sum256([]byte(t.Name()))
	return fmt.Sprintf("8%d%d%d.%d", n, sum[0], sum[1], sum[2])
}

// TestTimeoutFindsProcessesByCgroup looks where the daemon has to look.
func TestTimeoutFindsProcessesByCgroup(t *testing.T) {
	t.Parallel()
	i := startInstance(t, asRoot)
	if get[rpc.Info](t, i, "/v1/info").Cgroup.Version == 0 {
		notHere(t, "root has no usable cgroup")
	}
	id := create(t, i)
	mark := markOf(t, 6)
	p := begin(t, i, timeout(in(id, fmt.Sprintf("setsid sleep %[1]s & (setsid sleep %[1]s &); sleep %[1]s", mark)), 2*time.Second))
	eventually(t, "three processes sleep", patience, func() bool { return len(withArgument(mark)) >= 3 })
	inRuns := i.cgroupProcesses(t)
	if members := i.members(t, id); !sameSet(members, inRuns) {
		t.Errorf("the sandbox has the processes %v, its runs %v", members, inRuns)
	}
	if c, ok := p.result(t); !ok || exitCode(c.Output.Output[0]) != "timeout" {
		t.Errorf("got %+v", c)
	}
	eventually(t, "no process is in the cgroups of runs", time.Second, func() bool { return len(i.cgroupProcesses(t)) == 0 })
}

func sameSet(a, b []int) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// TestExitCodes is case C02.
func TestExitCodes(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		tests := []struct{ command, code, stdout, reason, signal string }{
			{command: "kill -KILL $$", code: "137", reason: "signal", signal: "KILL"},
			{command: "kill -TERM $$", code: "143", reason: "signal", signal: "TERM"},
			{command: "sh -c 'kill -SEGV $$'; echo rc=$?", code: "0", stdout: "rc=139\n", reason: "exit"},
			{command: "exit 300", code: "44", reason: "exit"},
			{command: "no-such-program", code: "127", reason: "exit"},
			{command: "touch /mnt/data/n; /mnt/data/n", code: "126", reason: "exit"},
			{command: "false", code: "1", reason: "exit"},
			{command: "kill -SEGV $$", code: "139", reason: "signal", signal: "SEGV"},
			{command: "exit 255", code: "255", reason: "exit"},
		}
		var commands []string
		for _, tt := range tests {
			commands = append(commands, tt.command)
		}
		c := call(t, i, in(id, commands...))
		if c.Status != "completed" || c.Output.Status != "completed" {
			t.Errorf("status %s, of the output %s", c.Status, c.Output.Status)
		}
		for n, tt := range tests {
			out, result := c.Output.Output[n], c.Results[n]
			if exitCode(out) != tt.code || out.Stdout != tt.stdout || result.Reason != tt.reason || deref(result.Signal) != tt.signal {
				t.Errorf("%q: got %s, stdout %q, reason %q, signal %q; want %+v", tt.command, exitCode(out), out.Stdout, result.Reason, deref(result.Signal), tt)
			}
			if result.ExitCode == nil || fmt.Sprint(*result.ExitCode) != tt.code || result.CommandIndex != n {
				t.Errorf("%q: result %+v", tt.command, result)
			}
		}
	})
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// TestCommandTextIsExact is case C03.
func TestCommandTextIsExact(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		body := "it's \"q\" $HOME `id` \\ back\\\\slash\n\n\ta tab \\n\n"
		sh(t, i, id, "cat > /mnt/data/f <<'END'\n"+body+"END\n: # a comment with 'one quote")
		sum := sha256.Sum256([]byte(body))
		if got, want := sh(t, i, id, "sha256sum < /mnt/data/f | cut -d' ' -f1"), hex.EncodeToString(sum[:])+"\n"; got != want {
			t.Errorf("the file is %q, hash %s, want %s", sh(t, i, id, "cat /mnt/data/f"), got, want)
		}

		c := call(t, i, in(id, "echo 'open", "echo second", `printf '%s|' a\ b "c d"`, "echo one \\\n two"))
		var got [][2]string
		for _, out := range c.Output.Output {
			got = append(got, [2]string{exitCode(out), out.Stdout})
		}
		want := [][2]string{{"2", ""}, {"0", "second\n"}, {"0", "a b|c d|"}, {"0", "one two\n"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}

		// Longer than one argument of a program can be.
		long := "x='" + strings.Repeat("0123456789", 20_000) + "'; echo ${#x} $# $0"
		if got := sh(t, i, id, long); got != "200000 0 /bin/bash\n" && got != "200000 0 /bin/sh\n" {
			t.Errorf("a long command printed %q", got)
		}
	})
}

// TestCommandsRunTogether: two commands of a call each wait for the other.
func TestCommandsRunTogether(t *testing.T) {
	eachShared(t, func(t *testing.T, i *instance) {
		id := create(t, i)
		wait := "until test -e /mnt/data/%s; do sleep 0.01; done; echo %s"
		c := call(t, i, timeout(in(id,
			"touch /mnt/data/a; "+fmt.Sprintf(wait, "b", "first"),
			"touch /mnt/data/b; "+fmt.Sprintf(wait, "a", "second"),
			"sleep 100",
		), 3*time.Second))
		var got []string
		for _, out := range c.Output.Output {
			got = append(got, exitCode(out)+" "+out.Stdout)
		}
		// The third shows that the time is each command's own.
		if diff := cmp.Diff([]string{"0 first\n", "0 second\n", "timeout "}, got); diff != "" {
			t.Error(diff)
		}
	})
}
