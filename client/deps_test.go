package client_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Who imports the client gets the standard library and the contract with it,
// and nothing of the daemon.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{"github.com/shelld/shelld/rpc", "github.com/shelld/shelld/rpc/socket"}
	imports := strings.Fields(string(out))
	for _, path := range imports {
		if strings.Contains(path, ".") && !slices.Contains(allowed, path) {
			t.Errorf("imports %s", path)
		}
	}
	if !slices.Contains(imports, allowed[1]) {
		t.Errorf("go list gives %q, which cannot be all", imports)
	}
}
