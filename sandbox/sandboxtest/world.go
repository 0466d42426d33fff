package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/shelld/shelld/sandbox"
)

// World is all that a [sandbox.Manager] reaches, in memory. Its parts can
// outlive a Manager, as the real ones do. Safe for concurrent use.
type World struct {
	Backend *Backend
	Boxes   *Boxes
	Outputs *Outputs
	Store   *Store
}

// New returns an empty World.
func New() *World {
	outputs := &Outputs{streams: map[streamKey]*stream{}}
	return &World{
		Backend: &Backend{boxes: map[sandbox.ID]*instance{}},
		Boxes:   &Boxes{outputs: outputs, enforced: true, open: map[sandbox.ID]*Box{}, dirs: map[sandbox.ID]bool{}},
		Outputs: outputs,
		Store:   NewStore(),
	}
}

// Options returns the options of a Manager in this World, which log nothing.
func (w *World) Options(policy sandbox.Policy) sandbox.Options {
	return sandbox.Options{
		Backend: w.Backend, Boxes: w.Boxes, Outputs: w.Outputs, Store: w.Store,
		Policy: policy, Log: slog.New(slog.DiscardHandler),
	}
}

// Leftovers names what exists of containers, calls and their output; empty when
// everything was removed. Calls are named only with their streams, since their
// records are to outlive them.
func (w *World) Leftovers(ctx context.Context) ([]string, error) {
	var left []string
	containers, err := w.Store.Containers(ctx)
	for _, c := range containers {
		left = append(left, fmt.Sprintf("record of %s container %s", c.Status, c.ID))
	}
	left = append(left, w.Backend.Leftovers()...)
	left = append(left, w.Boxes.leftovers()...)
	return left, err
}

// Op names an operation that a hook can be set for.
type Op string

// The operations.
const (
	OpCreate          Op = "create"
	OpList            Op = "list"
	OpDelete          Op = "delete"
	OpOpen            Op = "open"
	OpRemove          Op = "remove"
	OpStart           Op = "start"
	OpPutContainer    Op = "put container"
	OpDeleteContainer Op = "delete container"
	OpContainers      Op = "containers"
	OpAddCall         Op = "add call"
	OpPutCall         Op = "put call"
)

// A Hook runs before an operation on the object with the given id; an error is
// the operation's. It may block until ctx ends.
type Hook func(ctx context.Context, id string) error

// hooks are the hooks of one part of a World.
type hooks struct {
	mu     sync.Mutex
	hooks  map[Op]Hook
	counts map[Op]int
}

// On sets the hook of an operation. Nil: none.
func (h *hooks) On(op Op, hook Hook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hooks == nil {
		h.hooks = map[Op]Hook{}
	}
	h.hooks[op] = hook
}

// Count returns how often the operation has been asked for.
func (h *hooks) Count(op Op) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[op]
}

func (h *hooks) run(ctx context.Context, op Op, id string) error {
	h.mu.Lock()
	if h.counts == nil {
		h.counts = map[Op]int{}
	}
	h.counts[op]++
	hook := h.hooks[op]
	h.mu.Unlock()
	if hook != nil {
		if err := hook(ctx, id); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// Fail returns a hook that fails with err.
func Fail(err error) Hook {
	return func(context.Context, string) error { return err }
}

// Hang returns a hook that blocks until ctx ends.
func Hang() Hook {
	return func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
}

// Hold returns a hook that blocks until release is called, whatever ctx says,
// and a channel that gets a value each time that the hook is reached.
func Hold() (hook Hook, reached <-chan string, release func()) {
	at, free := make(chan string, 64), make(chan struct{})
	return func(_ context.Context, id string) error {
		at <- id
		<-free
		return nil
	}, at, sync.OnceFunc(func() { close(free) })
}

// ErrBroken is what the parts of a World fail with when a test gives no error
// of its own.
var ErrBroken = errors.New("broken by the test")

func sorted[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
