package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/shelld/shelld/sandbox"
)

// liveShims returns the shims of an engine.
func liveShims(t *testing.T, e *Engine) []int {
	t.Helper()
	found, err := e.shims()
	if err != nil {
		t.Fatal(err)
	}
	pids, err := found.candidates()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(pids, func(pid int) bool {
		user, mount, err := found.namespaces(pid)
		if err != nil {
			return true
		}
		if err := errors.Join(user.Close(), mount.Close()); err != nil {
			t.Error(err)
		}
		return false
	})
}

// A process that pretends to be a shim, in namespaces of its own where another
// program lies in the place of the engine's, is neither joined nor killed.
func TestEngineJoinsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	asRoot := []string{}
	if hostMode() == ModeRootless {
		asRoot = []string{"--user", "--map-root-user"}
	}
	for name, flags := range map[string][]string{
		"mount namespace":          {"--mount"},
		"mount and pid namespace":  {"--mount", "--pid", "--fork", "--kill-child"},
		"mount and user namespace": {"--mount", "--user", "--map-root-user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := openEngine(t)
			marker := filepath.Join(e.opts.Root, "forged-ran")
			forged := filepath.Join(e.opts.Root, "forged")
			write(t, e.opts.Root, "forged", "#!/bin/sh\nid >"+marker+"\n")
			if err := os.Chmod(forged, 0o755); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(flags, "--user") {
				flags = append(flags, asRoot...)
			}
			key := sandbox.NewID().Key()
			script := fmt.Sprintf("mount --bind %s %s && exec -a %s bash -c 'echo up; read -r _' bash -address %s -id %s",
				forged, exe, binShim, e.address(), key)
			cmd := exec.Command("unshare", append(slices.Clone(flags), "bash", "-c", script)...)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fscanln(stdout, new(string)); err != nil {
				t.Fatalf("the forged shim does not start: %v", err)
			}
			found, err := e.shims()
			if err != nil {
				t.Fatal(err)
			}
			if pids, err := found.candidates(); err != nil || len(pids) != 1 {
				t.Fatalf("candidates = %v, %v; want the forged shim", pids, err)
			}
			if pids := liveShims(t, e); len(pids) != 0 {
				t.Errorf("live shims = %v; want none", pids)
			}
			killEngine(t, e)
			ready(t, e)
			if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the program in the forged shim's namespace ran: %v", err)
			}
			instance := create(t, e)
			wantRunning(t, e, instance)
			// Next to a real one, it changes nothing either.
			killEngine(t, e)
			ready(t, e)
			listedRunning(t, e, instance)
			answers(t, e, instance.ID)
			if _, err := os.Stat(marker); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the program in the forged shim's namespace ran: %v", err)
			}
			if err := e.killShim(key); err != nil {
				t.Errorf("kill shim: %v", err)
			}
			// It ends by its input alone, so nobody has killed it.
			if err := errors.Join(stdin.Close(), ignoreExit(cmd.Wait())); err != nil {
				t.Error(err)
			}
			if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signaled() {
				t.Errorf("the forged shim was killed: %v", cmd.ProcessState)
			}
		})
	}
}

// killEngine kills the engine process and its holder.
func killEngine(t *testing.T, e *Engine) {
	t.Helper()
	holder := holderOf(t, e).PID
	kill9(t, enginePID(t, e.opts.Dirs))
	kill9(t, holder)
}

// A shim of before an upgrade, whose file has been replaced, is joined.
func TestEngineJoinsShimOfBeforeAnUpgrade(t *testing.T) {
	t.Parallel()
	e := openEngine(t, func(o *Options) {
		whole := o.Libexec
		o.Libexec = filepath.Join(filepath.Dir(o.Root), "libexec")
		if err := os.Mkdir(o.Libexec, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{binContainerd, binShim, binRunc, binInit} {
			copyFile(t, filepath.Join(whole, name), filepath.Join(o.Libexec, name))
		}
	})
	instance := create(t, e)
	shim := e.opts.binary(binShim)
	copyFile(t, shim, shim+".new")
	if err := os.Rename(shim+".new", shim); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(procFile(parent(t, instance.PID), "exe")); err != nil || !strings.HasSuffix(target, "(deleted)") {
		t.Fatalf("the shim runs %q, %v; want a deleted file", target, err)
	}
	killEngine(t, e)
	ready(t, e)
	listedRunning(t, e, instance)
	if after := create(t, e); after.PID == 0 {
		t.Errorf("created = %+v", after)
	}
}

// listedRunning waits until a sandbox is listed as running.
func listedRunning(t *testing.T, e *Engine, instance sandbox.Instance) {
	t.Helper()
	eventually(t, "the sandbox is listed as running", func() bool { return slices.Contains(list(t, e), instance) })
}
