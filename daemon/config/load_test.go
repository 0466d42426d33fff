package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/rpc/socket/xdg"
)

// nobody is a user that owns nothing here.
const nobody = 65534

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadText(t *testing.T, text string) (*Config, string, error) {
	t.Helper()
	path := write(t, text)
	c, err := Load(xdg.Host(), path)
	return c, path, err
}

func TestLoad(t *testing.T) {
	t.Parallel()
	c, path, err := loadText(t, `version = 1
limits.max_runs = 7
[listen]
socket = "/a/b.sock"
[engine]
[image]
host_paths = ["/opt", "/srv/tools"]
[output]
spool_total = "3g"
keep = "0s"
max_length = 1_000
`)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Limits.MaxRuns = 7
	want.Listen.Socket = "/a/b.sock"
	want.Image.HostPaths = []string{"/opt", "/srv/tools"}
	want.Output.SpoolTotal = 3 << 30
	want.Output.Keep = 0
	want.Output.MaxLength = 1000
	if diff := diffValues(c, want); diff != "" {
		t.Error(diff)
	}
	if got, want := c.Files(), []string{path}; !reflect.DeepEqual(got, want) {
		t.Errorf("Files = %q, want %q", got, want)
	}
	for key, want := range map[string]string{
		"limits.max_runs": path + ":2", "listen.socket": path + ":4", "output.max_length": path + ":11",
		"limits.timeout": "default",
	} {
		if got := c.Origin(key); got != want {
			t.Errorf("Origin(%s) = %q, want %q", key, got, want)
		}
	}
}

func diffValues(got, want *Config) string {
	return cmp.Diff(got, want, cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return name == ".origins" || name == ".files"
	}, cmp.Ignore()))
}

func TestLoadFaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, text string
		want       []string // FILE stands for the path
	}{
		{"empty", "", []string{"FILE: version is missing; put `version = 1` at the top of the file"}},
		{"missing version", "[limits]\ntimeout = 3\n", []string{"FILE: version is missing; put `version = 1` at the top of the file"}},
		{"future version", "version = 2\n[new]\nx = 1\n", []string{"FILE:1: version is 2, but this shelld knows version 1 only; update shelld or use a file of that version"}},
		{"past version", "\nversion = 0\n", []string{"FILE:2: version is 0, which never existed; write `version = 1`"}},
		{"version as text", "version = \"1\"\n", []string{"FILE:1: version must be the number 1, not the text \"1\""}},
		{"not TOML", "version = 1\n[limits]\ntimeout = sixty\n", []string{"FILE:3: is not valid TOML: expected value but found \"sixty\" instead"}},
		{"twice", "version = 1\nversion = 1\n", []string{"FILE:2: is not valid TOML: Key 'version' has already been defined."}},
		{"binary", "version = 1\n\x00\xff\xfe", []string{"FILE:2: is not valid TOML: TOML files cannot contain control characters: '0x00'"}},
		{"unknown key", "version = 1\n[limits]\ntimout = \"60s\"\n", []string{"FILE:3: limits.timout is no key that this shelld knows; did you mean limits.timeout?"}},
		{"case matters", "version = 1\n[limits]\nTimeout = \"60s\"\n", []string{"FILE:3: limits.Timeout is no key that this shelld knows; did you mean limits.timeout?"}},
		{"key without section", "version = 1\ntimeout = \"60s\"\n", []string{"FILE:2: timeout is no key that this shelld knows; did you mean limits.timeout?"}},
		{"key in another section", "version = 1\n[output]\ntimeout = \"60s\"\n", []string{"FILE:3: output.timeout is no key that this shelld knows; did you mean limits.timeout?"}},
		{"nothing near", "version = 1\n[limits]\nzzzzzzzz = 1\n", []string{"FILE:3: limits.zzzzzzzz is no key that this shelld knows; `shelld config default` shows all"}},
		{"unknown section once", "version = 1\n[limit]\na = 1\nb = 2\n[what-is-this]\n", []string{
			"FILE:3: limit.a is in a section that this shelld does not know; did you mean [limits]?",
			"FILE:5: what-is-this is in a section that this shelld does not know; `shelld config default` shows all",
		}},
		{"section as value", "version = 1\nlimits = 3\n", []string{"FILE:2: limits must be a section, written [limits] on a line of its own, not the number 3"}},
		{"section as list", "version = 1\n[[limits]]\nmax_runs = 3\n", []string{"FILE:2: limits must be a section, written [limits] on a line of its own, not a list of sections"}},
		{"key as section", "version = 1\n[limits.timeout]\nx = 3\n", []string{"FILE:2: limits.timeout must be a duration in quotes, such as \"90s\" or \"1h30m\", not a section"}},
		{"wrong types, all of them", `version = 1
[listen]
socket = 1
[image]
host_paths = "/opt"
[limits]
timeout = 60
max_runs = "3"
max_containers = 1.5
allow_unenforced = "true"
[output]
spool_total = 12
max_length = 1979-05-27
`, []string{
			`FILE:3: listen.socket must be text in quotes, not the number 1`,
			`FILE:5: image.host_paths must be a list of texts, such as ["/opt"], not the text "/opt"`,
			`FILE:7: limits.timeout must be a duration in quotes, such as "90s" or "1h30m", not the number 60`,
			`FILE:8: limits.max_runs must be a whole number without quotes, not the text "3"`,
			`FILE:9: limits.max_containers must be a whole number without quotes, not the number 1.5`,
			`FILE:10: limits.allow_unenforced must be true or false, without quotes, not the text "true"`,
			`FILE:12: output.spool_total must be a size in quotes, such as "64m" or "2g", not the number 12`,
			`FILE:13: output.max_length must be a whole number without quotes, not a date or time`,
		}},
		{"bad values", `version = 1
[listen]
socket = "run/x.sock"
[image]
default = "debian"
host_paths = ["/opt", 3]
[limits]
timeout = "60"
max_runs = 0
max_containers = 99999999999
[output]
spool_total = "12q"
keep = "-1s"
`, []string{
			`FILE:6: image.host_paths must be a list of texts, but item 2 is the number 3`,
			`FILE:8: limits.timeout must be a duration such as "90s" or "1h30m" (units ms, s, m, h), not "60"`,
			`FILE:10: limits.max_containers must be at most 2147483647, not 99999999999`,
			`FILE:12: output.spool_total must be a size such as "64m" or "2g" (units k, m, g), not "12q"`,
			`FILE:3: listen.socket must be an absolute path, not "run/x.sock"`,
			`FILE:5: image.default is "debian", but the only image is "host"`,
			`FILE:9: limits.max_runs must be greater than 0`,
			`FILE:13: output.keep must not be negative`,
		}},
		{"values at odds", "version = 1\n[limits]\ntimeout = \"2h\"\n[output]\nmax_length = 9\nmax_length_ceiling = 8\nspool_per_stream = \"3g\"\n", []string{
			`FILE:3: limits.timeout is 2h, above limits.max_timeout (1h); lower it or raise that`,
			`FILE:5: output.max_length is 9, above output.max_length_ceiling (8); lower it or raise that`,
			`FILE:7: output.spool_per_stream is 3g, above output.spool_total (2g); lower it or raise that`,
		}},
		{"host paths", "version = 1\nimage.host_paths = [\"opt\", \"/opt/\", \"/a/../b\", \"/\", \"/home\", \"/run/user/1000\", \"/dev\", \"/opt\", \"/opt\", \"/usr/share\", \"/etc/ssh\", \"/tmp/x\", \"/.shelld\"]\n", []string{
			`FILE:2: image.host_paths cannot have "opt": it must be an absolute path without "..", doubled or trailing slashes`,
			`FILE:2: image.host_paths cannot have "/opt/": it must be an absolute path without "..", doubled or trailing slashes`,
			`FILE:2: image.host_paths cannot have "/a/../b": it must be an absolute path without "..", doubled or trailing slashes`,
			`FILE:2: image.host_paths cannot have "/": not all of it can be shown; name the folders in it that commands need`,
			`FILE:2: image.host_paths cannot have "/home": not all of it can be shown; name the folders in it that commands need`,
			`FILE:2: image.host_paths cannot have "/run/user/1000": sandboxes have their own /run`,
			`FILE:2: image.host_paths cannot have "/dev": sandboxes have their own /dev`,
			`FILE:2: image.host_paths has "/opt" twice`,
			`FILE:2: image.host_paths cannot have "/usr/share": sandboxes see /usr anyway`,
			`FILE:2: image.host_paths cannot have "/etc/ssh": sandboxes have their own /etc`,
			`FILE:2: image.host_paths cannot have "/tmp/x": sandboxes have their own /tmp`,
			`FILE:2: image.host_paths cannot have "/.shelld": sandboxes have their own /.shelld`,
		}},
		{"NUL in a path", "version = 1\nlisten.socket = \"/a\\u0000b\"\n", []string{`FILE:2: listen.socket must not contain a NUL character`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, path, err := loadText(t, tt.text)
			if _, ok := errors.AsType[*Error](err); !ok || c != nil {
				t.Fatalf("Load = %v, %v; want an *Error alone", c, err)
			}
			got := strings.Split(strings.ReplaceAll(err.Error(), path, "FILE"), "\n")
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestLoadUnfitFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	valid := []byte("version = 1\n")
	for name, data := range map[string][]byte{
		"open": valid, "foreign": valid, "large": make([]byte, maxFileBytes+1), "unreadable": valid,
	} {
		if err := os.WriteFile(in(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(
		os.Mkdir(in("folder"), 0o700), syscall.Mkfifo(in("pipe"), 0o600),
		os.Chmod(in("open"), 0o666), os.Chmod(in("unreadable"), 0),
	); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ file, want string }{
		{"folder", "is a folder; name the file in it"},
		{"pipe", "is not a regular file"},
		{"open", "can be changed by every user (mode 0666); run: chmod o-w " + in("open")},
		{"large", "is larger than 1m; this is no configuration file"},
		{"absent", "cannot be read: no such file or directory"},
		{"unreadable", "cannot be read: permission denied"},
	}
	for _, tt := range tests {
		err := asNobody(t, func() error { _, err := Load(xdg.Host(), in(tt.file)); return err })
		if tt.file != "unreadable" {
			_, err = Load(xdg.Host(), in(tt.file))
		}
		if want := in(tt.file) + ": " + tt.want; err == nil || err.Error() != want {
			t.Errorf("Load(%s) = %v, want %s", tt.file, err, want)
		}
	}
	t.Run("foreign", func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can give a file away")
		}
		if err := os.Chown(in("foreign"), nobody, nobody); err != nil {
			t.Fatal(err)
		}
		_, err := Load(xdg.Host(), in("foreign"))
		if want := "belongs to user 65534, not to root or user 0 as whom shelld runs"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load = %v, want %s", err, want)
		}
	})
}

// asNobody calls f without root's right to read every file.
func asNobody(t *testing.T, f func() error) error {
	t.Helper()
	if os.Geteuid() != 0 {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		// Never unlocked: the thread, changed for good, ends with this goroutine.
		runtime.LockOSThread()
		if err := unix.Setfsuid(nobody); err != nil {
			result <- err
			return
		}
		result <- f()
	}()
	return <-result
}

func TestLayers(t *testing.T) {
	t.Parallel()
	const admin = `version = 1
[image]
host_paths = ["/opt"]
[limits]
timeout = "10s"
max_timeout = "30m"
max_runs = 8
allow_unenforced = false
[output]
spool_total = "1g"
`
	tests := []struct {
		name, user string
		want       []string
		check      func(*Config) bool
	}{
		{name: "no user file", check: func(c *Config) bool { return c.Limits.MaxRuns == 8 && c.Limits.Timeout == 10*time.Second }},
		{
			name: "within", user: "version = 1\nimage.host_paths = [\"/opt/go\"]\n[limits]\ntimeout = \"20m\"\nmax_timeout = \"29m\"\nmax_runs = 8\nmax_containers = 1000\n[output]\nspool_total = \"999m\"\n",
			check: func(c *Config) bool {
				return c.Limits.Timeout == 20*time.Minute && c.Limits.MaxTimeout == 29*time.Minute && c.Limits.MaxContainers == 1000 && c.Output.SpoolTotal == 999<<20
			},
		},
		{
			name: "beyond", user: "version = 1\n[image]\nhost_paths = [\"/opt\", \"/optional\"]\n[limits]\nmax_timeout = \"31m\"\nmax_runs = 9\nallow_unenforced = true\n[output]\nspool_total = \"1025m\"\n",
			want: []string{
				`USER:3: image.host_paths goes beyond ["/opt"], the administrator's ceiling in ADMIN:3; stay within it or ask for a higher one`,
				`USER:5: limits.max_timeout goes beyond "30m", the administrator's ceiling in ADMIN:6; stay within it or ask for a higher one`,
				`USER:6: limits.max_runs goes beyond 8, the administrator's ceiling in ADMIN:7; stay within it or ask for a higher one`,
				`USER:7: limits.allow_unenforced goes beyond false, the administrator's ceiling in ADMIN:8; stay within it or ask for a higher one`,
				`USER:9: output.spool_total goes beyond "1g", the administrator's ceiling in ADMIN:10; stay within it or ask for a higher one`,
			},
		},
		{
			name: "at odds with the administrator's file", user: "version = 1\nlimits.max_timeout = \"5s\"\n",
			want: []string{`ADMIN:5: limits.timeout is 10s, above limits.max_timeout (5s); lower it or raise that`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			adminFile, userFile := write(t, admin), filepath.Join(t.TempDir(), "absent")
			if tt.user != "" {
				userFile = write(t, tt.user)
			}
			c, err := load(os.Geteuid(), []layer{{path: adminFile, ceilings: true}, {path: userFile}})
			if tt.want == nil {
				if err != nil || !tt.check(c) {
					t.Fatalf("load = %+v, %v", c, err)
				}
				return
			}
			if err == nil {
				t.Fatalf("load = %+v, want faults", c)
			}
			text := strings.NewReplacer(adminFile, "ADMIN", userFile, "USER").Replace(err.Error())
			if diff := cmp.Diff(strings.Split(text, "\n"), tt.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUserFileIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "shelld", "config.toml")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("version = 1\nlimits.max_runs = 3\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	env := xdg.Env{UID: max(os.Geteuid(), 1), Getenv: func(k string) string {
		return map[string]string{"XDG_CONFIG_HOME": dir}[k]
	}}
	c, err := Load(env, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Limits.MaxRuns; got != 3 {
		t.Errorf("MaxRuns = %d, want 3", got)
	}
}

func TestNoUserDirectory(t *testing.T) {
	t.Parallel()
	_, err := Load(xdg.Env{UID: 1000, Getenv: func(string) string { return "" }}, "")
	if err == nil || !strings.Contains(err.Error(), "HOME") || !strings.Contains(err.Error(), "or give --config") {
		t.Errorf("Load = %v", err)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	c, _, err := loadText(t, "version = 1\n[limits]\nmax_timeout = \"5s\"\n[output]\nmax_length_ceiling = 10\nspool_total = \"1m\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if c.Limits.Timeout != 5*time.Second || c.Output.MaxLength != 10 || c.Output.SpoolPerStream != 1<<20 {
		t.Errorf("defaults were not lowered: %+v", c)
	}
	if got, want := c.Origin("limits.timeout"), "default, lowered to limits.max_timeout"; got != want {
		t.Errorf("Origin = %q, want %q", got, want)
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(DefaultFile()))
	f.Add(Dump(Default()))
	f.Add([]byte("version = 1\n[[limits]]\nx = {a = [1, {b = 2}]}\n\"a.b\".c = 1\n'' = 2\n"))
	f.Add([]byte("version = 1\nlisten.socket = '''\n/a'''\nimage.host_paths = [\"/\\u007f\"]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Default()
		faults := c.apply("f", data, Default())
		for _, fault := range faults {
			if fault.Message == "" || fault.Line < 0 || fault.Line > strings.Count(string(data), "\n")+1 {
				t.Errorf("fault %+v", fault)
			}
		}
		c.settle()
		if len(faults) > 0 || c.Validate() != nil {
			return
		}
		// What is accepted survives being written and read again.
		again := Default()
		if faults := again.apply("g", Dump(c), Default()); len(faults) > 0 {
			t.Fatalf("dump is refused: %v\n%s", faults, Dump(c))
		}
		if diff := diffValues(again, c); diff != "" {
			t.Error(diff)
		}
	})
}
