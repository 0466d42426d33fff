package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestCrashRunsNoHandler: a crash in a sandbox does not reach the core handler
// of the host, which runs there as root. It changes the host's handler, so it
// runs alone.
func TestCrashRunsNoHandler(t *testing.T) {
	if os.Geteuid() != 0 {
		notHere(t, "only root can set a core handler")
	}
	old := readFile(t, corePatternFile)
	saved := filepath.Join(base, corePatternSaved)
	if err := os.WriteFile(saved, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.WriteFile(corePatternFile, []byte(old), 0o644), os.Remove(saved)); err != nil {
			t.Error(err)
		}
	})
	handler, crashes := filepath.Join(base, "handler"), filepath.Join(base, "crashes")
	script := fmt.Sprintf("#!/bin/sh\ncat >/dev/null\necho \"$1\" >> %s\n", crashes)
	if err := os.WriteFile(handler, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	// It gets the name of the program that crashed: others may crash meanwhile.
	if err := os.WriteFile(corePatternFile, []byte("|"+handler+" %e"), 0o644); err != nil {
		notHere(t, "the core handler cannot be set: %v", err)
	}
	const name = "e2e-crash"
	crash := func(dir string) string {
		return fmt.Sprintf("cp /bin/sh %[1]s/%[2]s; ulimit -c unlimited 2>&1; %[1]s/%[2]s -c 'kill -SEGV $$'; echo rc=$?; ulimit -c 0; %[1]s/%[2]s -c 'kill -ABRT $$'; echo rc=$?", dir, name)
	}
	for _, m := range []mode{asRoot, rootless} {
		t.Run(string(m), func(t *testing.T) {
			m.need(t)
			i, err := sharedInstance(m)
			if err != nil {
				t.Fatal(err)
			}
			id := create(t, i)
			out := sh(t, i, id, crash("/mnt/data"))
			if !strings.Contains(out, "rc=139\n") || !strings.Contains(out, "rc=134\n") {
				t.Errorf("it did not crash: %q", out)
			}
			c := call(t, i, in(id, "kill -SEGV $$", "cp /bin/sh /tmp/"+name+"; exec /tmp/"+name+" -c 'kill -QUIT $$'"))
			if c.Results[0].Reason != "signal" || c.Results[1].Reason != "signal" {
				t.Errorf("got %+v", c.Results)
			}
			if files := sh(t, i, id, "ls /mnt/data"); files != name+"\n" {
				t.Errorf("a core file was left: %q", files)
			}
			t.Logf("in the sandbox: %q", out)
		})
	}
	// Now the same where it must reach the handler, which also shows that it
	// would have been called by now.
	cmd := exec.Command("sh", "-c", crash(base))
	cmd.Dir = base
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "rc=139\n") {
		t.Fatalf("control: %q, %v", out, err)
	}
	eventually(t, "the handler is called for the crash on the host", patience, func() bool {
		data, err := os.ReadFile(crashes)
		return err == nil && strings.Contains(string(data), name)
	})
	seen := strings.Count("\n"+readFile(t, crashes), "\n"+name+"\n")
	t.Logf("the handler was called %d times, for the host", seen)
	// SIGSEGV with a limit, and SIGABRT without one: a pipe is called for both.
	if seen > 2 {
		t.Errorf("the handler was called %d times", seen)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func readDir(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
