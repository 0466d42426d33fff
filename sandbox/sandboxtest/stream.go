package sandboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/shelld/shelld/sandbox"
)

// Outputs implements [sandbox.Outputs] in memory.
type Outputs struct {
	mu      sync.Mutex
	streams map[streamKey]*stream
}

var _ sandbox.Outputs = (*Outputs)(nil)

type streamKey struct {
	call   sandbox.CallID
	index  int
	stream sandbox.Stream
}

func (o *Outputs) add(call sandbox.CallID, index int, name sandbox.Stream) *stream {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &stream{changed: make(chan struct{})}
	o.streams[streamKey{call, index, name}] = s
	return s
}

// Open implements [sandbox.Outputs]. A stream ends where meta says.
func (o *Outputs) Open(call sandbox.CallID, index int, name sandbox.Stream, meta json.RawMessage) (sandbox.Output, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.streams[streamKey{call, index, name}]
	if s == nil {
		return nil, sandbox.NotFound("output of shell call", string(call))
	}
	size, err := strconv.Atoi(string(meta))
	if err != nil {
		return nil, fmt.Errorf("decode state of stream: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &stream{data: s.data[:size], from: s.from, to: s.to, done: true, changed: make(chan struct{})}, nil
}

// Remove implements [sandbox.Outputs].
func (o *Outputs) Remove(call sandbox.CallID) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.streams {
		if key.call == call {
			delete(o.streams, key)
		}
	}
	return nil
}

// Prune implements [sandbox.Outputs].
func (o *Outputs) Prune(known func(sandbox.CallID) bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for key := range o.streams {
		if !known(key.call) {
			delete(o.streams, key)
		}
	}
	return nil
}

// Plant leaves a stream there of a call that nobody knows.
func (o *Outputs) Plant(call sandbox.CallID) { o.add(call, 0, sandbox.Stdout) }

// Calls returns how many calls have output.
func (o *Outputs) Calls() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := map[sandbox.CallID]bool{}
	for key := range o.streams {
		calls[key.call] = true
	}
	return len(calls)
}

// stream implements [sandbox.Output].
type stream struct {
	mu       sync.Mutex
	data     []byte
	from, to int64 // the gap
	done     bool
	changed  chan struct{} // closed and replaced at each change
}

// Write implements [io.Writer].
func (s *stream) Write(p []byte) (int, error) {
	s.write(string(p))
	return len(p), nil
}

func (s *stream) write(text string) {
	s.change(func() { s.data = append(s.data, text...) })
}

func (s *stream) setGap(from, to int64) { s.change(func() { s.from, s.to = from, to }) }

func (s *stream) finish() { s.change(func() { s.done = true }) }

func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.data)
}

func (s *stream) meta() json.RawMessage {
	return json.RawMessage(strconv.FormatInt(s.Produced(), 10))
}

// Produced implements [sandbox.Output].
func (s *stream) Produced() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.data))
}

// Gap implements [sandbox.Output].
func (s *stream) Gap() (from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.from, s.to
}

// Read implements [sandbox.Output].
func (s *stream) Read(ctx context.Context, w io.Writer, from, to int64, follow bool) error {
	for at := from; ; {
		s.mu.Lock()
		end := int64(len(s.data))
		if to >= 0 {
			end = min(end, to)
		}
		var piece []byte
		for ; at < end; at++ {
			if at < s.from || at >= s.to {
				piece = append(piece, s.data[at])
			}
		}
		over, changed := s.done || !follow || to >= 0 && at >= to, s.changed
		s.mu.Unlock()
		if len(piece) > 0 {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
		if over {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close implements [sandbox.Output].
func (s *stream) Close() error { return nil }
