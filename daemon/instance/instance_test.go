package instance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// helperVar makes the test binary a process that claims the folder it names.
const (
	helperVar = "SHELLD_INSTANCE_TEST"
	// childVar makes that process start another that outlives it.
	childVar = "SHELLD_INSTANCE_TEST_CHILD"
)

func TestMain(m *testing.M) {
	root := os.Getenv(helperVar)
	if root == "" {
		m.Run()
		return
	}
	if err := hold(root); err != nil {
		fmt.Fprintln(os.Stdout, "error:", err)
		os.Exit(1) //nolint:forbidigo // this is a main
	}
}

// hold keeps the claim until its standard input ends, as it does when the test
// dies.
func hold(root string) error {
	claim, err := Take(context.Background(), root)
	if err != nil {
		return err
	}
	if os.Getenv(childVar) != "" {
		child := exec.Command("sleep", "60")
		if err := child.Start(); err != nil {
			return err
		}
		fmt.Fprintln(os.Stdout, child.Process.Pid)
	}
	fmt.Fprintln(os.Stdout, "claimed")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, claim.Close())
}

type process struct {
	*exec.Cmd
	lines *bufio.Reader
}

// start runs a process that claims root; it is killed at the end of the test.
func start(t *testing.T, root string, env ...string) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), helperVar+"="+root), env...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // a stopped one ends too
		_ = cmd.Wait()
	})
	return &process{Cmd: cmd, lines: bufio.NewReader(stdout)}
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("read output of process: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func TestTake(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "a", "state")
	claim, err := Take(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{
		root: 0o700, filepath.Join(root, lockName): 0o600, filepath.Join(root, markerName): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want mode %o", path, info.Mode(), err, want)
		}
	}
	_, err = Take(t.Context(), root)
	if want := fmt.Sprintf("another shelld (process %d) uses %s", os.Getpid(), root); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), want) {
		t.Errorf("second Take = %v, want %q", err, want)
	}
	if err := claim.Close(); err != nil {
		t.Fatal(err)
	}
	// What a life has left is no obstacle to the next.
	if err := os.WriteFile(filepath.Join(root, "state.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Take(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClaimDiesWithItsProcess(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "state")
	for range 5 {
		first := start(t, root)
		if got := first.line(t); got != "claimed" {
			t.Fatal(got)
		}
		first.signal(t, syscall.SIGKILL) // and no wait for its end
		second := start(t, root)
		if got := second.line(t); got != "claimed" {
			t.Fatalf("second start: %q", got)
		}
		second.signal(t, syscall.SIGKILL)
		_ = second.Wait()
	}
}

// TestClaimIsNotInherited stands for the engine, which outlives the daemon that
// started it.
func TestClaimIsNotInherited(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "state")
	first := start(t, root, childVar+"=1")
	child, err := strconv.Atoi(first.line(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	if got := first.line(t); got != "claimed" {
		t.Fatal(got)
	}
	first.signal(t, syscall.SIGKILL)
	_ = first.Wait()
	if err := syscall.Kill(child, 0); err != nil {
		t.Fatalf("the child is gone: %v", err)
	}
	claim, err := Take(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if err := claim.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClaimOfAStoppedProcessHolds(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "state")
	first := start(t, root)
	if got := first.line(t); got != "claimed" {
		t.Fatal(got)
	}
	first.signal(t, syscall.SIGSTOP)
	second := start(t, root)
	if got, want := second.line(t), "another shelld (process "+strconv.Itoa(first.Process.Pid)+")"; !strings.Contains(got, want) {
		t.Errorf("second start: %q, want %q", got, want)
	}
}

func TestOneOfTenClaims(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "a", "state")
	var all []*process
	for range 10 {
		all = append(all, start(t, root))
	}
	winners := 0
	for _, p := range all {
		switch line := p.line(t); {
		case line == "claimed":
			winners++
		case !strings.Contains(line, "state folder is in use"):
			t.Errorf("refused with %q", line)
		}
	}
	if winners != 1 {
		t.Errorf("%d of ten have the claim", winners)
	}
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 2 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}
