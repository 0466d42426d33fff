package main

import (
	"os/exec"
	"strings"
	"testing"
)

// shellctl is a thin client: what would make it start slowly, or reach around
// the API, stays out.
func TestDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const self = "github.com/shelld/shelld/"
	deps := strings.Fields(string(out))
	if len(deps) < 50 {
		t.Fatalf("go list gives %d packages, too few to be true", len(deps))
	}
	for _, dep := range deps {
		own, isOwn := strings.CutPrefix(dep, self)
		switch {
		case isOwn && (own == "client" || own == "rpc" || strings.HasPrefix(own, "rpc/socket") || strings.HasPrefix(own, "cmd/shellctl")):
		case isOwn:
			t.Errorf("imports %s; only client and rpc are allowed", dep)
		case strings.Contains(dep, "containerd"), strings.Contains(dep, "sqlite"), strings.Contains(dep, "kin-openapi"), strings.Contains(dep, "grpc"):
			t.Errorf("imports %s", dep)
		}
	}
}
