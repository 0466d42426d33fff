package sandbox

import (
	"context"
	"io"
)

// find returns an active call, or the record of one that has ended. Until the
// Manager is ready, and has found out what became of them, it knows only those
// that had ended before.
func (m *Manager) find(ctx context.Context, id CallID) (*ActiveCall, Call, error) {
	for ready := false; ; ready = true {
		if a := m.active(id); a != nil {
			return a, Call{}, nil
		}
		call, err := m.opts.Store.Call(ctx, id)
		if err != nil || call.Status != CallInProgress {
			return nil, call, err
		}
		if ready {
			return nil, Call{}, unsettled(call)
		}
		if err := m.await(ctx); err != nil {
			return nil, Call{}, err
		}
	}
}

// Call returns a shell call as it is now.
func (m *Manager) Call(ctx context.Context, id CallID) (Call, error) {
	a, call, err := m.find(ctx, id)
	if a != nil {
		return a.Call(), nil
	}
	return call, err
}

// Calls returns a page of calls by creation time, and whether there are more.
func (m *Manager) Calls(ctx context.Context, q Query) (page []Call, more bool, err error) {
	if err := m.await(ctx); err != nil {
		return nil, false, err // some say that they are in progress, and are not
	}
	return m.opts.Store.Calls(ctx, q)
}

// Cancel ends a call's commands and returns the call. One that has ended is
// returned as it is.
func (m *Manager) Cancel(ctx context.Context, id CallID) (Call, error) {
	a, call, err := m.find(ctx, id)
	if a == nil {
		return call, err
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
	a, call, err := m.find(ctx, id)
	if a != nil {
		run, err := m.run(ctx, a, index)
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		if m.calls[id] == a {
			defer m.mu.Unlock()
			return run.Output(stream), nil
		}
		m.mu.Unlock()
		if call, err = m.opts.Store.Call(ctx, id); err != nil { // dropped meanwhile: it is in the store now
			return nil, err
		}
	} else if err != nil {
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
	a, call, err := m.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if a == nil {
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
