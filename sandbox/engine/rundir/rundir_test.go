package rundir

import (
	"strings"
	"testing"

	"github.com/shelld/shelld/rpc/socket"
	"github.com/shelld/shelld/sandbox"
)

func TestLongestRunDirectory(t *testing.T) {
	t.Parallel()
	longest := "/" + strings.Repeat("r", MaxLength-1)
	if err := Check(longest); err != nil {
		t.Error(err)
	}
	if n := len(GuestSocket(longest, sandbox.NewID().Key())); n != socket.MaxPath {
		t.Errorf("a guest's socket has a path of %d bytes; want %d", n, socket.MaxPath)
	}
	if err := Check(longest + "r"); err == nil || !strings.Contains(err.Error(), "108 bytes and the kernel allows 107; choose a --run of at most 76 bytes") {
		t.Errorf("Check of a longer one = %v", err)
	}
}
