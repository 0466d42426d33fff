package xdg

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDir(t *testing.T) {
	t.Parallel()
	run := t.TempDir()
	if err := os.Mkdir(filepath.Join(run, "1000"), 0o700); err != nil {
		t.Fatal(err)
	}
	home := map[string]string{"HOME": "/home/ann"}
	all := map[string]string{
		"HOME": "/home/ann", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r",
	}
	relative := map[string]string{
		"HOME": "/home/ann", "XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "./s", "XDG_RUNTIME_DIR": "r",
	}
	tests := []struct {
		name string
		uid  int
		vars map[string]string
		kind Kind
		want string
		err  string
	}{
		{name: "root config", kind: Config, vars: all, want: "/etc/shelld"},
		{name: "root state", kind: State, vars: all, want: "/var/lib/shelld"},
		{name: "root runtime", kind: Runtime, vars: all, want: "/run/shelld"},
		{name: "user config", uid: 1000, kind: Config, vars: all, want: "/c/shelld"},
		{name: "user state", uid: 1000, kind: State, vars: all, want: "/s/shelld"},
		{name: "user runtime", uid: 1000, kind: Runtime, vars: all, want: "/r/shelld"},
		{name: "config from home", uid: 1000, kind: Config, vars: home, want: "/home/ann/.config/shelld"},
		{name: "state from home", uid: 1000, kind: State, vars: home, want: "/home/ann/.local/state/shelld"},
		{name: "runtime of the login", uid: 1000, kind: Runtime, vars: home, want: filepath.Join(run, "1000", "shelld")},
		{name: "relative config", uid: 1000, kind: Config, vars: relative, want: "/home/ann/.config/shelld"},
		{name: "relative state", uid: 1000, kind: State, vars: relative, want: "/home/ann/.local/state/shelld"},
		{name: "relative runtime", uid: 1000, kind: Runtime, vars: relative, want: filepath.Join(run, "1000", "shelld")},
		{name: "no home", uid: 1000, kind: State, err: "neither XDG_STATE_HOME nor HOME is set"},
		{name: "no runtime", uid: 1001, kind: Runtime, vars: home, err: "set XDG_RUNTIME_DIR"},
		{name: "unknown kind", uid: 1000, kind: 9, vars: all, err: "unknown kind"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			env := Env{UID: tt.uid, Getenv: func(k string) string { return tt.vars[k] }, runUser: run}
			got, err := env.Dir(tt.kind)
			if got != tt.want {
				t.Errorf("Dir = %q, want %q", got, tt.want)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Dir error = %v, want one with %q", err, tt.err)
			}
		})
	}
}
