package sandboxtest

import (
	"context"
	"fmt"
	"sync"

	"github.com/shelld/shelld/sandbox"
)

// Boxes implements [sandbox.Boxes] in memory. What its commands do is said in
// their texts, in a small language: "out hello; sleep 2s; exit 3". The others
// are err TEXT, cat, hang, stuck, leave (a background process), gap FROM TO (of
// stdout), and lost, nostart and badstart, which do not start.
type Boxes struct {
	hooks
	outputs *Outputs

	mu       sync.Mutex
	enforced bool
	open     map[sandbox.ID]*Box
	dirs     map[sandbox.ID]bool // what Open leaves on the host until Remove
}

var (
	_ sandbox.Boxes = (*Boxes)(nil)
	_ sandbox.Box   = (*Box)(nil)
)

// Unenforced makes the limits of new boxes unenforced.
func (b *Boxes) Unenforced() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enforced = false
}

// CgroupPath implements [sandbox.Boxes].
func (b *Boxes) CgroupPath(id sandbox.ID) string { return "/test/" + id.Key() }

// Open implements [sandbox.Boxes].
func (b *Boxes) Open(ctx context.Context, in sandbox.Instance, spec sandbox.Spec) (sandbox.Box, error) {
	if err := b.run(ctx, OpOpen, string(in.ID)); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dirs[in.ID] = true
	box := &Box{
		boxes: b, id: in.ID, done: make(chan struct{}), live: map[*run]struct{}{},
		limits: sandbox.Limits{
			Memory: sandbox.Limit{Value: spec.MemoryBytes, Enforced: b.enforced},
			Pids:   sandbox.Limit{Value: 512, Enforced: b.enforced},
		},
	}
	b.open[in.ID] = box
	return box, nil
}

// Remove implements [sandbox.Boxes].
func (b *Boxes) Remove(ctx context.Context, id sandbox.ID) error {
	if err := b.run(ctx, OpRemove, string(id)); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.dirs, id)
	return nil
}

// Box returns the box that is open for a sandbox, or nil.
func (b *Boxes) Box(id sandbox.ID) *Box {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open[id]
}

// leftovers names what is there.
func (b *Boxes) leftovers() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, id := range sorted(b.open) {
		left = append(left, "open box "+string(id))
	}
	for _, id := range sorted(b.dirs) {
		left = append(left, "host part of sandbox "+string(id))
	}
	return left
}

// Box implements [sandbox.Box] in memory.
type Box struct {
	boxes  *Boxes
	id     sandbox.ID
	limits sandbox.Limits
	done   chan struct{}

	mu     sync.Mutex
	err    error
	closed bool
	live   map[*run]struct{} // runs with open streams
}

// Start implements [sandbox.Box].
func (b *Box) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Run, error) {
	if err := b.boxes.run(ctx, OpStart, string(cmd.Call)); err != nil {
		return nil, err
	}
	steps, err := parseScript(cmd.Text)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil || b.closed {
		return nil, sandbox.Unavailable(sandbox.CodeEngineUnavailable, b.err, "the sandbox does not answer")
	}
	r := newRun(b, cmd)
	b.live[r] = struct{}{}
	go r.play(steps)
	return r, nil
}

// Limits implements [sandbox.Box].
func (b *Box) Limits() sandbox.Limits { return b.limits }

// Done implements [sandbox.Box].
func (b *Box) Done() <-chan struct{} { return b.done }

// Err implements [sandbox.Box].
func (b *Box) Err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// Lose makes the box unusable, as when PID 1 of its sandbox dies. What runs in
// it is lost.
func (b *Box) Lose(err error) {
	b.mu.Lock()
	if b.err == nil {
		b.err = fmt.Errorf("lost: %w", err)
		close(b.done)
	}
	b.mu.Unlock()
	b.endAll()
}

// LoseSilently is Lose, but what runs in the box goes on: its end is not
// noticed until the box is closed.
func (b *Box) LoseSilently(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = fmt.Errorf("lost: %w", err)
		close(b.done)
	}
}

// Release ends the background processes that commands have left.
func (b *Box) Release() {
	for _, r := range b.runs() {
		r.release()
	}
}

// Close implements [sandbox.Box].
func (b *Box) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.endAll()
	b.boxes.mu.Lock()
	defer b.boxes.mu.Unlock()
	if b.boxes.open[b.id] == b {
		delete(b.boxes.open, b.id)
	}
	return nil
}

func (b *Box) endAll() {
	for _, r := range b.runs() {
		r.End(sandbox.ReasonLost)
		r.release()
		<-r.closed
	}
}

func (b *Box) runs() []*run {
	b.mu.Lock()
	defer b.mu.Unlock()
	var runs []*run
	for r := range b.live {
		runs = append(runs, r)
	}
	return runs
}

func (b *Box) ended(r *run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.live, r)
}
