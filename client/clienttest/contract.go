package clienttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/shelld/shelld/rpc"
)

// contract checks messages against the OpenAPI document.
type contract struct{ router routers.Router }

func loadContract() (*contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(rpc.OpenAPI)
	if err != nil {
		return nil, fmt.Errorf("load openapi document: %w", err)
	}
	doc.Servers = nil // any host
	router, err := legacy.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("load openapi document: %w", err)
	}
	return &contract{router: router}, nil
}

// validator is one request, and later its answer, under check.
type validator struct {
	in *openapi3filter.RequestValidationInput
}

// request checks a request. Bodies that are streamed are not read.
func (c *contract) request(r *http.Request) (*validator, error) {
	route, params, err := c.router.FindRoute(r)
	if err != nil {
		return nil, err
	}
	in := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{ExcludeRequestBody: r.Method == http.MethodPut, SkipSettingDefaults: true},
	}
	return &validator{in: in}, openapi3filter.ValidateRequest(r.Context(), in)
}

// answer checks status, headers and, when it is JSON, the body of the answer.
func (v *validator) answer(ctx context.Context, status int, h http.Header, body []byte) error {
	isJSON := strings.HasPrefix(h.Get("Content-Type"), "application/json")
	return openapi3filter.ValidateResponse(ctx, &openapi3filter.ResponseValidationInput{
		RequestValidationInput: v.in, Status: status, Header: h,
		Body:    io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{ExcludeResponseBody: !isJSON, IncludeResponseStatus: true},
	})
}

var idPattern = regexp.MustCompile(`(shc|cntr)_[0-9a-f]{32}`)

// checked wraps the routes: it notes every request, refuses what the contract
// does not allow, and notes answers that break it.
func (s *Server) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, r.Method+" "+idPattern.ReplaceAllString(r.URL.RequestURI(), "*"))
		s.changedLocked()
		s.mu.Unlock()

		w.Header().Set("X-Request-Id", "req_standin")
		out := &recorder{ResponseWriter: w, status: http.StatusOK}
		v, err := s.contract.request(r)
		switch {
		case err != nil && v == nil:
			fail(out, http.StatusNotFound, "not_found", "no such path or method")
			return
		case err != nil:
			message, _, _ := strings.Cut(err.Error(), "\n")
			fail(out, http.StatusBadRequest, "invalid_value", message)
		default:
			next.ServeHTTP(out, r)
		}
		if out.foreign {
			return
		}
		if err := v.answer(context.WithoutCancel(r.Context()), out.status, w.Header(), out.body.Bytes()); err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.violations = append(s.violations, fmt.Sprintf("answer %d to %s %s: %v", out.status, r.Method, r.URL.Path, err))
		}
	})
}

// recorder keeps what it sends, unless it is a stream.
type recorder struct {
	http.ResponseWriter
	status  int
	body    bytes.Buffer
	foreign bool // deliberately not the contract's
}

// WriteHeader notes the status and passes it on.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Write notes JSON and passes everything on.
func (r *recorder) Write(p []byte) (int, error) {
	if r.Header().Get("Content-Type") != octets {
		r.body.Write(p)
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush and hijack.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
