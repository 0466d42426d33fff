package client

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/shelld/shelld/rpc"
)

// Info describes the daemon, its engine and what this machine enforces.
func (c *Client) Info(ctx context.Context) (*rpc.Info, error) {
	info := new(rpc.Info)
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/info"}, info); err != nil {
		return nil, fmt.Errorf("get info: %w", err)
	}
	return info, nil
}

// Shutdown stops the daemon; with req.Sandboxes it stops every sandbox first.
// It returns when the daemon has accepted, not when it has ended.
func (c *Client) Shutdown(ctx context.Context, req rpc.Shutdown) error {
	r, err := request{method: http.MethodPost, path: "/v1/shutdown"}.jsonBody(req)
	if err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	var status any
	if err := c.call(ctx, r, &status); err != nil {
		return fmt.Errorf("shut down: %w", err)
	}
	return nil
}

// Ready returns nil when calls are served, else an error that says why not.
func (c *Client) Ready(ctx context.Context) error { return c.probe(ctx, "/readyz") }

// Healthy returns nil when the daemon is alive, ready or not.
func (c *Client) Healthy(ctx context.Context) error { return c.probe(ctx, "/healthz") }

func (c *Client) probe(ctx context.Context, path string) error {
	var status any
	if err := c.call(ctx, request{method: http.MethodGet, path: path}, &status); err != nil {
		return fmt.Errorf("probe %s: %w", path, err)
	}
	return nil
}

// OpenAPI returns the OpenAPI document of the API that the daemon serves, in
// YAML.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) {
	res, err := c.do(ctx, request{method: http.MethodGet, path: "/openapi.yaml"})
	if err != nil {
		return nil, fmt.Errorf("get openapi document: %w", err)
	}
	defer res.Body.Close()
	doc, err := io.ReadAll(io.LimitReader(res.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("get openapi document: %w", plainError(ctx, err))
	}
	return doc, nil
}
