package engine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// idRange maps Count ids from Inside a user namespace on to those from Outside.
type idRange struct {
	Inside  uint32 `json:"inside"`
	Outside uint32 `json:"outside"`
	Count   uint32 `json:"count"`
}

// subRange is one line of /etc/subuid or /etc/subgid.
type subRange struct {
	owner        string
	start, count uint32
}

// readSubIDs reads a file in the format of subuid(5). A missing file is an
// empty one; lines that are no ranges are skipped, as newuidmap does.
func readSubIDs(path string) (ranges []subRange, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read subordinate ids: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(fields) != 3 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		start, err1 := strconv.ParseUint(fields[1], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if err1 != nil || err2 != nil || count == 0 || start+count > 1<<32 {
			continue
		}
		ranges = append(ranges, subRange{owner: fields[0], start: uint32(start), count: uint32(count)})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read subordinate ids of %s: %w", path, err)
	}
	return ranges, nil
}

// ownedBy returns the ranges of the user with that name or number.
func ownedBy(ranges []subRange, name string, id int) []subRange {
	var own []subRange
	for _, r := range ranges {
		if r.owner == name || r.owner == strconv.Itoa(id) {
			own = append(own, r)
		}
	}
	return own
}

// total is the number of ids in ranges.
func total(ranges []subRange) (n uint64) {
	for _, r := range ranges {
		n += uint64(r.count)
	}
	return n
}

// mapArgs are the arguments of newuidmap(1) and newgidmap(1) after the process
// id: id 0 is the user, the ids from 1 are the subordinate ones in order.
func mapArgs(id int, ranges []subRange) []string {
	args := []string{"0", strconv.Itoa(id), "1"}
	next := uint64(1)
	for _, r := range ranges {
		args = append(args, strconv.FormatUint(next, 10), strconv.FormatUint(uint64(r.start), 10), strconv.FormatUint(uint64(r.count), 10))
		next += uint64(r.count)
	}
	return args
}

// readIDMap reads /proc/<pid>/uid_map or gid_map.
func readIDMap(path string) ([]idRange, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read id map: %w", err)
	}
	var ranges []idRange
	for line := range strings.Lines(string(data)) {
		var r idRange
		if _, err := fmt.Sscan(line, &r.Inside, &r.Outside, &r.Count); err != nil {
			return nil, fmt.Errorf("parse id map %s: %w", path, err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// outside translates an id inside a user namespace; false when it has no
// counterpart.
func outside(ranges []idRange, id uint32) (uint32, bool) {
	for _, r := range ranges {
		if id >= r.Inside && uint64(id) < uint64(r.Inside)+uint64(r.Count) {
			return r.Outside + (id - r.Inside), true
		}
	}
	return 0, false
}
