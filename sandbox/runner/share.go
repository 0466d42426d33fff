package runner

import (
	"sync"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/output"
)

// ledger knows what each call has taken of the quota, so that removing a call
// gives back just that. The files do not tell: a stream's end, which is not
// counted, is in the same file as its head.
type ledger struct {
	quota *output.Quota

	mu    sync.Mutex
	taken map[sandbox.CallID]int64
}

func newLedger(total int64) *ledger {
	return &ledger{quota: output.NewQuota(total), taken: map[sandbox.CallID]int64{}}
}

// adopt counts what an earlier daemon has left of a call.
func (l *ledger) adopt(call sandbox.CallID, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quota.Adopt(size)
	l.taken[call] += size
}

// forget gives back all that a call has taken.
func (l *ledger) forget(call sandbox.CallID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.quota.Release(l.taken[call])
	delete(l.taken, call)
}

// share is what one call takes of the quota. It implements [output.Budget].
type share struct {
	ledger *ledger
	call   sandbox.CallID
}

// Reserve implements [output.Budget].
func (s share) Reserve(n int64) bool {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	if !s.ledger.quota.Reserve(n) {
		return false
	}
	s.ledger.taken[s.call] += n
	return true
}

// Release implements [output.Budget]. A call that was forgotten has nothing
// more to give back.
func (s share) Release(n int64) {
	s.ledger.mu.Lock()
	defer s.ledger.mu.Unlock()
	n = min(n, s.ledger.taken[s.call])
	s.ledger.quota.Release(n)
	if s.ledger.taken[s.call] -= n; s.ledger.taken[s.call] == 0 {
		delete(s.ledger.taken, s.call)
	}
}
