package sandboxtest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/shelld/shelld/sandbox"
)

// Store implements [sandbox.Store] in memory. Like a real one it keeps copies.
type Store struct {
	hooks

	mu         sync.Mutex
	containers []sandbox.Container
	calls      []storedCall // oldest first
}

type storedCall struct {
	scope    string
	call     sandbox.Call
	released time.Time // when its container ended; zero while it exists
}

var _ sandbox.Store = (*Store)(nil)

// NewStore returns an empty Store.
func NewStore() *Store { return &Store{} }

// clone copies a record as writing and reading it would.
func clone[T any](v T) (copied T, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return copied, err
	}
	err = json.Unmarshal(text, &copied)
	return copied, err
}

// PutContainer implements [sandbox.Store].
func (s *Store) PutContainer(ctx context.Context, c sandbox.Container) error {
	if err := s.run(ctx, OpPutContainer, string(c.ID)); err != nil {
		return err
	}
	c, err := clone(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.findContainer(c.ID); i >= 0 {
		s.containers[i] = c
		return nil
	}
	s.containers = append(s.containers, c)
	return nil
}

// DeleteContainer implements [sandbox.Store].
func (s *Store) DeleteContainer(ctx context.Context, id sandbox.ID, ended time.Time) error {
	if err := s.run(ctx, OpDeleteContainer, string(id)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.calls {
		if s.calls[i].call.ContainerID == id {
			s.calls[i].released = ended
		}
	}
	s.containers = slices.DeleteFunc(s.containers, func(c sandbox.Container) bool { return c.ID == id })
	return nil
}

// TouchContainer implements [sandbox.Store].
func (s *Store) TouchContainer(ctx context.Context, id sandbox.ID, lastActive time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.findContainer(id); i >= 0 {
		s.containers[i].LastActiveAt = lastActive
	}
	return context.Cause(ctx)
}

// Containers implements [sandbox.Store].
func (s *Store) Containers(ctx context.Context) ([]sandbox.Container, error) {
	if err := s.run(ctx, OpContainers, ""); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := clone(s.containers)
	slices.SortStableFunc(list, func(a, b sandbox.Container) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, err
}

// AddCall implements [sandbox.Store].
func (s *Store) AddCall(ctx context.Context, scope string, c sandbox.Call) (existing sandbox.Call, added bool, err error) {
	if err := s.run(ctx, OpAddCall, string(c.ID)); err != nil {
		return existing, false, err
	}
	if c, err = clone(c); err != nil {
		return existing, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stored := range s.calls {
		if stored.scope == scope && stored.call.Spec.CallID == c.Spec.CallID {
			existing, err = clone(stored.call)
			return existing, false, err
		}
	}
	s.calls = append(s.calls, storedCall{scope: scope, call: c})
	return existing, true, nil
}

// PutCall implements [sandbox.Store].
func (s *Store) PutCall(ctx context.Context, c sandbox.Call) error {
	if err := s.run(ctx, OpPutCall, string(c.ID)); err != nil {
		return err
	}
	c, err := clone(c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.findCall(c.ID); i >= 0 {
		s.calls[i].call = c
	}
	return nil
}

// DeleteCall implements [sandbox.Store].
func (s *Store) DeleteCall(ctx context.Context, id sandbox.CallID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = slices.DeleteFunc(s.calls, func(c storedCall) bool { return c.call.ID == id })
	return context.Cause(ctx)
}

// Call implements [sandbox.Store].
func (s *Store) Call(_ context.Context, id sandbox.CallID) (sandbox.Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.findCall(id); i >= 0 {
		return clone(s.calls[i].call)
	}
	return sandbox.Call{}, sandbox.NotFound("shell call", string(id))
}

// CallByKey implements [sandbox.Store].
func (s *Store) CallByKey(_ context.Context, scope, callID string) (sandbox.Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stored := range s.calls {
		if stored.scope == scope && stored.call.Spec.CallID == callID {
			return clone(stored.call)
		}
	}
	return sandbox.Call{}, sandbox.NotFound("shell call", callID)
}

// Calls implements [sandbox.Store].
func (s *Store) Calls(_ context.Context, q sandbox.Query) (page []sandbox.Call, more bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := slices.Clone(s.calls)
	if !q.Ascending {
		slices.Reverse(calls)
	}
	if q.After != "" {
		i := slices.IndexFunc(calls, func(c storedCall) bool { return string(c.call.ID) == q.After })
		if i < 0 {
			return nil, false, sandbox.Invalid("after", "no shell call with id %q", q.After)
		}
		calls = calls[i+1:]
	}
	for _, c := range calls {
		if (q.Container == "" || c.call.ContainerID == q.Container) && (q.Status == "" || c.call.Status == q.Status) {
			page = append(page, c.call)
		}
	}
	if more = len(page) > q.Limit; more {
		page = page[:q.Limit]
	}
	page, err = clone(page)
	return page, more, err
}

// OpenCalls implements [sandbox.Store].
func (s *Store) OpenCalls(ctx context.Context) ([]sandbox.Call, error) {
	s.mu.Lock()
	n := len(s.calls)
	s.mu.Unlock()
	open, _, err := s.Calls(ctx, sandbox.Query{Limit: n + 1, Ascending: true, Status: sandbox.CallInProgress})
	return open, err
}

// OldCalls implements [sandbox.Store].
func (s *Store) OldCalls(_ context.Context, before time.Time) (ids []sandbox.CallID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		ended := c.call.CompletedAt
		if !ended.IsZero() && !ended.After(before) && !c.released.After(before) && s.findContainer(c.call.ContainerID) < 0 {
			ids = append(ids, c.call.ID)
		}
	}
	return ids, nil
}

func (s *Store) findContainer(id sandbox.ID) int {
	return slices.IndexFunc(s.containers, func(c sandbox.Container) bool { return c.ID == id })
}

func (s *Store) findCall(id sandbox.CallID) int {
	return slices.IndexFunc(s.calls, func(c storedCall) bool { return c.call.ID == id })
}
