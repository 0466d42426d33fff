// Package server answers the HTTP API: one file per resource, one renderer for
// errors. Its handlers translate between the wire types of package rpc and the
// domain of package sandbox, check what was sent before anything happens, and
// hold no state of their own.
package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

// Options are what the API is made of. Every field is required unless it says
// otherwise.
type Options struct {
	Manager  *sandbox.Manager
	Defaults Defaults
	// Info fills in what only the daemon knows.
	Info func(ctx context.Context) rpc.Info
	// Shutdown starts the daemon's stop, with true of all sandboxes first,
	// and returns at once.
	Shutdown func(sandboxes bool)
	// Foreign says why the peer of a connection is refused; nil when it is
	// welcome.
	Foreign func(ctx context.Context) error
	Log     *slog.Logger
	// BodyBudget bounds how long a request's body may take to arrive. A
	// command's standard input may take longer. Zero: 30 s.
	BodyBudget time.Duration
}

// Defaults are the values for what a request leaves out, and the ceilings.
type Defaults struct {
	Timeout, MaxTimeout time.Duration
	// MaxOutput and OutputCeiling are in code points.
	MaxOutput, OutputCeiling int
	// MemoryLimit is a size such as "1g".
	MemoryLimit string
	IdleMinutes int
	Image       string
}

type server struct {
	opts Options
	log  *slog.Logger
}

// handler answers one operation. An error is rendered by the caller; the
// handler has written nothing then.
type handler func(w http.ResponseWriter, r *http.Request) error

// New returns the handler of the whole API.
func New(opts Options) http.Handler {
	s := &server{opts: opts, log: opts.Log}
	mux := http.NewServeMux()
	for route, methods := range s.routes() {
		mux.Handle(route, s.serve(func(w http.ResponseWriter, r *http.Request) error {
			if h := methods[r.Method]; h != nil {
				return h(w, r)
			}
			return methodNotAllowed(w, r, methods)
		}))
	}
	nothing := s.serve(func(_ http.ResponseWriter, r *http.Request) error {
		return &sandbox.Error{
			Class: sandbox.ErrNotFound, Code: sandbox.CodeNotFound,
			Message: "no operation at " + clip(r.URL.Path) + "; GET /openapi.yaml lists them",
		}
	})
	mux.Handle("/", nothing)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Clean(r.URL.Path) != r.URL.Path {
			nothing.ServeHTTP(w, r) // the mux would redirect, without our envelope
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *server) routes() map[string]map[string]handler {
	return map[string]map[string]handler{
		"/v1/containers":                                    {"POST": s.createContainer, "GET": s.listContainers},
		"/v1/containers/{container_id}":                     {"GET": s.getContainer, "DELETE": s.deleteContainer},
		"/v1/shell_calls":                                   {"POST": s.createShellCall, "GET": s.listShellCalls},
		"/v1/shell_calls/{call_id}":                         {"GET": s.getShellCall},
		"/v1/shell_calls/{call_id}/cancel":                  {"POST": s.cancelShellCall},
		"/v1/shell_calls/{call_id}/commands/{index}/stdin":  {"PUT": s.writeStdin},
		"/v1/shell_calls/{call_id}/commands/{index}/stdout": {"GET": s.readOutput(sandbox.Stdout)},
		"/v1/shell_calls/{call_id}/commands/{index}/stderr": {"GET": s.readOutput(sandbox.Stderr)},
		"/v1/info":      {"GET": s.getInfo},
		"/v1/shutdown":  {"POST": s.shutdown},
		"/healthz":      {"GET": s.healthz},
		"/readyz":       {"GET": s.readyz},
		"/openapi.yaml": {"GET": s.openAPI},
	}
}

// serve puts what every request needs around a handler.
func (s *server) serve(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := requestID()
		w.Header().Set("X-Request-Id", id)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		s.limitBody(w, r)
		err := s.gate(r)
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			s.renderError(w, r, id, err)
		}
	})
}

// gate refuses who must not come in: other users, and web pages, which reach
// local servers through a browser and betray themselves by these headers.
func (s *server) gate(r *http.Request) error {
	if err := s.opts.Foreign(r.Context()); err != nil {
		return &httpError{status: http.StatusUnauthorized, code: rpc.CodeUnauthorized, message: err.Error()}
	}
	for _, name := range []string{"Origin", "Referer"} {
		if _, ok := r.Header[name]; ok {
			return forbidden("requests with an " + name + " header come from web pages and are refused")
		}
	}
	if !localHost(r.Host) {
		return forbidden("the Host header must be localhost, shelld or a loopback address, not " + clip(r.Host))
	}
	return nil
}

func forbidden(message string) error {
	return &httpError{status: http.StatusForbidden, code: rpc.CodeForbidden, message: message}
}

func methodNotAllowed(w http.ResponseWriter, r *http.Request, methods map[string]handler) error {
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if methods[m] != nil {
			allowed = append(allowed, m)
		}
	}
	list := strings.Join(allowed, ", ")
	w.Header().Set("Allow", list)
	return &httpError{
		status: http.StatusMethodNotAllowed, code: rpc.CodeMethodNotAllowed,
		message: clip(r.Method) + " is not served at " + clip(r.URL.Path) + "; use " + list,
	}
}

func requestID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return "req_" + hex.EncodeToString(b[:])
}
