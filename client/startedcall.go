package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/shelld/shelld/rpc"
)

// StartedCall is a shell call whose commands have been started and whose end
// this client waits for. It is safe for concurrent use. Close it when done.
type StartedCall struct {
	// CallID and ContainerID name the call and where it runs.
	CallID      string
	ContainerID string

	leave context.CancelCauseFunc
	done  chan struct{}
	// call and err are set before done is closed.
	call *rpc.ShellCall
	err  error
}

// errLeft is why the connection of a closed handle ended.
var errLeft = errors.New("left the shell call before its end")

// StartShellCall runs commands and returns as soon as they have been started,
// so that their streams can be read while they run. ctx bounds the start only;
// when it ends before the start has been announced, the daemon cancels the
// call as if it had been closed.
func (c *Client) StartShellCall(ctx context.Context, req rpc.ShellCallCreate) (*StartedCall, error) {
	return c.start(ctx, req)
}

// StartShellCallItem is StartShellCall for a request that is JSON already,
// such as a "shell_call" item of a model's answer. It is sent as it is.
func (c *Client) StartShellCallItem(ctx context.Context, item json.RawMessage) (*StartedCall, error) {
	return c.start(ctx, item)
}

func (c *Client) start(ctx context.Context, body any) (*StartedCall, error) {
	r, err := request{
		method: http.MethodPost,
		path:   shellCallsPath,
		header: http.Header{"X-Shelld-Announce": {"1"}},
	}.jsonBody(body)
	if err != nil {
		return nil, fmt.Errorf("start shell call: %w", err)
	}
	life, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { leave(context.Cause(ctx)) })
	res, err := c.do(life, r)
	if err == nil && !stop() {
		_ = res.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		leave(err)
		return nil, fmt.Errorf("start shell call: %w", err)
	}
	s := &StartedCall{
		CallID:      res.Header.Get("X-Shelld-Call"),
		ContainerID: res.Header.Get("X-Shelld-Container"),
		leave:       leave,
		done:        make(chan struct{}),
	}
	go s.read(life, res)
	return s, nil
}

// read waits for the end; Wait and Close wait for it.
func (s *StartedCall) read(ctx context.Context, res *http.Response) {
	defer close(s.done)
	defer res.Body.Close()
	call := new(rpc.ShellCall)
	if err := decode(ctx, res, call); err != nil {
		s.err = fmt.Errorf("wait for shell call %s: %w", s.CallID, err)
		return
	}
	s.call = call
}

// Done is closed when Wait would not block.
func (s *StartedCall) Done() <-chan struct{} { return s.done }

// Wait returns the call when all of its commands have ended. When ctx ends
// first, Wait returns its cause and the call goes on.
func (s *StartedCall) Wait(ctx context.Context) (*rpc.ShellCall, error) {
	select {
	case <-s.done:
		return s.call, s.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for shell call %s: %w", s.CallID, context.Cause(ctx))
	}
}

// Close leaves the call: when it has not ended and no other client waits for
// it, the daemon cancels it a second later. Close may be called again.
func (s *StartedCall) Close() {
	s.leave(errLeft)
	<-s.done
}
