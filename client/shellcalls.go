package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strconv"

	"github.com/shelld/shelld/rpc"
)

const shellCallsPath = "/v1/shell_calls"

// CreateShellCall runs commands and returns when every one has ended, or at
// once when req.Background asks for that. When ctx ends first, the daemon
// cancels the call unless another client waits for it.
//
// Without req.Environment the call makes a container, which goes on running
// when the call has ended, until it expires or is deleted; the call names it
// in ContainerID. To have it deleted with the call, ask for a "container_auto"
// environment with DeleteAfter.
func (c *Client) CreateShellCall(ctx context.Context, req rpc.ShellCallCreate) (*rpc.ShellCall, error) {
	r, err := request{method: http.MethodPost, path: shellCallsPath}.jsonBody(req)
	if err != nil {
		return nil, fmt.Errorf("create shell call: %w", err)
	}
	call := new(rpc.ShellCall)
	if err := c.call(ctx, r, call); err != nil {
		return nil, fmt.Errorf("create shell call: %w", err)
	}
	return call, nil
}

// ShellCall returns the call with that id, running or ended.
func (c *Client) ShellCall(ctx context.Context, id string) (*rpc.ShellCall, error) {
	call := new(rpc.ShellCall)
	if err := c.call(ctx, request{method: http.MethodGet, path: callPath(id)}, call); err != nil {
		return nil, fmt.Errorf("get shell call: %w", err)
	}
	return call, nil
}

// ShellCallList selects the calls of a list. The zero value is the newest of
// all.
type ShellCallList struct {
	Page
	// ContainerID keeps only calls in this container. Empty: in all.
	ContainerID string
	// Status keeps only calls in this state, such as "in_progress". Empty: in
	// any.
	Status string
}

// ShellCalls returns one page of calls.
func (c *Client) ShellCalls(ctx context.Context, which ShellCallList) (*rpc.List[rpc.ShellCall], error) {
	q := which.values()
	set(q, "container_id", which.ContainerID)
	set(q, "status", which.Status)
	list := new(rpc.List[rpc.ShellCall])
	r := request{method: http.MethodGet, path: shellCallsPath, query: q}
	if err := c.call(ctx, r, list); err != nil {
		return nil, fmt.Errorf("list shell calls: %w", err)
	}
	return list, nil
}

// AllShellCalls yields the calls of every page. After an error, which comes
// with a zero call, it ends.
func (c *Client) AllShellCalls(ctx context.Context, which ShellCallList) iter.Seq2[rpc.ShellCall, error] {
	return all(ctx, which.Page, func(ctx context.Context, p Page) (*rpc.List[rpc.ShellCall], error) {
		which.Page = p
		return c.ShellCalls(ctx, which)
	})
}

// CancelShellCall ends the call's commands with everything they started, and
// returns the call. It does nothing to a call that has ended.
func (c *Client) CancelShellCall(ctx context.Context, id string) (*rpc.ShellCall, error) {
	call := new(rpc.ShellCall)
	r := request{method: http.MethodPost, path: callPath(id) + "/cancel"}
	if err := c.call(ctx, r, call); err != nil {
		return nil, fmt.Errorf("cancel shell call: %w", err)
	}
	return call, nil
}

func callPath(id string) string { return shellCallsPath + "/" + segment(id) }

func commandPath(id string, index int, stream string) string {
	return callPath(id) + "/commands/" + strconv.Itoa(index) + "/" + stream
}
