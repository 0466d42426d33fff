package guest

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// readHello reads the list of runs with which the guest begins.
func (c *Client) readHello(rx *receiver) error {
	if err := c.conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	known := make(map[string]bool)
	for more := true; more; {
		f, err := rx.next()
		if err != nil {
			return reason(err)
		}
		var m helloMessage
		if err := expect(f, kindHello, &m); err != nil {
			return err
		}
		if m.Version != Version {
			return fmt.Errorf("%w: version %d, not %d", ErrViolation, m.Version, Version)
		}
		for _, r := range m.Runs {
			run := RunState{ID: r.ID, PID: r.PID}
			if r.Exit != nil {
				exit := r.Exit.exit()
				run.Exit = &exit
			}
			if known[run.ID] {
				return fmt.Errorf("%w: run %q twice", ErrViolation, run.ID)
			}
			known[run.ID] = true
			c.runs = append(c.runs, run)
		}
		if len(c.runs) > maxRuns {
			return fmt.Errorf("%w: more than %d runs", ErrViolation, maxRuns)
		}
		more = m.More
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return nil
}

// reason classifies an error of the receiver.
func reason(err error) error {
	if errors.Is(err, errFrame) {
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	return fmt.Errorf("%w: %w", ErrDisconnected, err)
}

// expect decodes a frame that must be of kind k and without descriptors.
func expect(f frame, k kind, into any) error {
	if f.kind != k || len(f.fds) > 0 {
		f.close()
		return fmt.Errorf("%w: %s with %d descriptors, not %s", ErrViolation, f.kind, len(f.fds), k)
	}
	if err := f.decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	return nil
}

// read dispatches what the guest sends until the connection ends.
func (c *Client) read(rx *receiver) {
	defer rx.close()
	for {
		f, err := rx.next()
		if err != nil {
			c.end(reason(err))
			return
		}
		if err := c.dispatch(f); err != nil {
			c.end(err)
			return
		}
	}
}

// dispatch hands one frame to whom it concerns. Any error is a violation.
func (c *Client) dispatch(f frame) error {
	switch f.kind {
	case kindStarted, kindAttached:
		return c.onStarted(f)
	case kindExited:
		var m exitedMessage
		if err := expect(f, kindExited, &m); err != nil {
			return err
		}
		c.onExited(&m)
		return nil
	case kindFailed:
		var m failedMessage
		if err := expect(f, kindFailed, &m); err != nil {
			return err
		}
		return c.answer(call{m.Op, m.ID}, answer{err: &StartError{Stage: m.Stage, Errno: syscall.Errno(m.Errno), Text: m.Text}})
	case kindReady:
		var m readyMessage
		if err := expect(f, kindReady, &m); err != nil {
			return err
		}
		return c.answer(call{op: opSetup}, answer{})
	case kindPong:
		var m pingMessage
		if err := expect(f, kindPong, &m); err != nil {
			return err
		}
		return c.answer(call{opPing, pingID(m.Seq)}, answer{})
	case kindKilled:
		var m killedMessage
		if err := expect(f, kindKilled, &m); err != nil {
			return err
		}
		return c.answer(call{opKill, m.ID}, answer{left: m.Left})
	case kindProcesses:
		var m processesMessage
		if err := expect(f, kindProcesses, &m); err != nil {
			return err
		}
		return c.answer(call{opList, m.ID}, answer{pids: m.PIDs})
	default:
		f.close()
		return fmt.Errorf("%w: %s for shelld", ErrViolation, f.kind)
	}
}

func (c *Client) onStarted(f frame) error {
	var m startedMessage
	if err := f.decode(&m); err != nil {
		f.close()
		return fmt.Errorf("%w: %w", ErrViolation, err)
	}
	key := call{opStart, m.ID}
	if f.kind == kindAttached {
		key.op = opAttach
	}
	c.mu.Lock()
	asked := c.calls[key]
	c.mu.Unlock()
	if asked == nil || len(f.fds) != asked.fds {
		f.close()
		return fmt.Errorf("%w: %s for %q with %d descriptors", ErrViolation, f.kind, m.ID, len(f.fds))
	}
	p, err := newProcess(&m, f.fds)
	if err != nil {
		return err
	}
	// Before the answer, as the exit may be the next frame.
	c.mu.Lock()
	if c.err == nil && m.Exit == nil {
		c.processes[p.ID] = p
	}
	ended := c.err
	c.mu.Unlock()
	if ended != nil {
		p.finish(Exit{}, ended)
	}
	if err := c.answer(key, answer{process: p}); err != nil {
		return errors.Join(err, p.Close())
	}
	return nil
}

// onExited ends a process. The run may have been forgotten meanwhile.
func (c *Client) onExited(m *exitedMessage) {
	c.mu.Lock()
	p := c.processes[m.ID]
	delete(c.processes, m.ID)
	c.mu.Unlock()
	if p != nil {
		p.finish(m.exit(), nil)
	}
}

// answer gives a to the call that waits for it. It is a violation when there
// was no such call.
func (c *Client) answer(key call, a answer) error {
	c.mu.Lock()
	p := c.calls[key]
	delete(c.calls, key)
	if p == nil {
		c.mu.Unlock()
		return fmt.Errorf("%w: answer to %s %q, which nobody asked", ErrViolation, key.op, key.id)
	}
	abandoned := p.abandoned
	if !abandoned {
		p.answered <- a
	}
	c.mu.Unlock()
	if abandoned {
		c.discard(a)
	}
	return nil
}
