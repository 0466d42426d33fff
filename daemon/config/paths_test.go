package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shelld/shelld/rpc/socket/xdg"
)

func TestFindPaths(t *testing.T) {
	t.Parallel()
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"}
	longest := "/" + strings.Repeat("r", 75)
	tests := []struct {
		name                    string
		uid                     int
		vars                    map[string]string
		root, run, listenSocket string
		want                    Paths
		err                     string
	}{
		{name: "root", want: Paths{"/var/lib/shelld", "/run/shelld", "/run/shelld/shelld.sock"}},
		{name: "user", uid: 1000, vars: vars, want: Paths{"/s/shelld", "/r/shelld", "/r/shelld/shelld.sock"}},
		{name: "flags", uid: 1000, root: "/a/", run: "/b//c", want: Paths{"/a", "/b/c", "/b/c/shelld.sock"}},
		{name: "relative flags", root: "a", run: "b/..", want: Paths{filepath.Join(cwd, "a"), cwd, filepath.Join(cwd, "shelld.sock")}},
		{name: "socket of the file", listenSocket: "/x/y.sock", want: Paths{"/var/lib/shelld", "/run/shelld", "/x/y.sock"}},
		{name: "run wins over the file", run: "/b", listenSocket: "/x/y.sock", want: Paths{"/var/lib/shelld", "/b", "/b/shelld.sock"}},
		{name: "longest run", root: "/a", run: longest, want: Paths{"/a", longest, longest + "/shelld.sock"}},
		{name: "run too long", root: "/a", run: longest + "r", err: "would have paths of 108 bytes and the kernel allows 107; choose a --run of at most 76 bytes"},
		{name: "socket too long", listenSocket: "/" + strings.Repeat("s", 107), err: "108 bytes and the kernel allows 107; choose a shorter listen.socket"},
		{name: "one folder for both", root: "/a", run: "/a/", err: "they must be two folders"},
		{name: "no home", uid: 1000, run: "/b", err: "or give --root"},
		{name: "no runtime", uid: 1 << 30, root: "/a", err: "or give --run"},
		{name: "NUL", root: "/a\x00", err: "NUL"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := Default()
			c.Listen.Socket = tt.listenSocket
			env := xdg.Env{UID: tt.uid, Getenv: func(k string) string { return tt.vars[k] }}
			got, err := FindPaths(env, c, tt.root, tt.run)
			if got != tt.want {
				t.Errorf("FindPaths = %+v, want %+v", got, tt.want)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error = %v, want one with %q", err, tt.err)
			}
		})
	}
}
