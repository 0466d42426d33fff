package runner

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/shelld/shelld/sandbox/output"
)

const (
	// catchUpBudget bounds the wait for what a command has written; only a
	// machine that is hardly moving needs more than a moment.
	catchUpBudget = 10 * time.Second
	catchUpPause  = 2 * time.Millisecond
	// onTheWay is more than the spools take from a pipe at once. Unit: bytes.
	onTheWay = 2 << 20
)

// backlog is what a stream's pipe held at some moment.
type backlog struct {
	spool *output.Spool
	pipe  *os.File
	// end is an offset of the stream that is not before the backlog's end.
	end int64
}

func newBacklog(spool *output.Spool, pipe *os.File) backlog {
	return backlog{spool: spool, pipe: pipe, end: int64(waiting(pipe)) + onTheWay + spool.Produced()}
}

// stored reports whether all of the backlog is in the spool: because nothing
// is left in the pipe, or because so much has followed.
func (b backlog) stored() bool {
	return waiting(b.pipe) == 0 && b.spool.Settled() || b.spool.Produced() >= b.end
}

// waiting returns how many bytes are in the pipe; none when it is closed.
func waiting(pipe *os.File) (n int) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return 0
	}
	err = conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	if err != nil {
		return 0
	}
	return n
}

// catchUp waits until what the command has written by now is stored. That is
// most often so; but on a busy machine the goroutines that store it may not
// have had their turn in all the time of the drain. A background process that
// goes on writing does not hold it up.
func (r *run) catchUp(ctx context.Context) {
	out, errs := newBacklog(r.stdout, r.proc.Stdout), newBacklog(r.stderr, r.proc.Stderr)
	ticker := time.NewTicker(catchUpPause)
	defer ticker.Stop()
	limit := time.NewTimer(catchUpBudget)
	defer limit.Stop()
	for !out.stored() || !errs.stored() {
		select {
		case <-ticker.C:
		case <-r.closed:
			return
		case <-limit.C:
			r.box.opts.Log.WarnContext(ctx, "output of a run not stored in time", "container_id", r.box.id, "run", r.id)
			return
		case <-ctx.Done():
			return
		}
	}
}
