package output

import "sync/atomic"

// A Budget limits what the heads of many spools take together. Rings are not
// counted; they add at most their size for each stream. Both methods are called
// by many goroutines at once. Reserve is called on the path of the output, so
// while it thinks (or makes room by removing old spools) the command may block
// on its full pipe.
type Budget interface {
	// Reserve takes n bytes and reports whether there was room. When there is
	// none the head that asked stops growing for good.
	Reserve(n int64) bool
	// Release gives n bytes back.
	Release(n int64)
}

// A Quota is the plain [Budget]: a counter with a limit. It is made by
// [NewQuota].
type Quota struct {
	limit int64
	used  atomic.Int64
}

// NewQuota returns an unused quota of limit bytes.
func NewQuota(limit int64) *Quota { return &Quota{limit: limit} }

// Reserve implements [Budget].
func (q *Quota) Reserve(n int64) bool {
	for {
		used := q.used.Load()
		if used+n > q.limit {
			return false
		}
		if q.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Release implements [Budget].
func (q *Quota) Release(n int64) { q.used.Add(-n) }

// Adopt counts n bytes that exist already, even beyond the limit: the heads of
// the spools found at start.
func (q *Quota) Adopt(n int64) { q.used.Add(n) }
