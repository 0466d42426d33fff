package sandbox

import (
	"context"
	"io"
)

// Call returns a shell call as it is now.
func (m *Manager) Call(ctx context.Context, id CallID) (Call, error) {
	if a := m.active(id); a != nil {
		return a.Call(), nil
	}
	return m.opts.Store.Call(ctx, id)
}

// Calls returns a page of calls by creation time, and whether there are more.
func (m *Manager) Calls(ctx context.Context, q Query) (page []Call, more bool, err error) {
	return m.opts.Store.Calls(ctx, q)
}

// Cancel ends a call's commands and returns the call. One that has ended is
// returned as it is.
func (m *Manager) Cancel(ctx context.Context, id CallID) (Call, error) {
	a := m.active(id)
	if a == nil {
		return m.opts.Store.Call(ctx, id)
	}
	a.cancel(errCanceled)
	if err := await(ctx, a.done); err != nil {
		return Call{}, err
	}
	if a.err != nil {
		return Call{}, a.err
	}
	return a.Call(), nil
}

// Output returns one stream of one command of a call, live or stored.
func (m *Manager) Output(ctx context.Context, id CallID, index int, stream Stream) (Output, error) {
	if a := m.active(id); a != nil {
		run, err := m.run(ctx, a, index)
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		if m.calls[id] == a { // dropped meanwhile: it is in the store now
			defer m.mu.Unlock()
			return run.Output(stream), nil
		}
		m.mu.Unlock()
	}
	call, err := m.opts.Store.Call(ctx, id)
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= len(call.Results) {
		return nil, noCommand(call, index)
	}
	meta := call.Results[index].StdoutMeta
	if stream == Stderr {
		meta = call.Results[index].StderrMeta
	}
	return m.opts.Outputs.Open(id, index, stream, meta)
}

// Stdin returns the standard input of a running command that was started with
// [CallSpec.Stdin]. It can be taken once.
func (m *Manager) Stdin(ctx context.Context, id CallID, index int) (io.WriteCloser, error) {
	a := m.active(id)
	if a == nil {
		call, err := m.opts.Store.Call(ctx, id)
		if err != nil {
			return nil, err
		}
		return nil, &Error{Class: ErrConflict, Code: CodeInUse, Message: "shell call " + string(call.ID) + " has ended; its commands read nothing any more"}
	}
	run, err := m.run(ctx, a, index)
	if err != nil {
		return nil, err
	}
	return run.Stdin()
}

func (m *Manager) active(id CallID) *ActiveCall {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[id]
}

// run returns a command of an active call once it runs.
func (m *Manager) run(ctx context.Context, a *ActiveCall, index int) (Run, error) {
	if err := await(ctx, a.started); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if index < 0 || index >= len(a.runs) || a.runs[index] == nil {
		return nil, noCommand(a.call, index)
	}
	return a.runs[index], nil
}
