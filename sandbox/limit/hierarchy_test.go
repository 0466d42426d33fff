package limit

import (
	"slices"
	"strings"
	"testing"
)

// Mount tables as found on machines of each kind.
const (
	tableV2 = `25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
29 25 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`
	tableV1 = `31 23 0:28 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
32 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 master:2 - cgroup cgroup rw,cpu,cpuacct
34 31 0:31 /docker/1\0402 /sys/fs/cgroup/with\040blank rw - cgroup cgroup rw,memory
35 31 0:32 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer
36 31 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
37 31 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
38 31 0:31 / /mnt/elsewhere rw - cgroup cgroup rw,memory
39 31 0:31 / /sys/fs/cgroups/memory rw - cgroup cgroup rw,memory
broken line
`
	tableJoint = `33 31 0:30 / /c/all rw - cgroup cgroup rw,freezer,memory,pids
34 31 0:31 / /c/cpu rw - cgroup cgroup rw,cpu
`
)

func TestParseMountinfo(t *testing.T) {
	t.Parallel()
	hs, err := parseMountinfo(strings.NewReader(tableV1), "/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if len(hs) != 6 {
		t.Errorf("%d hierarchies, want 6: %+v", len(hs), hs)
	}
	if _, ok := unified(hs, "/sys/fs/cgroup"); ok {
		t.Error("a hybrid machine taken for a unified one")
	}
	if h, ok := unified(hs, "/sys/fs/cgroup/unified"); !ok || h.root != "/" {
		t.Errorf("unified = %+v, %v", h, ok)
	}
	if h := hs[2]; h.root != "/docker/1 2" || h.dir != "/sys/fs/cgroup/with blank" {
		t.Errorf("escapes: %+v", h)
	}
	checkDirs(t, pickV1(hs), "/sys/fs/cgroup/with blank", "/sys/fs/cgroup/pids", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/freezer")

	hs, err = parseMountinfo(strings.NewReader(tableV2), "/sys/fs/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if h, ok := unified(hs, "/sys/fs/cgroup"); !ok || h.dir != "/sys/fs/cgroup" || !h.has(ctlMemory) {
		t.Errorf("unified = %+v, %v", h, ok)
	}
	checkDirs(t, pickV1(hs))

	hs, err = parseMountinfo(strings.NewReader(tableJoint), "/c")
	if err != nil {
		t.Fatal(err)
	}
	checkDirs(t, pickV1(hs), "/c/cpu", "/c/all")
}

func checkDirs(t *testing.T, hs []hierarchy, want ...string) {
	t.Helper()
	var got []string
	for _, h := range hs {
		got = append(got, h.dir)
	}
	if !slices.Equal(got, want) {
		t.Errorf("hierarchies %q, want %q", got, want)
	}
}

func TestParseOwnCgroup(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, root, want string
		ok               bool
	}{
		{"0::/user.slice/a.scope\n", "/", "/user.slice/a.scope", true},
		{"9:name=systemd:/x\n0::/\n", "/", "/", true},
		{"0::/docker/1/sub\n", "/docker/1", "/sub", true},
		{"0::/docker/1\n", "/docker/1", "/", true},
		{"0::/other\n", "/docker/1", "", false},
		{"0::/../../outside\n", "/", "", false},
		{"1:cpu:/\n", "/", "", false},
	} {
		got, ok := parseOwnCgroup(c.text, c.root)
		if ok != c.ok || ok && got != c.want {
			t.Errorf("parseOwnCgroup(%q, %q) = %q, %v", c.text, c.root, got, ok)
		}
	}
}

func TestCommonAncestor(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"/", "/a/b", "/"},
		{"/user.slice/u.service/app.slice/x", "/user.slice/u.service/app.slice/y.scope/z", "/user.slice/u.service/app.slice"},
		{"/a/bc", "/a/b", "/a"},
		{"/a", "/a/b", "/a"},
	} {
		if got := commonAncestor(c[0], c[1]); got != c[2] {
			t.Errorf("commonAncestor(%q, %q) = %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestParsePids(t *testing.T) {
	t.Parallel()
	if pids, err := parsePids("12\n0\n7\n12\n"); !slices.Equal(pids, []int{7, 12}) || err != nil {
		t.Errorf("parsePids = %v, %v", pids, err)
	}
	if _, err := parsePids("x\n"); err == nil {
		t.Error("parsePids takes what is no number")
	}
}
