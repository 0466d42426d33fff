package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shelld/shelld/rpc"
)

const (
	// maxErrorBody is how much of an error's body is read. Unit: bytes.
	maxErrorBody = 1 << 20
	// maxBody is how much of a JSON answer is read: 64 commands with the
	// highest output limit fit. Unit: bytes.
	maxBody = 1 << 30
)

// request is one HTTP request before it is sent.
type request struct {
	method string
	// path is escaped already.
	path   string
	query  url.Values
	header http.Header
	body   io.Reader
	// contentType goes with body.
	contentType string
}

// jsonBody returns the request with v as its body.
func (r request) jsonBody(v any) (request, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return request{}, err
	}
	r.body, r.contentType = &buf, "application/json"
	return r, nil
}

// do sends the request and returns the answer, whose body the caller closes.
// An answer that is not 2xx is an *rpc.Error.
func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	target := "http://" + host + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, r.body)
	if err != nil {
		return nil, err
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	agent := c.opts.UserAgent
	if agent == "" {
		agent = "shelld-client"
	}
	req.Header.Set("User-Agent", agent)

	res, err := c.httpClient().Do(req)
	if err != nil {
		return nil, plainError(ctx, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, decodeError(res)
	}
	return res, nil
}

// call sends the request and decodes the answer into out.
func (c *Client) call(ctx context.Context, r request, out any) error {
	res, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return decode(ctx, res, out)
}

// decode reads the one JSON value of an answer, to the end, so that the
// connection can be used again.
func decode(ctx context.Context, res *http.Response, out any) error {
	body := io.LimitReader(res.Body, maxBody)
	dec := json.NewDecoder(body)
	if err := dec.Decode(out); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errCut
		}
		return fmt.Errorf("read answer: %w", err)
	}
	_, err := io.Copy(io.Discard, io.MultiReader(dec.Buffered(), body))
	return err
}

// errCut says that the connection ended before the answer did.
var errCut = errors.New("the connection to shelld was cut")

// plainError takes net/http's "Post URL:" off an error, and reports why ctx
// ended rather than that it did.
func plainError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errCut
	}
	return err
}

// decodeError makes an *rpc.Error of any answer, with the text of the body
// when it is not the envelope.
func decodeError(res *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("read error answer with status %d: %w", res.StatusCode, err)
	}
	var envelope rpc.ErrorResponse
	if err := json.Unmarshal(text, &envelope); err != nil || envelope.Error.Message == "" {
		message := strings.TrimSpace(string(text))
		if message == "" {
			message = http.StatusText(res.StatusCode)
		}
		envelope.Error = rpc.Error{Message: message, Type: rpc.TypeServer}
	}
	e := envelope.Error
	e.Status = res.StatusCode
	e.RequestID = res.Header.Get("X-Request-Id")
	e.RetryAfter = retryAfter(res.Header)
	return &e
}

// retryAfter reads the server's advice: milliseconds, else whole seconds.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseInt(h.Get("Retry-After-Ms"), 10, 64); err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	if s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	return 0
}
