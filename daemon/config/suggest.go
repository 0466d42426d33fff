package config

import "strings"

// nearest returns the candidate that was most likely meant by name, or "".
// A candidate with the same last part in another section counts as near.
func nearest(name string, candidates []string) string {
	best, bestDistance := "", 1+max(2, len(name)/4)
	for _, candidate := range candidates {
		if d := distance(name, candidate); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	if best != "" {
		return best
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	for _, candidate := range candidates {
		if strings.HasSuffix(candidate, "."+last) {
			return candidate
		}
	}
	return ""
}

// distance counts the bytes to insert, remove or replace to turn a into b.
func distance(a, b string) int {
	const longest = 64 // no key comes near; bounds the work on a hostile one
	if len(a) > longest || len(b) > longest {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
