// Package output stores what the commands of a run write, bounded and without
// loss up to the bounds, and cuts it to what a model is shown.
//
// A [Spool] is one stream (stdout or stderr of one run) in one file: a head
// that keeps the first bytes up to a cap, and behind it a ring that always
// holds the last ones. [Spool.Consume] moves the bytes from the run's pipe into
// the file with splice(2), so they never pass through this process and none is
// taken from the pipe without being stored. Memory per stream is constant. A
// stream that stays empty has no file and costs no system call but a poll.
//
// All positions are offsets in the stream as the command produced it. What lies
// between head and ring is gone: it is the gap, which is counted and reported
// ([GapError], [Meta.Gap]), never hidden. When the file cannot take bytes (disk
// full, I/O error) the pipe is drained all the same, so that the command does
// not stall; the bytes become part of the gap and [Spool.Err] says why.
//
// Reading goes on beside writing: [Spool.ReadAt] for ranges, [Spool.Follow] for
// a reader that waits for more. No reader ever holds up the writer. [Cut] makes
// the text of a result out of the two streams of a run.
//
// Nothing here is flushed with fsync: the page cache survives the death of the
// daemon, and output is not worth a disk write per command.
package output
