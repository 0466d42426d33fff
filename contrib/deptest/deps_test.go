package deptest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// listed is what `go list -json` tells about a package.
type listed struct {
	ImportPath string
	Doc        string
	Standard   bool
	GoFiles    []string
	Imports    []string
}

func TestDependenciesPointInward(t *testing.T) {
	t.Parallel()
	g := graph{}
	standard := map[string]bool{"C": true}
	packages := list(t)
	for _, p := range packages {
		standard[p.ImportPath] = standard[p.ImportPath] || p.Standard
	}
	for _, p := range packages {
		if !p.Standard {
			g[p.ImportPath] = slices.DeleteFunc(p.Imports, func(dep string) bool { return standard[dep] })
		}
	}
	if _, ok := g[module+"/sandbox"]; !ok {
		t.Fatalf("go list does not know %s/sandbox: the test looks at the wrong place", module)
	}
	for _, v := range violations(g, directions(), reaches()) {
		t.Error(v)
	}
}

func TestEveryPackageIsDocumented(t *testing.T) {
	t.Parallel()
	for _, p := range list(t) {
		if inModule(p.ImportPath) && len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

// The rules themselves: each kind of fault is found, and what is allowed is not
// reported.
func TestViolations(t *testing.T) {
	t.Parallel()
	in := func(names ...string) []string {
		for i, n := range names {
			names[i] = module + "/" + n
		}
		return names
	}
	tests := []struct {
		name string
		from string
		to   []string
		more graph
		want string // part of the only violation; empty: none
	}{
		{name: "daemon composes", from: "daemon", to: in("sandbox/engine", "rpc/server", "daemon/store")},
		{name: "same part", from: "cmd/shellctl", to: in("cmd/shellctl/internal/cli")},
		{name: "runner assembles", from: "sandbox/runner", to: in("sandbox", "sandbox/guest", "sandbox/limit")},
		{name: "domain imports a part", from: "sandbox", to: in("sandbox/limit"), want: "must not import"},
		{name: "leaf imports leaf", from: "sandbox/engine", to: in("sandbox/guest"), want: "must not import"},
		{name: "runner imports engine", from: "sandbox/runner", to: in("sandbox/engine"), want: "must not import"},
		{name: "handler imports daemon", from: "rpc/server", to: in("daemon"), want: "must not import"},
		{name: "part imports its composer", from: "daemon/store", to: in("daemon"), want: "must not import"},
		{name: "contrib is imported", from: "daemon", to: in("contrib/deptest"), want: "must not import"},
		{name: "unknown part", from: "util", want: "has no place"},
		{name: "guest uses x/sys", from: "sandbox/guest", to: []string{"golang.org/x/sys/unix"}},
		{name: "guest uses a module", from: "sandbox/guest", to: []string{"github.com/google/uuid"}, want: "must not reach"},
		{
			name: "client reaches the store through a library", from: "client", to: []string{"example.org/a"},
			more: graph{"example.org/a": {"modernc.org/sqlite"}}, want: "client -> example.org/a -> modernc.org/sqlite",
		},
		{
			name: "containerd beside the engine", from: "sandbox/limit",
			to: []string{"github.com/containerd/containerd/v2/client"}, want: "must not reach containerd",
		},
		{name: "containerd in the engine", from: "sandbox/engine", to: []string{"github.com/containerd/containerd/v2/client"}},
		{name: "cgroups is not containerd", from: "sandbox/limit", to: []string{"github.com/containerd/cgroups/v3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := graph{module + "/" + tt.from: tt.to}
			for pkg, deps := range tt.more {
				g[pkg] = deps
			}
			got := violations(g, directions(), reaches())
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("violations: got %q, want none", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("violations: got %q, want one with %q", got, tt.want)
			}
		})
	}
}

// list returns the module's packages and everything they import.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps",
		"-json=ImportPath,Doc,Standard,GoFiles,Imports", "./...")
	cmd.Dir = root(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("decode go list: %v", err)
		}
		all = append(all, p)
	}
}

// root returns the folder of the module.
func root(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env GOMOD: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}
