package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// holderClient speaks to a holder. It is safe for concurrent use.
type holderClient struct {
	http *http.Client
}

func newHolderClient(dirs Dirs) *holderClient {
	var dialer net.Dialer
	return &holderClient{http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", dirs.holderSocket())
		},
		MaxIdleConns: 4,
	}}}
}

func (c *holderClient) close() { c.http.CloseIdleConnections() }

func (c *holderClient) state(ctx context.Context) (holderState, error) {
	var state holderState
	err := c.do(ctx, http.MethodGet, "/state", nil, &state)
	return state, err
}

func (c *holderClient) prepareRoot(ctx context.Context, req rootRequest) error {
	return c.do(ctx, http.MethodPost, "/rootfs", req, &struct{}{})
}

func (c *holderClient) stop(ctx context.Context) (holderState, error) {
	var state holderState
	err := c.do(ctx, http.MethodPost, "/stop", nil, &state)
	return state, err
}

// holderError is a request that the holder answered with an error. Any other
// error means that it is away.
type holderError struct{ text string }

func (e *holderError) Error() string { return "holder: " + e.text }

func (c *holderClient) do(ctx context.Context, method, path string, body, answer any) (err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode holder request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://holder"+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("make holder request: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask holder: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	limited := json.NewDecoder(io.LimitReader(resp.Body, maxRequest))
	if resp.StatusCode != http.StatusOK {
		var failure struct{ Error string }
		if err := limited.Decode(&failure); err != nil {
			failure.Error = resp.Status
		}
		return &holderError{text: failure.Error}
	}
	if err := limited.Decode(answer); err != nil {
		return fmt.Errorf("decode holder answer: %w", err)
	}
	return nil
}
