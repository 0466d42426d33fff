package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testUser is how the names of the users that this test makes begin; the
// process id of the test follows.
const testUser = "shelldtest"

// TestRootless runs the tests of the engine once more as an ordinary user that
// it makes and removes.
func TestRootless(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("already an ordinary user")
	}
	libexec := bundle(t)
	for _, tool := range []string{"useradd", "userdel", "usermod", "newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(tool); err != nil {
			notHere(t, "%s: %v", tool, err)
		}
	}
	removeOldUsers(t)
	u := makeUser(t)

	// The user can enter neither go's directory nor, perhaps, the bundle's.
	base, err := os.MkdirTemp("/tmp", "engine-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(base, "engine.test")
	copyFile(t, exe, program)
	for _, name := range []string{binContainerd, binShim, binRunc, binInit} {
		copyFile(t, filepath.Join(libexec, name), filepath.Join(base, name))
	}

	runBase, err := os.MkdirTemp("/run", "engine-user-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(runBase); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chown(runBase, int(u.Uid), int(u.Gid)); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeoutCause(t.Context(), 4*time.Minute, errors.New("the tests took too long"))
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run=^TestEngine", "-test.v", "-test.count=1", "-test.parallel=2")
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), envBundle + "=" + base, envRequire + "=" + os.Getenv(envRequire), envRunBase + "=" + runBase}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: u}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		t.Errorf("as user %d: %v\n%s", u.Uid, err, output.Bytes())
	}
	if bytes.Contains(output.Bytes(), []byte("--- SKIP")) || !bytes.Contains(output.Bytes(), []byte("--- PASS: TestEngineLife")) {
		t.Errorf("as user %d: tests were left out\n%s", u.Uid, output.Bytes())
	}
	t.Logf("as user %d: %d tests passed", u.Uid, bytes.Count(output.Bytes(), []byte("--- PASS")))
}

// makeUser makes a user with subordinate ids for the time of the test.
func makeUser(t *testing.T) *syscall.Credential {
	t.Helper()
	name := testUser + strconv.Itoa(os.Getpid())
	host, err := Host{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	start, err := freeSubRange(host)
	if err != nil {
		t.Fatal(err)
	}
	ids := fmt.Sprintf("%d-%d", start, start+65535)
	t.Cleanup(func() { removeUser(t, name) })
	run(t, "useradd", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", name)
	// useradd may have given ranges by itself.
	if _, _, err := subordinateIDs(Host{User: name, UID: -1, GID: -1}); err != nil {
		run(t, "usermod", "--add-subuids", ids, "--add-subgids", ids, name)
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// removeOldUsers removes what killed runs of this test have left.
func removeOldUsers(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		name, _, _ := strings.Cut(line, ":")
		digits, ok := strings.CutPrefix(name, testUser)
		pid, err := strconv.Atoi(digits)
		if ok && err == nil && gone(pid) {
			removeUser(t, name)
		}
	}
}

// removeUser removes a user and the processes and files that are his or his
// subordinate ids'.
func removeUser(t *testing.T, name string) {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		return
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := readSubIDs("/etc/subuid")
	if err != nil {
		t.Fatal(err)
	}
	ids := append(ownedBy(ranges, name, int(uid)), subRange{start: uint32(uid), count: 1})
	eventually(t, "no process of user "+name+" is left", func() bool {
		pids := owned(t, ids)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
		}
		return len(pids) == 0
	})
	for _, dir := range glob(t, "/tmp/engine-test-*") {
		if info, err := os.Stat(dir); err == nil && owns(ids, info) {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
		}
	}
	run(t, "userdel", name)
}

// owned returns the processes that belong to one of the ids.
func owned(t *testing.T, ids []subRange) []int {
	t.Helper()
	var pids []int
	for _, dir := range glob(t, "/proc/[0-9]*") {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if info, err := os.Stat(dir); err == nil && owns(ids, info) && !gone(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func owns(ids []subRange, info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && slices.ContainsFunc(ids, func(r subRange) bool { return stat.Uid >= r.start && stat.Uid-r.start < r.count })
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}
