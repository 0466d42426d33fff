package hostimage

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tree makes files, directories (names that end in a slash) and links (text
// that starts with "->").
func tree(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			mkdir(t, path)
			continue
		}
		mkdir(t, filepath.Dir(path))
		if target, ok := strings.CutPrefix(text, "->"); ok {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// merged is a host with a merged /usr and the usual private things.
func merged(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	tree(t, root, map[string]string{
		"usr/bin/sh": "", "usr/bin/bash": "", "usr/bin/env": "", "usr/lib/": "",
		"usr/share/zoneinfo/Europe/Berlin": "TZif",
		"bin":                              "->usr/bin", "sbin": "->usr/sbin", "lib": "->usr/lib",
		"etc/alternatives/": "", "etc/ssl/certs/": "", "etc/ssl/private/": "", "etc/ssl/private/key.pem": "secret",
		"etc/ssl/openssl.cnf": "conf", "etc/ld.so.cache": "cache", "etc/ld.so.conf.d/a.conf": "/a",
		"etc/shadow": "root:secret", "etc/passwd": "ann:x:1000", "etc/hostname": "laptop", "etc/hosts": "10.0.0.1 corp",
		"etc/resolv.conf": "nameserver 10.0.0.1", "etc/machine-id": "0123", "etc/ssh/ssh_host_key": "secret",
		"etc/localtime":   "->../usr/share/zoneinfo/Europe/Berlin",
		"etc/python3.11/": "", "etc/npmrc": "token", "etc/environment": "TOKEN=secret", "etc/profile": "export TOKEN=secret",
		"home/ann/fonts/": "", "etc/fonts": "->../home/ann/fonts", "etc/R": "->ssl/private",
		"run/secret": "", "root/secret": "", "var/secret": "", "opt/tool/bin/": "",
	})
	return root
}

func targets(img *Image) []string {
	var names []string
	for _, m := range img.Mounts {
		names = append(names, m.Target)
	}
	return names
}

func TestDetectMergedUsr(t *testing.T) {
	t.Parallel()
	root := merged(t)
	img, err := Detect(Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := targets(img), []string{"/usr", "/etc/alternatives", "/etc/ssl/certs", "/etc/python3.11"}; !slices.Equal(got, want) {
		t.Errorf("mounts = %v; want %v", got, want)
	}
	if want := []Link{{"bin", "usr/bin"}, {"sbin", "usr/sbin"}, {"lib", "usr/lib"}}; !slices.Equal(img.Links, want) {
		t.Errorf("links = %v; want %v", img.Links, want)
	}
	if img.Shell != "/bin/bash" {
		t.Errorf("shell = %s", img.Shell)
	}
}

func TestDetectSplitUsr(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	tree(t, root, map[string]string{"usr/bin/env": "", "bin/sh": "", "lib/": "", "lib64/": "", "etc/": ""})
	img, err := Detect(Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := targets(img), []string{"/usr", "/bin", "/lib", "/lib64"}; !slices.Equal(got, want) {
		t.Errorf("mounts = %v; want %v", got, want)
	}
	if len(img.Links) != 0 || img.Shell != "/bin/sh" {
		t.Errorf("links = %v, shell = %s", img.Links, img.Shell)
	}
}

func TestDetectNamesOtherLayouts(t *testing.T) {
	t.Parallel()
	for want, files := range map[string]map[string]string{
		"NixOS":        {"nix/store/": "", "run/current-system/": "", "bin/sh": "", "usr/bin/env": ""},
		"Guix":         {"gnu/store/": "", "run/current-system/": "", "bin/sh": "", "usr/bin/env": ""},
		"/usr/bin/env": {"bin/sh": "", "usr/bin/": ""},
	} {
		root := t.TempDir()
		tree(t, root, files)
		if _, err := Detect(Options{Root: root}); !errors.Is(err, ErrLayout) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want a layout error that names %s", err, want)
		}
	}
}

// Nothing private of the host's /etc gets into the sandbox, and nothing by a
// link that leads elsewhere.
func TestWriteKeepsPrivateFilesOut(t *testing.T) {
	t.Parallel()
	root := merged(t)
	if err := os.Chmod(filepath.Join(root, "etc/ssl/openssl.cnf"), 0o600); err != nil {
		t.Fatal(err)
	}
	img, err := Detect(Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	box := t.TempDir()
	own := Owner{RootUID: os.Geteuid(), RootGID: os.Getegid(), UserUID: os.Geteuid(), UserGID: os.Getegid()}
	if err := img.Write(box, own); err != nil {
		t.Fatal(err)
	}
	wantEtc := []string{
		"alternatives", "environment", "group", "host.conf", "hostname", "hosts", "ld.so.cache", "ld.so.conf.d", "localtime", "mtab",
		"nsswitch.conf", "passwd", "profile", "python3.11", "resolv.conf", "shells", "ssl",
	}
	if got := names(t, filepath.Join(box, "etc")); !slices.Equal(got, wantEtc) {
		t.Errorf("/etc = %v; want %v", got, wantEtc)
	}
	if got := names(t, filepath.Join(box, "etc/ssl")); !slices.Equal(got, []string{"certs"}) {
		t.Errorf("/etc/ssl = %v; a file that only root may read is private", got)
	}
	err = filepath.WalkDir(box, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, secret := range []string{"secret", "10.0.0.1", "laptop", "ann", "0123", "token"} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%s holds %q", path, secret)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	return got
}

func TestWriteModes(t *testing.T) {
	t.Parallel()
	img, err := Detect(Options{Root: merged(t)})
	if err != nil {
		t.Fatal(err)
	}
	box := t.TempDir()
	own := Owner{RootUID: os.Geteuid(), RootGID: os.Getegid(), UserUID: os.Geteuid(), UserGID: os.Getegid()}
	if err := img.Write(box, own); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{
		"mnt/data": fs.ModeDir | 0o755, "home/sandbox": fs.ModeDir | 0o700,
		"tmp": fs.ModeDir | fs.ModeSticky | 0o777, "var/tmp": fs.ModeDir | fs.ModeSticky | 0o777,
		".shelld": fs.ModeDir | 0o711, ".shelld/init": 0o644, "etc/passwd": 0o644, "etc/localtime": 0o644,
		"etc": fs.ModeDir | 0o755, "proc": fs.ModeDir | 0o555, ".": fs.ModeDir | 0o755,
	} {
		info, err := os.Lstat(filepath.Join(box, name))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if target, err := os.Readlink(filepath.Join(box, "bin")); err != nil || target != "usr/bin" {
		t.Errorf("bin = %q, %v", target, err)
	}
}

func TestHostPaths(t *testing.T) {
	t.Parallel()
	root := merged(t)
	img, err := Detect(Options{Root: root, HostPaths: []string{"/opt/tool"}})
	if err != nil {
		t.Fatal(err)
	}
	if last := img.Mounts[len(img.Mounts)-1]; last.Target != "/opt/tool" || last.Source != filepath.Join(root, "opt/tool") {
		t.Errorf("mount = %+v", last)
	}
	for _, path := range []string{
		"/", "opt", "/opt/../opt", "/etc", "/etc/ssh", "/proc", "/run", "/dev/shm", "/tmp/x", "/home", "/home/sandbox",
		"/usr/share", "/.shelld", "/mnt", "/mnt/data/x", "/root", "/bin", "/lib64/x", "/var/run/x", "/a\x00b",
	} {
		if err := CheckHostPath(path); err == nil || !strings.HasPrefix(err.Error(), strconv.Quote(path)+": ") {
			t.Errorf("check of host path %q: %v; want it refused", path, err)
		}
		if _, err := Detect(Options{Root: root, HostPaths: []string{path}}); !errors.Is(err, ErrHostPath) {
			t.Errorf("host path %q: %v; want it refused", path, err)
		}
	}
	// What is not there is left out and named.
	img, err = Detect(Options{Root: root, HostPaths: []string{"/missing", "/opt/tool", "/opt/none/x"}})
	if err != nil {
		t.Fatal(err)
	}
	if last := img.Mounts[len(img.Mounts)-1]; last.Target != "/opt/tool" || !slices.Equal(img.Missing, []string{"/missing", "/opt/none/x"}) {
		t.Errorf("last mount = %+v, missing = %v", last, img.Missing)
	}
	// Our own directories, also by a link.
	tree(t, root, map[string]string{"srv/state/run/": "", "srv/link": "->state"})
	for _, path := range []string{"/srv", "/srv/state", "/srv/state/run", "/srv/link"} {
		_, err := Detect(Options{Root: root, HostPaths: []string{path}, Private: []string{filepath.Join(root, "srv/state/run")}})
		if !errors.Is(err, ErrHostPath) {
			t.Errorf("host path %q, which shows our own directory: %v; want it refused", path, err)
		}
	}
}

// Each pattern is well-formed; filepath.Glob hides one that is not.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, pattern := range append(etcMounts(), etcFiles()...) {
		if _, err := filepath.Match(pattern, "x"); err != nil {
			t.Errorf("%q: %v", pattern, err)
		}
		if strings.Contains(pattern, "private") || strings.HasPrefix(pattern, "*") {
			t.Errorf("%q matches too much", pattern)
		}
	}
}
