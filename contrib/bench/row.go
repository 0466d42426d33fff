package main

import (
	"slices"
	"time"
)

// row is one line of the table: one quantile of one comparison.
type row struct {
	ID   string `json:"id"`
	What string `json:"what"`
	// Ours and Reference are the quantile of each; nanoseconds in JSON.
	Ours      time.Duration `json:"ours_ns"`
	Reference time.Duration `json:"reference_ns"`
	Ratio     float64       `json:"ratio"`
	Target    string        `json:"target"`
	Met       bool          `json:"met"`
	N         int           `json:"n"`
	Skipped   string        `json:"skipped,omitempty"`
}

// samples are measured durations.
type samples []time.Duration

// quantile returns the smallest sample that a part q of all does not exceed.
func (s samples) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// compare makes the row of one quantile; the ratio must not exceed limit. A
// limit of zero means that the row is for information.
func compare(id, what string, ours, reference samples, q, limit float64, target string) row {
	a, b := ours.quantile(q), reference.quantile(q)
	ratio := float64(a) / float64(b)
	return row{
		ID: id, What: what, Ours: a, Reference: b, Ratio: ratio, Target: target,
		Met: limit == 0 || ratio <= limit, N: len(ours),
	}
}

// alternate measures a and b in turns, after some rounds that do not count.
func alternate(n, warm int, a, b func() error) (as, bs samples, err error) {
	for i := range n + warm {
		for _, m := range []struct {
			f    func() error
			into *samples
		}{{a, &as}, {b, &bs}} {
			began := time.Now()
			if err := m.f(); err != nil {
				return nil, nil, err
			}
			if i >= warm {
				*m.into = append(*m.into, time.Since(began))
			}
		}
	}
	return as, bs, nil
}
