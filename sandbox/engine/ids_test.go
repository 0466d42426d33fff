package engine

import (
	"errors"
	"os"
	"testing"

	"github.com/shelld/shelld/sandbox"
)

func TestRootPool(t *testing.T) {
	t.Parallel()
	reserved := []subRange{{start: idBase + idBlock - 1, count: 1}, {start: idBase + 2*idBlock, count: idBlock}}
	pool := rootPool(reserved, 0)
	pool.mark(3)
	hostUIDs := map[uint32]struct{}{idBase + 4*idBlock + 1000: {}, 0: {}, 1000: {}}
	for _, want := range []int{1, 5, 6} { // 0 and 2 are reserved, 3 is ours, 4 is someone's
		slot, err := pool.take(hostUIDs)
		if err != nil || slot.number != want {
			t.Fatalf("slot = %+v, %v; want %d", slot, err, want)
		}
		if m := slot.uids[0]; m.Inside != 0 || m.Outside != idBase+uint32(want)*idBlock || m.Count != idBlock {
			t.Errorf("map of slot %d = %+v", want, m)
		}
	}
	pool.give(5)
	if slot, err := pool.take(nil); err != nil || slot.number != 4 {
		t.Errorf("slot = %+v, %v; want 4, which is free by now", slot, err)
	}
	last := rootPool(nil, idBlocks-1)
	slot, err := last.take(nil)
	if err != nil || slot.number != idBlocks-1 || uint64(slot.uids[0].Outside)+idBlock > 1<<31 {
		t.Errorf("last slot = %+v, %v; want it below 2^31", slot, err)
	}
	if slot, err = last.take(nil); err != nil || slot.number != 0 {
		t.Errorf("slot after the last = %+v, %v; want 0", slot, err)
	}
}

func TestRootlessPool(t *testing.T) {
	t.Parallel()
	uids := []idRange{{Inside: 0, Outside: 1000, Count: 1}, {Inside: 1, Outside: 100000, Count: 7}}
	gids := []idRange{{Inside: 0, Outside: 1000, Count: 1}, {Inside: 1, Outside: 200000, Count: 100}}
	pool := rootlessPool(uids, gids, 0)
	seen := map[uint32]bool{0: true} // the user himself
	for range 3 {
		slot, err := pool.take(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range slot.uids {
			if m.Count != 1 || seen[m.Outside] {
				t.Errorf("slot %+v shares an id", slot)
			}
			seen[m.Outside] = true
		}
	}
	if slot, err := pool.take(nil); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("fourth slot of seven ids = %+v, %v; want exhausted", slot, err)
	}
	pool.give(1)
	if _, err := pool.take(map[uint32]struct{}{100003: {}}); !errors.Is(err, sandbox.ErrExhausted) {
		t.Errorf("slot with a process in it: %v; want exhausted", err)
	}
	if slot, err := pool.take(nil); err != nil || slot.number != 1 {
		t.Errorf("slot = %+v, %v; want 1 again", slot, err)
	}
}

// The two ids of a sandbox may lie in different ranges of the host; such a
// pair is left out.
func TestRootlessPoolAcrossRanges(t *testing.T) {
	t.Parallel()
	m := []idRange{{Inside: 0, Outside: 1000, Count: 1}, {Inside: 1, Outside: 100000, Count: 1}, {Inside: 2, Outside: 300000, Count: 3}}
	slot, err := rootlessPool(m, m, 0).take(nil)
	if err != nil || slot.number != 1 {
		t.Errorf("slot = %+v, %v; want 1", slot, err)
	}
}

func TestProcessUIDs(t *testing.T) {
	t.Parallel()
	uids, err := processUIDs("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := uids[uint32(os.Geteuid())]; !ok {
		t.Errorf("user ids of processes = %v; want our own among them", uids)
	}
}
