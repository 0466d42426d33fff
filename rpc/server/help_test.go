package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
	"github.com/shelld/shelld/sandbox/sandboxtest"
)

// testBodyBudget is how long an impatient server waits for a body.
const testBodyBudget = time.Second

var errForeign = errors.New("you are not the owner of this shelld")

// api is a server under test, over real HTTP, whose sandboxes are in memory.
// Every answer is checked against the OpenAPI document.
type api struct {
	t       *testing.T
	url     string
	client  *http.Client
	world   *sandboxtest.World
	manager *sandbox.Manager
	// stop closes the manager.
	stop func()
	// stops gets the argument of each shutdown.
	stops chan bool
	// foreign makes every peer a foreign one.
	foreign bool
}

func serve(t *testing.T) *api {
	t.Helper()
	return serveWithin(t, 0)
}

func serveWithin(t *testing.T, budget time.Duration) *api {
	t.Helper()
	a := &api{t: t, world: sandboxtest.New(), stops: make(chan bool, 8)}
	a.manager = sandbox.New(a.world.Options(sandbox.Policy{MaxContainers: 4, MaxRuns: 100, Keep: time.Hour}))
	opts := a.options()
	opts.BodyBudget = budget
	server := httptest.NewUnstartedServer(New(opts))
	server.Config.ReadHeaderTimeout = budget
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	a.url, a.client = server.URL, server.Client()
	a.stop = sync.OnceFunc(func() {
		if err := a.manager.Close(); err != nil {
			t.Errorf("close manager: %v", err)
		}
	})
	t.Cleanup(func() {
		a.stop()
		server.Close()
	})
	return a
}

func (a *api) options() Options {
	return Options{
		Manager: a.manager, Log: slog.New(slog.DiscardHandler),
		Defaults: Defaults{
			Timeout: time.Minute, MaxTimeout: time.Hour, MaxOutput: 65536, OutputCeiling: 1 << 20,
			MemoryLimit: "1g", IdleMinutes: 20, Image: sandbox.ImageHost,
		},
		Info: func(context.Context) rpc.Info {
			return rpc.Info{
				Version: "test", PID: 1, Mode: "root", Engine: rpc.Engine{Status: "running"},
				Config: []string{}, Extensions: []string{},
			}
		},
		Shutdown: func(sandboxes bool) { a.stops <- sandboxes },
		Foreign: func(context.Context) error {
			if a.foreign {
				return errForeign
			}
			return nil
		},
	}
}

// ready returns a server that takes calls.
func ready(t *testing.T) *api {
	t.Helper()
	return reconciled(t, serve(t))
}

// impatient is ready, but waits for bodies for testBodyBudget only.
func impatient(t *testing.T) *api {
	t.Helper()
	return reconciled(t, serveWithin(t, testBodyBudget))
}

func reconciled(t *testing.T, a *api) *api {
	t.Helper()
	if err := a.manager.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	return a
}

// request is what a test sends.
type request struct {
	method, path, body string
	header             http.Header
	host               string
}

// answer is what it gets.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// send sends a request, valid or not.
func (a *api) send(r request) answer {
	a.t.Helper()
	ctx, cancel := context.WithTimeoutCause(a.t.Context(), 20*time.Second, errors.New("no answer"))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, a.url+r.path, strings.NewReader(r.body))
	if err != nil {
		a.t.Fatalf("request: %v", err)
	}
	if r.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	req.Host = r.host
	resp, err := a.client.Do(req)
	if err != nil {
		a.t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	defer resp.Body.Close() // it is read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatalf("%s %s: read answer: %v", r.method, r.path, err)
	}
	got := answer{a.t, resp.StatusCode, resp.Header, body}
	checkAnswer(a.t, req, got)
	return got
}

// call sends a request that the document must allow as well, and wants status
// 200 and decodes the answer into v.
func (a *api) call(r request, v any) answer {
	a.t.Helper()
	checkRequest(a.t, r)
	got := a.send(r)
	if got.status != http.StatusOK {
		a.t.Fatalf("%s %s: status %d: %s", r.method, r.path, got.status, got.body)
	}
	if v != nil {
		if err := json.Unmarshal(got.body, v); err != nil {
			a.t.Fatalf("%s %s: decode answer: %v", r.method, r.path, err)
		}
	}
	return got
}

func (a *api) get(path string, v any) { a.t.Helper(); a.call(request{method: "GET", path: path}, v) }

func (a *api) post(path, body string, v any) {
	a.t.Helper()
	a.call(request{method: "POST", path: path, body: body}, v)
}

func (a *api) container() (c rpc.Container) {
	a.t.Helper()
	a.post("/v1/containers", `{"name":"c"}`, &c)
	return c
}

// shellCall runs commands in a container that exists, or in a new one.
func (a *api) shellCall(container string, commands ...string) (call rpc.ShellCall) {
	a.t.Helper()
	a.post("/v1/shell_calls", callBody(container, "", commands...), &call)
	return call
}

// callBody is the body of a call; more is put in as it is.
func callBody(container, more string, commands ...string) string {
	list, err := json.Marshal(commands)
	if err != nil {
		return ""
	}
	body := `{"action":{"commands":` + string(list) + `}` + more
	if container != "" {
		body += `,"environment":{"type":"container_reference","container_id":"` + container + `"}`
	}
	return body + "}"
}

// refused wants an error with its status and code, about param, and that the
// envelope and its headers are whole.
func (g answer) refused(status int, code, param string) rpc.Error {
	g.t.Helper()
	var envelope rpc.ErrorResponse
	dec := json.NewDecoder(bytes.NewReader(g.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&envelope); err != nil {
		g.t.Fatalf("status %d without an envelope (%v): %s", g.status, err, g.body)
	}
	e := envelope.Error
	gotCode, gotParam := "", ""
	if e.Code != nil {
		gotCode = *e.Code
	}
	if e.Param != nil {
		gotParam = *e.Param
	}
	if g.status != status || gotCode != code || gotParam != param {
		g.t.Errorf("answer %d %s about %q, want %d %s about %q\n%s", g.status, gotCode, gotParam, status, code, param, g.body)
	}
	kind := rpc.TypeInvalidRequest
	if status >= 500 {
		kind = rpc.TypeServer
	}
	if e.Type != kind || len(e.Message) < 10 || len(e.Message) > 600 {
		g.t.Errorf("error of type %q with message %q", e.Type, e.Message)
	}
	return e
}

var document = sync.OnceValues(func() (*openapi3.T, error) {
	return openapi3.NewLoader().LoadFromData(rpc.OpenAPI)
})

// route finds the operation that the document has for a request.
func route(t *testing.T, method, path string) (*routers.Route, map[string]string) {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatalf("load document: %v", err)
	}
	parts := strings.Split(path, "/")
	var best *routers.Route
	var params map[string]string
	for template, item := range doc.Paths.Map() {
		op := item.GetOperation(method)
		if op == nil {
			continue
		}
		if found, ok := matchPath(strings.Split(template, "/"), parts); ok && (best == nil || len(found) < len(params)) {
			best = &routers.Route{Spec: doc, Path: template, PathItem: item, Method: method, Operation: op}
			params = found
		}
	}
	return best, params
}

func matchPath(template, parts []string) (params map[string]string, ok bool) {
	if len(template) != len(parts) {
		return nil, false
	}
	params = map[string]string{}
	for i, part := range template {
		if name, isParam := strings.CutPrefix(part, "{"); isParam {
			params[strings.TrimSuffix(name, "}")] = parts[i]
		} else if part != parts[i] {
			return nil, false
		}
	}
	return params, true
}

func checkRequest(t *testing.T, r request) {
	t.Helper()
	u, err := url.Parse(r.path)
	if err != nil {
		t.Fatal(err)
	}
	route, params := route(t, r.method, u.Path)
	if route == nil {
		t.Fatalf("%s %s is not in the document", r.method, r.path)
	}
	req := httptest.NewRequestWithContext(t.Context(), r.method, r.path, strings.NewReader(r.body))
	req.Header = r.header.Clone()
	if req.Header == nil {
		req.Header = http.Header{}
	}
	if r.body != "" && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	err = openapi3filter.ValidateRequest(t.Context(), &openapi3filter.RequestValidationInput{
		Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{RejectWhenRequestBodyNotSpecified: true},
	})
	if err != nil {
		t.Errorf("%s %s: the request does not fit the document: %s", r.method, r.path, brief(err))
	}
}

// checkAnswer wants an answer to fit the document; one that the document has no
// operation for must be an error.
func checkAnswer(t *testing.T, req *http.Request, got answer) {
	t.Helper()
	if got.header.Get("X-Request-Id") == "" || got.header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%s %s: headers missing: %v", req.Method, req.URL.Path, got.header)
	}
	if got.status >= 400 {
		twice := bytes.Contains(got.body, []byte("might run twice")) || bytes.Contains(got.body, []byte("had been started"))
		retry := !twice && (got.status == 429 || got.status == 500 || got.status == 503)
		if retry == (got.header.Get("X-Should-Retry") == "false") {
			t.Errorf("%s %s: status %d with x-should-retry %q", req.Method, req.URL.Path, got.status, got.header.Get("X-Should-Retry"))
		}
	}
	if req.Method == http.MethodHead {
		return
	}
	route, params := route(t, req.Method, req.URL.Path)
	if route == nil {
		if got.status < 400 {
			t.Errorf("%s %s is not in the document, but answers %d", req.Method, req.URL.Path, got.status)
		}
		route, params = onlyErrors(t)
	}
	err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 got.status, Header: got.header, Body: io.NopCloser(bytes.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	})
	if err != nil {
		t.Errorf("%s %s: the answer does not fit the document: %s\n%s", req.Method, req.URL.Path, brief(err), clip(string(got.body)))
	}
}

// brief leaves out the document that errors about it carry along.
func brief(err error) string {
	text := err.Error()
	return text[:min(600, len(text))]
}

// onlyErrors is an operation that errors of any path can be checked with.
func onlyErrors(t *testing.T) (*routers.Route, map[string]string) {
	t.Helper()
	return route(t, http.MethodGet, "/healthz")
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain until %s", what)
		case <-tick.C:
		}
	}
}

func streamPath(call string, index int, stream string) string {
	return fmt.Sprintf("/v1/shell_calls/%s/commands/%d/%s", call, index, stream)
}
