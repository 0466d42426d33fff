package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// Options are what a [Manager] is made of. Every field is required unless it
// says otherwise.
type Options struct {
	Backend Backend
	Boxes   Boxes
	Outputs Outputs
	Store   Store
	Log     *slog.Logger
	Policy  Policy
	// Now is the clock of records and activity. Nil: time.Now.
	Now func() time.Time
}

// Policy are the numbers that the Manager holds callers to.
type Policy struct {
	// MaxContainers is how many containers may live at once.
	MaxContainers int
	// MaxRuns is how many commands may run at once in all containers.
	MaxRuns int
	// Keep is how long the calls of a container outlive it, with their
	// output, and how long a failed container is shown.
	Keep time.Duration
	// AllowUnenforced lets containers start where the memory limit or the
	// process limit cannot be enforced.
	AllowUnenforced bool
}

const (
	// leaveGrace is how long a call goes on after its last waiting client has
	// gone, so that a client that reconnects can join it.
	leaveGrace = time.Second
	// undoBudget bounds the removal of what a failed or canceled operation
	// has made.
	undoBudget = 30 * time.Second
	// startPatience is how long early callers wait for the daemon to be ready.
	startPatience = 10 * time.Second
	// insistEvery is how often storing the end of a call is tried again.
	insistEvery = time.Second
	// maxGone is how many removed containers a list can be continued after.
	maxGone = 1000
	// sweepEvery is how often old records are looked for.
	sweepEvery = 10 * time.Minute
)

// errClosed ends what is under way when the daemon stops.
var errClosed = Unavailable(CodeNotReady, nil, "shelld is stopping")

// Manager moves containers and calls through their states. It holds no truth
// of its own: the store and the backend do, and [Manager.Reconcile] brings it
// in line with them. Its methods are safe for concurrent use.
type Manager struct {
	opts Options
	log  *slog.Logger
	now  func() time.Time

	// stopped is closed by Close; wg waits for every goroutine of the Manager.
	stopped chan struct{}
	wg      sync.WaitGroup
	// working waits for the operations of callers that may start and remove
	// sandboxes.
	working sync.WaitGroup

	// mu guards all below. It is held for moments only, never over a call to
	// the store, the backend or a box.
	mu sync.Mutex
	// notReady is why calls are refused; nil once reconciled. settled is closed
	// when that has been found out for the first time.
	notReady error
	settled  chan struct{}
	entries  map[ID]*entry
	// gone are the places of the containers removed last, at most maxGone.
	gone  []place
	calls map[CallID]*ActiveCall
	// byKey finds the call of a scope and a caller's own call id that is active,
	// or whose end is not stored yet.
	byKey map[callKey]*ActiveCall
	runs  int
	// operations are what working waits for, with the means to end them.
	operations map[*operation]struct{}
}

// operation is something a caller waits for that must not outlive the Manager.
type operation struct{ cancel context.CancelCauseFunc }

// entry is a container in memory. Its fields are guarded by Manager.mu.
type entry struct {
	id        ID // of container; never changes
	container Container
	// doomed says that nobody is to have the container any more, though it
	// may take time until it is removed. It takes no one's place.
	doomed bool
	// box is nil unless the container is running, and also when its sandbox
	// runs but could not be adopted yet.
	box Box
	// active are the calls whose commands run, or are about to run, in it.
	active map[*ActiveCall]struct{}
	// busy is closed when a delete, or the clean-up of a failure, has ended;
	// nil when none is under way. There is one at a time.
	busy chan struct{}
}

func newEntry(c Container) *entry {
	return &entry{id: c.ID, container: c, active: map[*ActiveCall]struct{}{}}
}

type callKey struct{ scope, callID string }

// New returns a Manager that refuses all work until [Manager.Reconcile] has
// succeeded. Close ends it.
func New(opts Options) *Manager {
	m := &Manager{
		opts:     opts,
		log:      opts.Log,
		now:      opts.Now,
		stopped:  make(chan struct{}),
		notReady: Unavailable(CodeNotReady, nil, "shelld is starting; try again in a moment"),
		settled:  make(chan struct{}),
		entries:  map[ID]*entry{},
		calls:    map[CallID]*ActiveCall{},
		byKey:    map[callKey]*ActiveCall{},

		operations: map[*operation]struct{}{},
	}
	if m.now == nil {
		m.now = time.Now
	}
	m.wg.Go(m.sweepLoop)
	return m
}

// Ready returns nil when calls are served, and else why not.
func (m *Manager) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notReady
}

// SetNotReady makes every call fail with err until Reconcile has succeeded.
func (m *Manager) SetNotReady(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.setNotReadyLocked(err)
}

// setNotReadyLocked does nothing once the Manager stops, which is for good.
func (m *Manager) setNotReadyLocked(err error) {
	if m.stoppingLocked() {
		return
	}
	m.notReady = err
	select {
	case <-m.settled:
	default:
		close(m.settled)
	}
}

// await returns nil when calls are served, and else why not. A caller that
// comes while the daemon starts is kept waiting for that, since the one that
// starts it is often the one that calls first.
func (m *Manager) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, m.Ready())
	defer cancel()
	if err := await(ctx, m.settled); err != nil {
		return err
	}
	return m.Ready()
}

// Counts returns how many containers and commands live now.
func (m *Manager) Counts() (containers, runs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.liveLocked(), m.runs
}

// Close lets go of all sandboxes, which live on, and waits until nothing of
// the Manager runs any more. Waiting clients get an [ErrUnavailable] error.
// It is called once.
func (m *Manager) Close() error {
	close(m.stopped)
	_ = m.quiesce(context.Background(), errClosed) // nothing ends this wait
	m.mu.Lock()
	boxes := make([]Box, 0, len(m.entries))
	for _, e := range m.entries {
		if e.box != nil {
			boxes = append(boxes, e.box)
		}
	}
	m.mu.Unlock()
	var errs []error
	for _, box := range boxes {
		errs = append(errs, box.Close())
	}
	m.wg.Wait()
	return errors.Join(errs...)
}

// stoppingLocked reports whether the Manager takes no more work.
func (m *Manager) stoppingLocked() bool { return errors.Is(m.notReady, errClosed) }

// quiesce takes no more work, ends operations, and calls for the given cause,
// and waits for them. Their boxes are open until then.
func (m *Manager) quiesce(ctx context.Context, cause error) error {
	m.mu.Lock()
	m.setNotReadyLocked(errClosed)
	for op := range m.operations {
		op.cancel(errClosed)
	}
	calls := slices.Collect(maps.Values(m.calls))
	m.mu.Unlock()
	for _, a := range calls {
		a.cancel(cause)
	}
	for _, a := range calls {
		if err := await(ctx, a.done); err != nil {
			return err
		}
	}
	m.working.Wait() // each has an end of its own once canceled
	return nil
}

// operate counts an operation in, which [Manager.Close] ends and waits for.
func (m *Manager) operate(ctx context.Context) (opCtx context.Context, end func(), err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stoppingLocked() {
		return nil, nil, errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	op := &operation{cancel}
	m.operations[op] = struct{}{}
	m.working.Add(1)
	return ctx, func() {
		m.mu.Lock()
		delete(m.operations, op)
		m.mu.Unlock()
		cancel(nil)
		m.working.Done()
	}, nil
}

// undo returns a context for cleaning up after something that was canceled.
func undo(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), undoBudget, errors.New("cleaning up took too long"))
}

func (m *Manager) liveLocked() int {
	n := 0
	for _, e := range m.entries {
		if e.container.Status != StatusFailed && !e.doomed {
			n++
		}
	}
	return n
}
