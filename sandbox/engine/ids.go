package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/shelld/shelld/sandbox"
)

const (
	// idBase is the first id of the blocks that sandboxes of a root engine
	// get: above what systemd-nspawn uses (systemd.io/UIDS-GIDS), below 2^31,
	// which some programs take for negative.
	idBase = 0x7000_0000
	// idBlock is the size of a block, and of the ids inside a sandbox.
	idBlock = 65536
	// idBlocks is the number of blocks.
	idBlocks = 4094
)

// idSlot is a share of ids that one sandbox has to itself. Slots are numbered
// from 0; the number is kept as a label of the container.
type idSlot struct {
	number int
	// uids and gids map ids inside the sandbox to ids of the engine's user
	// namespace.
	uids, gids []idRange
}

// idPool gives out slots. It is not safe for concurrent use.
type idPool struct {
	slots int
	slot  func(number int) idSlot
	// hostID is the lowest and highest id of a slot as the host sees it.
	hostUIDs func(slot idSlot) (first, last uint32, ok bool)
	first    int
	used     map[int]struct{}
	blocked  func(first, last uint32) bool
}

// rootPool gives each sandbox a block of 65536 ids. Blocks that touch a range
// of reserved are left out. The search starts at first, so that several
// engines on one host rarely look at the same block.
func rootPool(reserved []subRange, first int) *idPool {
	return &idPool{
		slots: idBlocks,
		first: first % idBlocks,
		used:  map[int]struct{}{},
		slot: func(n int) idSlot {
			m := []idRange{{Inside: 0, Outside: idBase + uint32(n)*idBlock, Count: idBlock}}
			return idSlot{number: n, uids: m, gids: m}
		},
		hostUIDs: func(s idSlot) (uint32, uint32, bool) {
			return s.uids[0].Outside, s.uids[0].Outside + idBlock - 1, true
		},
		blocked: func(first, last uint32) bool {
			for _, r := range reserved {
				if uint64(first) < uint64(r.start)+uint64(r.count) && last >= r.start {
					return true
				}
			}
			return false
		},
	}
}

// rootlessPool gives each sandbox two of the subordinate ids of the engine's
// user namespace, whose maps are uidMap and gidMap.
func rootlessPool(uidMap, gidMap []idRange, first int) *idPool {
	slots := (min(mapEnd(uidMap), mapEnd(gidMap)) - 1) / 2
	return &idPool{
		slots: slots,
		first: first % max(slots, 1),
		used:  map[int]struct{}{},
		slot: func(n int) idSlot {
			id := uint32(1 + 2*n)
			m := []idRange{{Inside: 0, Outside: id, Count: 1}, {Inside: 1000, Outside: id + 1, Count: 1}}
			return idSlot{number: n, uids: m, gids: m}
		},
		hostUIDs: func(s idSlot) (uint32, uint32, bool) {
			a, ok1 := outside(uidMap, s.uids[0].Outside)
			b, ok2 := outside(uidMap, s.uids[1].Outside)
			return min(a, b), max(a, b), ok1 && ok2 && max(a, b)-min(a, b) == 1
		},
		blocked: func(uint32, uint32) bool { return false },
	}
}

// mapEnd is the number of ids from 0 that m maps without a gap.
func mapEnd(m []idRange) int {
	end := 0
	for _, r := range m {
		if int(r.Inside) == end {
			end += int(r.Count)
		}
	}
	return end
}

// take returns a slot that no sandbox of ours and no process of the host uses,
// going by hostUIDs, the set of user ids of all processes.
func (p *idPool) take(hostUIDs map[uint32]struct{}) (idSlot, error) {
	for i := range p.slots {
		n := (p.first + i) % p.slots
		if _, used := p.used[n]; used {
			continue
		}
		slot := p.slot(n)
		first, last, ok := p.hostUIDs(slot)
		if !ok || p.blocked(first, last) || occupied(hostUIDs, first, last) {
			continue
		}
		p.used[n] = struct{}{}
		return slot, nil
	}
	return idSlot{}, &sandbox.Error{
		Class: sandbox.ErrExhausted, Code: sandbox.CodeTooManyContainers,
		Message: "all user ids for sandboxes are taken; delete containers that are no longer needed",
	}
}

// mark notes that a sandbox from before has the slot.
func (p *idPool) mark(number int) { p.used[number] = struct{}{} }

// give returns a slot.
func (p *idPool) give(number int) { delete(p.used, number) }

func occupied(uids map[uint32]struct{}, first, last uint32) bool {
	for uid := range uids {
		if uid >= first && uid <= last {
			return true
		}
	}
	return false
}

// processUIDs returns the user ids that own a process of the host. The owner
// of /proc/<pid> is enough and is much cheaper than reading files in it.
func processUIDs(proc string) (map[uint32]struct{}, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	uids := map[uint32]struct{}{}
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		info, err := os.Lstat(filepath.Join(proc, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			uids[stat.Uid] = struct{}{}
		}
	}
	return uids, nil
}
