package limit

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The controllers that this package uses. The freezer is a controller only on
// v1; on v2 every cgroup can be frozen and killed.
const (
	ctlMemory  = "memory"
	ctlPids    = "pids"
	ctlCPU     = "cpu"
	ctlFreezer = "freezer"
)

// hierarchy is one mounted cgroup file system.
type hierarchy struct {
	// dir is the mount point.
	dir string
	// root is the cgroup that is visible at dir, "/" unless a part is mounted.
	root string
	// controllers are those of a v1 hierarchy; of v2 they are not listed, since
	// each cgroup has its own set.
	controllers []string
	v2          bool
}

func (h hierarchy) has(controller string) bool {
	return h.v2 || slices.Contains(h.controllers, controller)
}

// mounted returns the cgroup file systems mounted at or below root, in the
// order of mounting.
func mounted(root string) ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	defer func() { _ = f.Close() }()
	return parseMountinfo(f, root)
}

// parseMountinfo picks the cgroup mounts at or below root out of the text of
// /proc/<pid>/mountinfo, see proc_pid_mountinfo(5).
func parseMountinfo(r io.Reader, root string) ([]hierarchy, error) {
	var hs []hierarchy
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		// 36 35 0:28 /root /mount/point options tags... - type source super
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 3 {
			continue
		}
		h := hierarchy{root: unescape(left[3]), dir: unescape(left[4])}
		if h.dir != root && !strings.HasPrefix(h.dir, strings.TrimSuffix(root, "/")+"/") {
			continue
		}
		switch right[0] {
		case "cgroup2":
			h.v2 = true
		case "cgroup":
			h.controllers = strings.Split(right[2], ",")
		default:
			continue
		}
		hs = append(hs, h)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mountinfo: %w", err)
	}
	return hs, nil
}

// unescape undoes the \ooo escapes that the kernel puts in place of blanks.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// pickV1 returns the v1 hierarchies that runs need, each once. The freezer is
// last, so that a thread that shows up in it is under all limits already.
func pickV1(hs []hierarchy) []hierarchy {
	var picked []hierarchy
	for _, controller := range []string{ctlMemory, ctlPids, ctlCPU, ctlFreezer} {
		i := slices.IndexFunc(hs, func(h hierarchy) bool { return !h.v2 && h.has(controller) })
		if i < 0 {
			continue
		}
		picked = slices.DeleteFunc(picked, func(h hierarchy) bool { return h.dir == hs[i].dir })
		picked = append(picked, hs[i])
	}
	return picked
}

// unified returns the v2 hierarchy mounted exactly at root, as runc decides it
// too: what is mounted elsewhere beside v1 hierarchies has no controllers.
func unified(hs []hierarchy, root string) (hierarchy, bool) {
	// The last mount on a path hides earlier ones.
	for _, h := range slices.Backward(hs) {
		if h.dir == root {
			return h, h.v2
		}
	}
	return hierarchy{}, false
}

// ownCgroup returns the path of this process's cgroup in the v2 hierarchy h,
// relative to its mount point. It is false when the cgroup is not visible
// there.
func ownCgroup(h hierarchy) (string, bool, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", false, fmt.Errorf("read own cgroup: %w", err)
	}
	rel, ok := parseOwnCgroup(string(text), h.root)
	return rel, ok, nil
}

// parseOwnCgroup finds the v2 line of the text of /proc/<pid>/cgroup and makes
// its path relative to the cgroup mounted as root, see cgroups(7).
func parseOwnCgroup(text, root string) (string, bool) {
	for line := range strings.Lines(text) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return "", false
		}
		return filepath.Join("/", rel), !strings.HasPrefix(path, "/..")
	}
	return "", false
}
