package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// userPrefix begins the name of the users that are made for these tests; the
// id of the test process follows.
const userPrefix = "sde2e"

// person is the ordinary user as whom rootless daemons run.
type person struct {
	name     string
	uid, gid uint32
}

// ordinary is that user; nil when there is none, for the reason in noUser.
var (
	ordinary *person
	noUser   string
)

// makeUser makes the ordinary user with a range of subordinate ids. Tests that
// do not run as root take the user that they run as.
func makeUser() error {
	if os.Geteuid() != 0 {
		ordinary = &person{name: strconv.Itoa(os.Geteuid()), uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
		return nil
	}
	for _, tool := range []string{"useradd", "userdel", "usermod", "newuidmap"} {
		if _, err := exec.LookPath(tool); err != nil {
			noUser = tool + " is not installed"
			return nil
		}
	}
	name := userPrefix + strconv.Itoa(os.Getpid())
	// Noted first, so that a sweep finds the user in any case.
	if err := os.WriteFile(filepath.Join(base, "user"), []byte(name), 0o600); err != nil {
		return err
	}
	if err := tool("useradd", "--no-create-home", "--home-dir", base, "--shell", "/usr/sbin/nologin", name); err != nil {
		return err
	}
	if !hasSubIDs("/etc/subuid", name) || !hasSubIDs("/etc/subgid", name) {
		// The ids of a process are unique, and no two ranges so close overlap.
		start := 1_000_000_000 + os.Getpid()*65536%1_000_000_000
		ids := fmt.Sprintf("%d-%d", start, start+65535)
		if err := tool("usermod", "--add-subuids", ids, "--add-subgids", ids, name); err != nil {
			return err
		}
	}
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return err
	}
	ordinary = &person{name: name, uid: uint32(uid), gid: uint32(gid)}
	return nil
}

// removeUser removes a user of these tests, if it is there.
func removeUser(name string) error {
	if !strings.HasPrefix(name, userPrefix) {
		return fmt.Errorf("user %q is none of ours", name)
	}
	if _, err := user.Lookup(name); err != nil {
		return nil
	}
	return tool("userdel", name)
}

// tool runs a tool that changes the user database, which only one may at a
// time.
func tool(name string, args ...string) error {
	var out []byte
	var err error
	ok := poll(patience, func() bool {
		out, err = exec.Command(name, args...).CombinedOutput()
		return err == nil || !bytes.Contains(out, []byte("cannot lock"))
	})
	if err != nil {
		return fmt.Errorf("%s (waited for the lock: %v): %w: %s", name, !ok, err, out)
	}
	return nil
}

func hasSubIDs(file, name string) bool {
	data, err := os.ReadFile(file)
	return err == nil && strings.Contains("\n"+string(data), "\n"+name+":")
}

// notHere skips the test, or fails it where everything has to be there.
func notHere(t *testing.T, format string, args ...any) {
	t.Helper()
	text := "not here: " + fmt.Sprintf(format, args...)
	if os.Getenv("SHELLD_REQUIRE") == "1" {
		t.Fatal(text)
	}
	t.Skip(text)
}
