package engine

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/shelld/shelld/sandbox"
)

// envRunBase names a directory below /run in which an ordinary user may make
// directories; root needs none.
const envRunBase = "SHELLD_TEST_RUN"

// The usual run directory lies below /run, which the holder replaces; here it
// is even named by the old path of that.
func TestEngineRunsBelowRun(t *testing.T) {
	t.Parallel()
	if target, err := filepath.EvalSymlinks("/var/run"); err != nil || target != "/run" {
		notHere(t, "/var/run is %q (%v) and not /run", target, err)
	}
	base := os.Getenv(envRunBase)
	if base == "" {
		base = "/run"
	}
	dir, err := os.MkdirTemp(base, "engine-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	e := openEngine(t, func(o *Options) { o.Run = filepath.Join("/var", dir, "shelld") })
	instance := create(t, e)
	answers(t, e, instance.ID)
	kill9(t, holderOf(t, e).PID)
	ready(t, e)
	wantRunning(t, e, instance)
	holder := holderOf(t, e).PID
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/run", holder))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(dir, "/run/"), "/")
	wantNames(t, fmt.Sprintf("/proc/%d/root/run", holder), []string{"containerd", first})
	if len(entries) != 2 {
		t.Errorf("the private /run holds %v", entries)
	}
}

// A reboot ends all processes and empties the run directory.
func TestEngineSurvivesReboot(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	instance := create(t, e)
	kill9(t, enginePID(t, e.opts.Dirs))
	kill9(t, holderOf(t, e).PID)
	shims := liveShims(t, e)
	if len(shims) != 1 {
		t.Fatalf("live shims = %v; want one", shims)
	}
	kill9(t, shims[0])
	kill9(t, instance.PID)
	// The cgroups that the runtime made are the only thing that this reboot
	// does not take.
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/*/*/*/", "/sys/fs/cgroup/"} {
		for _, dir := range glob(t, pattern+instance.ID.Key()) {
			eventually(t, dir+" is removed", func() bool { return os.Remove(dir) == nil })
		}
	}
	for _, path := range glob(t, e.opts.Run+"/*") {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	ready(t, e)
	wantRunning(t, e, sandbox.Instance{ID: instance.ID})
	if err := e.Delete(t.Context(), instance.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	after := create(t, e)
	wantRunning(t, e, after)
	if err := e.Delete(t.Context(), after.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
}

// An engine can use a containerd that is there already, next to others.
func TestEngineUsesExistingContainerd(t *testing.T) {
	t.Parallel()
	owner := openEngine(t)
	opts := Options{Dirs: testDirs(t), Address: owner.address()}
	if hostMode() != ModeRoot {
		_, err := Open(t.Context(), opts)
		checkRefusal(t, hostMode(), err, "only be used by root")
		return
	}
	// The existing one finds its own runtime in PATH, as ours does.
	guest := openEngineIn(t, opts)
	if info := guest.Info(t.Context()); info.Address != owner.address() || info.ContainerdVersion == "" {
		t.Errorf("info = %+v", info)
	}
	theirs, ours := create(t, owner), create(t, guest)
	wantRunning(t, owner, theirs)
	wantRunning(t, guest, ours)
	answers(t, guest, ours.ID)
	if err := owner.Delete(t.Context(), ours.ID); err != nil {
		t.Errorf("delete of another instance's sandbox: %v", err)
	}
	wantRunning(t, guest, ours)
	if err := guest.Delete(t.Context(), ours.ID); err != nil {
		t.Errorf("delete: %v", err)
	}
	wantRunning(t, guest)
	wantRunning(t, owner, theirs)
}

// A sandbox takes the cgroup that it is given, and leaves none.
func TestEngineCgroup(t *testing.T) {
	t.Parallel()
	if hostMode() != ModeRoot {
		return // an ordinary user has no cgroup to give here
	}
	name := "shelld-test-" + strconv.Itoa(os.Getpid())
	t.Cleanup(func() {
		for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
			for _, dir := range glob(t, pattern+name) {
				if err := os.Remove(dir); err != nil {
					t.Error(err)
				}
			}
		}
	})
	e := openEngine(t)
	id := sandbox.NewID()
	path := "/" + name + "/" + id.Key()
	instance, err := e.Create(t.Context(), sandbox.BoxSpec{ID: id, Image: sandbox.ImageHost, CgroupPath: path})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	for line := range strings.Lines(readProc(t, instance.PID, "cgroup")) {
		if !strings.HasSuffix(strings.TrimSpace(line), ":"+path) {
			t.Errorf("cgroup %s; want %s", line, path)
		}
	}
	if err := e.Delete(t.Context(), id); err != nil {
		t.Errorf("delete: %v", err)
	}
	nothingLeft(t, e, instance)
}

// A host path that is not there, as after the removal of a package, costs
// nothing but itself.
func TestEngineMissingHostPath(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e := openEngine(t, func(o *Options) {
		o.HostPaths = []string{"/no/such/folder"}
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	instance := create(t, e)
	answers(t, e, instance.ID)
	if !strings.Contains(log.String(), "/no/such/folder") || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("log = %q; want a warning", log.String())
	}
}

// What a command of the sandbox sees, apart from seccomp, which nsenter does
// not bring.
func TestEngineProgramsOfTheHostRun(t *testing.T) {
	t.Parallel()
	e := openEngine(t)
	instance := create(t, e)
	inside := func(script string) (string, error) {
		cmd := exec.Command("nsenter", "-t", strconv.Itoa(instance.PID), "-U", "-m", "-p", "-n", "-i", "-u", "-S", "1000", "-G", "1000", "--", "/bin/sh", "-c", script)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/home/sandbox"}
		out, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	for script, want := range map[string]string{
		"id -u":                                  "1000",
		"id -un":                                 "sandbox",
		"hostname":                               "sandbox",
		"ls /home":                               "sandbox",
		"cat /proc/sys/user/max_user_namespaces": "0",
		"echo x >/mnt/data/f && cat /mnt/data/f": "x",
		"for d in ~ /tmp /var/tmp /dev/shm; do : >$d/f && rm $d/f || echo $d; done":                           "",
		"for d in / /usr /etc /root /run /opt /var /.shelld; do (: >$d/f) 2>/dev/null && echo $d; done; true": "",
		"ls /.shelld 2>/dev/null; ls /.shelld/run 2>/dev/null; true":                                          "",
	} {
		if got, err := inside(script); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", script, got, err, want)
		}
	}
}
