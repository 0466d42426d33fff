package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/output"
)

// Spools keeps the streams of all runs in one folder, a folder in it for each
// call. It implements [sandbox.Outputs].
type Spools struct {
	dir     string
	headMax int64
	ledger  *ledger
	ids     runIDs
}

// OpenSpools returns the spools in dir, which is made when it is needed. A
// stream keeps headMax bytes from its beginning, and all of them total bytes
// together; beyond that only the ends of streams are kept.
func OpenSpools(dir string, headMax, total int64) (*Spools, error) {
	ids, err := openRunIDs(dir + keySuffix)
	if err != nil {
		return nil, err
	}
	s := &Spools{dir: dir, headMax: headMax, ledger: newLedger(total), ids: ids}
	calls, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("measure spools: %w", err)
	}
	for _, call := range calls {
		size, err := s.size(filepath.Join(dir, call.Name()))
		if err != nil {
			return nil, fmt.Errorf("measure spools: %w", err)
		}
		s.ledger.adopt(sandbox.CallID(call.Name()), size)
	}
	return s, nil
}

// size returns how much of the quota the files below dir may take.
func (s *Spools) size(dir string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		total += min(info.Size(), s.headMax)
		return nil
	})
	return total, err
}

func (s *Spools) options(call sandbox.CallID) output.Options {
	return output.Options{HeadMax: s.headMax, Budget: share{s.ledger, call}}
}

// create returns the spool of a new stream. Nothing is written before the
// first byte comes.
func (s *Spools) create(call sandbox.CallID, index int, stream sandbox.Stream) *output.Spool {
	return output.New(filepath.Join(s.dir, spoolPath(call, index, stream)), s.options(call))
}

// resume returns the spool of a stream that goes on after a restart.
func (s *Spools) resume(call sandbox.CallID, index int, stream sandbox.Stream) (*output.Spool, error) {
	spool, err := output.Open(filepath.Join(s.dir, spoolPath(call, index, stream)), output.Meta{}, s.options(call))
	if errors.Is(err, fs.ErrNotExist) {
		return s.create(call, index, stream), nil
	}
	return spool, err
}

// Open implements [sandbox.Outputs].
func (s *Spools) Open(call sandbox.CallID, index int, stream sandbox.Stream, meta json.RawMessage) (sandbox.Output, error) {
	var m output.Meta
	if len(meta) > 0 {
		if err := json.Unmarshal(meta, &m); err != nil {
			return nil, fmt.Errorf("decode state of %s: %w", spoolPath(call, index, stream), err)
		}
	}
	file := filepath.Join(s.dir, spoolPath(call, index, stream))
	if len(meta) == 0 {
		// No byte, or a command that was lost before its end was recorded: then
		// the file's size tells how much there is.
		if _, err := os.Stat(file); err == nil {
			return s.openLost(call, file)
		}
	}
	m.Complete = true // what a background process wrote later is beyond the record
	spool, err := output.Open(file, m, s.options(call))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{
			Class: sandbox.ErrNotFound, Code: sandbox.CodeNotFound,
			Message: fmt.Sprintf("the output of shell call %s is not kept any more", call), Cause: err,
		}
	}
	if err != nil {
		return nil, err
	}
	return spoolOutput{Spool: spool, close: spool.Close}, nil
}

// openLost opens a stream of which only the file is left.
func (s *Spools) openLost(call sandbox.CallID, file string) (sandbox.Output, error) {
	spool, err := output.Open(file, output.Meta{}, s.options(call))
	if err != nil {
		return nil, err
	}
	spool.Finish()
	return spoolOutput{Spool: spool, close: spool.Close}, nil
}

// Remove implements [sandbox.Outputs].
func (s *Spools) Remove(call sandbox.CallID) error {
	if err := os.RemoveAll(filepath.Join(s.dir, string(call))); err != nil {
		return fmt.Errorf("remove output of call %s: %w", call, err)
	}
	s.ledger.forget(call)
	return nil
}

// Prune implements [sandbox.Outputs].
func (s *Spools) Prune(known func(sandbox.CallID) bool) error {
	calls, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list output of calls: %w", err)
	}
	var errs []error
	for _, folder := range calls {
		if call := sandbox.CallID(folder.Name()); call.Valid() && !known(call) {
			errs = append(errs, s.Remove(call))
		}
	}
	return errors.Join(errs...)
}

// spoolOutput implements [sandbox.Output].
type spoolOutput struct {
	*output.Spool
	close func() error
}

// Close implements [sandbox.Output].
func (o spoolOutput) Close() error { return o.close() }

// Read implements [sandbox.Output].
func (o spoolOutput) Read(ctx context.Context, w io.Writer, from, to int64, follow bool) error {
	follower, err := o.Follow(from)
	if err != nil {
		return err
	}
	defer follower.Close() //nolint:errcheck // it is only read
	if to < 0 && !follow {
		to = o.Produced()
	}
	buf := make([]byte, readSize)
	for to < 0 || follower.Offset() < to {
		p := buf
		if to >= 0 {
			p = buf[:min(readSize, to-follower.Offset())]
		}
		n, err := follower.ReadContext(ctx, p)
		if errors.Is(err, output.ErrGap) {
			continue // the caller knows of the gap
		}
		if n > 0 {
			if _, err := w.Write(p[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readSize is the piece in which streams are copied to readers. Unit: bytes.
const readSize = 64 << 10
