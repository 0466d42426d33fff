package guest

import "testing"

type exits []exitMessage

func (e *exits) exited(m exitMessage) { *e = append(*e, m) }

func TestEarlyExit(t *testing.T) {
	t.Parallel()
	r := newReaper()
	var h exits
	own, others := exitMessage{Status: 1}, exitMessage{Status: 2}

	// Reaped before its fork returned.
	seq := r.begin()
	r.reaped(10, own)
	if got, ended := r.commit(seq, 10, &h); !ended || got != own {
		t.Errorf("got %+v, %v", got, ended)
	}

	// Reaped in the usual order, and only once.
	seq = r.begin()
	if _, ended := r.commit(seq, 11, &h); ended {
		t.Error("ended before it was reaped")
	}
	r.reaped(11, own)
	r.reaped(11, others)
	if len(h) != 1 || h[0] != own {
		t.Errorf("got %+v", h)
	}

	// An orphan that had the id before the fork began is not the child, even
	// when another fork was under way all the time.
	long := r.begin()
	r.reaped(12, others)
	seq = r.begin()
	if _, ended := r.commit(seq, 12, &h); ended {
		t.Error("took the exit of an earlier process with the same id")
	}
	r.abort(long)
	if len(r.early) != 0 || len(r.forking) != 0 {
		t.Errorf("left: %v, %v", r.early, r.forking)
	}

	// Unknown ones are not remembered when nobody can ask for them.
	r.reaped(13, others)
	if len(r.early) != 0 {
		t.Errorf("left: %v", r.early)
	}
}
