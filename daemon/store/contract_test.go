package store

import (
	"path/filepath"
	"testing"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

func TestContract(t *testing.T) {
	t.Parallel()
	sandboxtest.RunStore(t, func(t *testing.T) sandbox.Store {
		t.Helper()
		return openTest(t, filepath.Join(t.TempDir(), "state.db"))
	})
}

// openTest opens a store that is closed with the test.
func openTest(t *testing.T, file string) *Store {
	t.Helper()
	s, err := Open(t.Context(), file)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}
