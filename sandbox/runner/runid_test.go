package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shelld/shelld/sandbox"
)

func openIDs(t *testing.T, file string) runIDs {
	t.Helper()
	ids, err := openRunIDs(file)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func TestRunIDs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state", "key")
	ids := openIDs(t, file)
	call, container, other := sandbox.NewCallID(), sandbox.NewID(), sandbox.NewID()
	for _, index := range []int{0, 1, 9999} {
		id := ids.name(container, call, index)
		if len(id) > 64 {
			t.Errorf("%s has %d characters, too many for the guest", id, len(id))
		}
		for _, ids := range []runIDs{ids, openIDs(t, file)} { // also after a restart
			if got, gotIndex, ok := ids.parse(container, id); !ok || got != call || gotIndex != index {
				t.Errorf("%s is read as %s, %d, %t", id, got, gotIndex, ok)
			}
		}
		if _, _, ok := ids.parse(other, id); ok {
			t.Error("an id of one container goes for another")
		}
		if _, _, ok := openIDs(t, file+"2").parse(container, id); ok {
			t.Error("an id made with another key is accepted")
		}
	}
	good := ids.name(container, call, 0)
	seal := good[strings.LastIndex(good, "."):]
	for _, id := range []string{
		"", ".", "..", "x.0" + seal, string(call), string(call) + ".0", string(call) + ".0.", string(call) + ".1" + seal,
		string(call) + ".-1" + seal, string(call) + ".+0" + seal, string(call) + ".00" + seal, good + ".", good + "0", strings.ToUpper(good),
		string(sandbox.NewCallID()) + ".0" + seal, "../" + good,
	} {
		if got, index, ok := ids.parse(container, id); ok {
			t.Errorf("%q is read as %s, %d", id, got, index)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
}

// TestKeyCutOff: the key's file may have been cut off as it was written.
func TestKeyCutOff(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	ids := openIDs(t, file)
	if len(ids.key) != keyLen || string(openIDs(t, file).key) != string(ids.key) {
		t.Errorf("key of %d bytes, or not kept", len(ids.key))
	}
	if _, err := openRunIDs(t.TempDir()); err == nil {
		t.Error("a directory was read as a key")
	}
}
