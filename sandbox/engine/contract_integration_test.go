package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

func TestBackendContract(t *testing.T) {
	sandboxtest.RunBackend(t, func(t *testing.T) sandboxtest.BackendUnderTest {
		e := openEngine(t)
		return sandboxtest.BackendUnderTest{
			Backend:   e,
			Leftovers: func(t *testing.T) []string { return sandboxLeftovers(t, e) },
			Kill:      func(t *testing.T, instance sandbox.Instance) { kill9(t, instance.PID) },
		}
	})
}

// sandboxLeftovers names what the engine keeps of sandboxes, beyond what it
// lists: containers, roots, directories of guests and blocks of ids.
func sandboxLeftovers(t *testing.T, e *Engine) []string {
	t.Helper()
	ctx := withNamespace(t.Context())
	var left []string
	containers, err := e.client.Containers(ctx)
	if err != nil {
		t.Fatalf("list containers: %v", err)
	}
	for _, c := range containers {
		left = append(left, "container "+c.ID())
	}
	guests, err := os.ReadDir(filepath.Dir(e.opts.guestDir(sandbox.NewID().Key())))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("list guests: %v", err)
	}
	for _, g := range guests {
		left = append(left, "guest directory "+g.Name())
	}
	eventually(t, "the shims of deleted sandboxes have ended", func() bool { // they do so by themselves
		return len(liveShims(t, e)) == 0
	})
	return left
}
