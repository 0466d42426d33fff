package sandboxtest_test

import (
	"testing"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	sandboxtest.RunBackend(t, func(*testing.T) sandboxtest.BackendUnderTest {
		b := sandboxtest.New().Backend
		return sandboxtest.BackendUnderTest{
			Backend:   b,
			Leftovers: func(*testing.T) []string { return b.Leftovers() },
			Kill:      func(_ *testing.T, instance sandbox.Instance) { b.Kill(instance.ID) },
		}
	})
}

func TestStore(t *testing.T) {
	t.Parallel()
	sandboxtest.RunStore(t, func(*testing.T) sandbox.Store { return sandboxtest.NewStore() })
}
