package engine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/sandbox"
)

// Host is where the requirements of an engine are looked up. The zero value is
// this machine; tests give their own files.
type Host struct {
	// Proc, Etc replace "/proc" and "/etc".
	Proc, Etc string
	// Release replaces the kernel's release, such as "6.1.0-13-amd64".
	Release string
	// User, UID, GID replace the calling user; User "" is the calling user.
	User     string
	UID, GID int
	// LookPath replaces [exec.LookPath].
	LookPath func(name string) (string, error)
}

// minSubIDs is the fewest subordinate ids that an engine works with; each
// sandbox takes two. Usual are 65536.
const minSubIDs = 4096

func (h Host) withDefaults() (Host, error) {
	if h.Proc == "" {
		h.Proc = "/proc"
	}
	if h.Etc == "" {
		h.Etc = "/etc"
	}
	if h.LookPath == nil {
		h.LookPath = exec.LookPath
	}
	if h.Release == "" {
		var uts unix.Utsname
		if err := unix.Uname(&uts); err != nil {
			return h, fmt.Errorf("ask for the kernel's release: %w", err)
		}
		h.Release = unix.ByteSliceToString(uts.Release[:])
	}
	if h.User == "" {
		h.UID, h.GID = os.Geteuid(), os.Getegid()
		h.User = strconv.Itoa(h.UID)
		if u, err := user.LookupId(h.User); err == nil {
			h.User = u.Username
		}
	}
	return h, nil
}

// Require reports whether an engine can run: nil, or an error that says what
// is missing and how to get it. Such an error matches
// [sandbox.ErrUnavailable] and has the code [sandbox.CodeNotReady].
func Require(h Host, dirs Dirs, mode Mode) error {
	h, err := h.withDefaults()
	if err != nil {
		return err
	}
	checks := []func() error{
		func() error { return requireKernel(h.Release) },
		func() error { return requireBinaries(dirs.Libexec) },
		func() error { return requireTool(h, "nsenter", "util-linux") },
	}
	if mode == ModeRootless {
		checks = append(checks,
			func() error { return requireUserNamespaces(h) },
			func() error { return requireTool(h, "newuidmap", "uidmap") },
			func() error { return requireTool(h, "newgidmap", "uidmap") },
			func() error { _, _, err := subordinateIDs(h); return err },
		)
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func notReady(format string, args ...any) error {
	return sandbox.Unavailable(sandbox.CodeNotReady, nil, format, args...)
}

// requireKernel: 5.14 has cgroup.kill and recursive read-only mounts.
func requireKernel(release string) error {
	const wantMajor, wantMinor = 5, 14
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("parse kernel release %q: %w", release, err)
	}
	if major > wantMajor || major == wantMajor && minor >= wantMinor {
		return nil
	}
	return notReady("the kernel is %s, but sandboxes need %d.%d or later; install a newer kernel, for example by upgrading the distribution", release, wantMajor, wantMinor)
}

func requireBinaries(libexec string) error {
	for _, name := range []string{binContainerd, binShim, binRunc, binInit} {
		info, err := os.Stat(filepath.Join(libexec, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return notReady("%s is missing or not executable; run 'make build' in the source tree, or 'make install', and point libexec there", filepath.Join(libexec, name))
		}
	}
	return nil
}

func requireTool(h Host, name, pkg string) error {
	if _, err := h.LookPath(name); err != nil {
		return notReady("the program %s is not in PATH; install it, on Debian with 'sudo apt install %s'", name, pkg)
	}
	return nil
}

func requireUserNamespaces(h Host) error {
	for _, c := range []struct{ sysctl, bad, why string }{
		{"user.max_user_namespaces", "0", "user namespaces are switched off"},
		{"kernel.unprivileged_userns_clone", "0", "user namespaces are switched off for ordinary users"},
	} {
		if value, ok := sysctl(h.Proc, c.sysctl); ok && value == c.bad {
			good := "1"
			if c.sysctl == "user.max_user_namespaces" {
				good = "65536"
			}
			return notReady("%s (%s = %s), and sandboxes without root need them; run 'sudo sysctl -w %s=%s' and, to keep it, 'echo %s=%s | sudo tee /etc/sysctl.d/60-shelld.conf'",
				c.why, c.sysctl, c.bad, c.sysctl, good, c.sysctl, good)
		}
	}
	// With that setting AppArmor takes all rights from user namespaces of
	// programs that have no profile.
	const restrict = "kernel.apparmor_restrict_unprivileged_userns"
	if value, ok := sysctl(h.Proc, restrict); ok && value == "1" && apparmorLabel(h.Proc) == "unconfined" {
		return notReady("AppArmor forbids user namespaces to programs without a profile (%s = 1), and shelld has none here; run 'sudo sysctl -w %s=0' and, to keep it, 'echo %s=0 | sudo tee /etc/sysctl.d/60-shelld.conf'", restrict, restrict, restrict)
	}
	return nil
}

func sysctl(proc, name string) (string, bool) {
	data, err := os.ReadFile(filepath.Join(proc, "sys", strings.ReplaceAll(name, ".", "/")))
	return strings.TrimSpace(string(data)), err == nil
}

// apparmorLabel is the profile of this process; "unconfined" when it has none
// or when there is no telling.
func apparmorLabel(proc string) string {
	for _, name := range []string{"self/attr/apparmor/current", "self/attr/current"} {
		if data, err := os.ReadFile(filepath.Join(proc, name)); err == nil {
			return strings.TrimSpace(strings.TrimRight(string(data), "\x00"))
		}
	}
	return "unconfined"
}

// subordinateIDs returns the user's ranges of subordinate user and group ids.
func subordinateIDs(h Host) (uids, gids []subRange, err error) {
	for _, kind := range []struct {
		file, option string
		id           int
		into         *[]subRange
	}{
		{"subuid", "--add-subuids", h.UID, &uids},
		{"subgid", "--add-subgids", h.UID, &gids},
	} {
		all, err := readSubIDs(filepath.Join(h.Etc, kind.file))
		if err != nil {
			return nil, nil, err
		}
		*kind.into = ownedBy(all, h.User, kind.id)
	}
	if total(uids) >= minSubIDs && total(gids) >= minSubIDs {
		return uids, gids, nil
	}
	start, err := freeSubRange(h)
	if err != nil {
		return nil, nil, err
	}
	end := start + 65535
	return nil, nil, notReady("user %s has %d subordinate user ids and %d subordinate group ids, but sandboxes without root need at least %d of each; run 'sudo usermod --add-subuids %d-%d --add-subgids %d-%d %s'",
		h.User, total(uids), total(gids), minSubIDs, start, end, start, end, h.User)
}

// freeSubRange returns the start of 65536 ids that no line of subuid or subgid
// touches. Distributions give them out from 100000.
func freeSubRange(h Host) (uint32, error) {
	uids, err1 := readSubIDs(filepath.Join(h.Etc, "subuid"))
	gids, err2 := readSubIDs(filepath.Join(h.Etc, "subgid"))
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	start := uint32(100000)
	for _, r := range append(uids, gids...) {
		if end := r.start + r.count; end > start && end < idBase-65536 {
			start = end
		}
	}
	return start, nil
}
