package sandbox_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/shelld/shelld/sandbox"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	id, call := sandbox.NewID(), sandbox.NewCallID()
	if !id.Valid() || !call.Valid() || id == sandbox.NewID() || call == sandbox.NewCallID() {
		t.Errorf("made %s and %s", id, call)
	}
	if len(id.Key()) != 16 || !strings.HasPrefix(string(id), "cntr_"+id.Key()) {
		t.Errorf("key of %s is %s", id, id.Key())
	}
	if got, want := call.OutputID(), "sho_"+strings.TrimPrefix(string(call), "shc_"); got != want {
		t.Errorf("output id %s, want %s", got, want)
	}
	digits := strings.Repeat("0", 32)
	for _, text := range []string{
		"", "cntr_", "cntr_" + digits[1:], "cntr_" + digits + "0", "shc_" + digits, digits, "cntr_" + digits[1:] + "g",
		"cntr_" + digits[1:] + "A", "cntr_" + digits[1:] + "/", "cntr_" + digits[1:] + "\x00", "CNTR_" + digits,
	} {
		if sandbox.ID(text).Valid() {
			t.Errorf("%q is valid", text)
		}
	}
	for _, id := range []sandbox.ID{"", "cntr_", "cntr_abc", "abc"} { // they have a key, too, but panic nothing
		if key := id.Key(); len(key) > 16 {
			t.Errorf("key of %q is %q", id, key)
		}
	}
}

func TestSignalName(t *testing.T) {
	t.Parallel()
	for sig, want := range map[syscall.Signal]string{0: "", syscall.SIGKILL: "KILL", syscall.SIGSEGV: "SEGV", 63: "63"} {
		if got := sandbox.SignalName(sig); got != want {
			t.Errorf("signal %d is %q, want %q", sig, got, want)
		}
	}
}
