package server

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

const (
	// maxBody caps a JSON body. Unit: bytes. Source: the API's contract; 64
	// commands of ordinary length fit many times.
	maxBody = 8 << 20
	// bodyBudget is what [Options.BodyBudget] is when it is zero.
	bodyBudget = 30 * time.Second
)

// decode reads the JSON body into v. With strict, fields that v lacks are
// refused; operations that mirror upstream ignore them, as it does.
func decode(w http.ResponseWriter, r *http.Request, v any, strict bool) error {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		return &httpError{
			status: http.StatusUnsupportedMediaType, code: rpc.CodeUnsupportedMediaType,
			message: fmt.Sprintf("the body must be JSON with Content-Type: application/json, not %q", clip(r.Header.Get("Content-Type"))),
		}
	}
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	if !utf8.Valid(body) {
		return sandbox.Invalid("", "the body is not valid UTF-8; encode it as UTF-8 or escape the bytes")
	}
	raw, err := one(body)
	if err != nil {
		return err
	}
	if at, found := loneSurrogate(raw); found {
		return sandbox.Invalid("", "the body has half of a surrogate pair (an escape from \\ud800 to \\udfff alone) at byte %d; that is no Unicode text", at)
	}
	return binder{strict}.value(raw, reflect.ValueOf(v).Elem(), "")
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		bodyArrived(w)
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, &sandbox.Error{
			Class: sandbox.ErrTooLarge, Code: sandbox.CodeTooLarge,
			Message: fmt.Sprintf("the body is larger than %d bytes (8 MiB)", maxBody),
		}
	}
	return nil, &sandbox.Error{
		Class: sandbox.ErrInvalid, Code: sandbox.CodeInvalidValue,
		Message: "the body did not arrive whole", Cause: err,
	}
}

// limitBody bounds how long the body may take to arrive, so that half a request
// holds neither a handler nor, after the answer, the connection for ever.
func (s *server) limitBody(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	budget := s.opts.BodyBudget
	if budget == 0 {
		budget = bodyBudget
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(budget)) // not supported without a connection
}

// bodyArrived takes the bound back: who waits for an answer is silent.
func bodyArrived(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // as above
}

// query reads the query parameters, of which those with the given names exist.
func query(r *http.Request, names ...string) (url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, sandbox.Invalid("", "the query string is malformed: %s", clip(err.Error()))
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			return nil, unknownField(clip(name))
		}
	}
	return values, nil
}

// wholeNumber reads decimal digits, and nothing else.
func wholeNumber(text string) (n int, ok bool) {
	u, err := strconv.ParseUint(text, 10, 31)
	return int(u), err == nil
}

// listQuery reads the query parameters that every list has.
func listQuery(values url.Values) (sandbox.Query, error) {
	q := sandbox.Query{Limit: 20, After: values.Get("after")}
	if text := values.Get("limit"); text != "" {
		n, ok := wholeNumber(text)
		if !ok || n < 1 || n > 100 {
			return q, sandbox.Invalid("limit", "limit must be a whole number from 1 to 100, not %q", clip(text))
		}
		q.Limit = n
	}
	switch order := values.Get("order"); order {
	case "", "desc":
	case "asc":
		q.Ascending = true
	default:
		return q, sandbox.Invalid("order", "order must be asc or desc, not %q", clip(order))
	}
	return q, nil
}

// page wraps objects into upstream's list envelope.
func page[T any](data []T, id func(T) string, more bool) rpc.List[T] {
	list := rpc.List[T]{Object: "list", Data: data, HasMore: more}
	if len(data) == 0 {
		list.Data = []T{}
		return list
	}
	list.FirstID, list.LastID = id(data[0]), id(data[len(data)-1])
	return list
}
