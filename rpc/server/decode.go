package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

const (
	// maxBody caps a JSON body. Unit: bytes. Source: the API's contract; 64
	// commands of ordinary length fit many times.
	maxBody = 8 << 20
	// bodyBudget bounds the arrival of a JSON body, so that half a request
	// does not hold a connection for ever.
	bodyBudget = 30 * time.Second
)

// decode reads the JSON body into v. With strict, fields that v lacks are
// refused; operations that mirror upstream ignore them, as it does.
func decode(w http.ResponseWriter, r *http.Request, v any, strict bool) error {
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/json" {
		return &httpError{
			status: http.StatusUnsupportedMediaType, code: rpc.CodeUnsupportedMediaType,
			message: fmt.Sprintf("the body must be JSON with Content-Type: application/json, not %q", r.Header.Get("Content-Type")),
		}
	}
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	if !utf8.Valid(body) {
		return sandbox.Invalid("", "the body is not valid UTF-8; encode it as UTF-8 or escape the bytes")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(v); err != nil {
		return decodeError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return sandbox.Invalid("", "the body goes on after the JSON object; send one object")
	}
	return nil
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyBudget)) // not supported in tests without a connection
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	_ = control.SetReadDeadline(time.Time{})
	if err == nil {
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

// decodeError names the field at fault, as far as the decoder tells it.
func decodeError(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return sandbox.Invalid(e.Field, "%s must be %s, not a JSON %s", fieldName(e.Field), typeName(e.Type.String()), e.Value)
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // the decoder has no type for it
		name = strings.Trim(name, `"`)
		return &httpError{
			status: http.StatusBadRequest, code: rpc.CodeUnknownField, param: name,
			message: fmt.Sprintf("unknown field %q; GET /openapi.yaml has the fields of every request", name),
		}
	}
	if errors.Is(err, io.EOF) {
		return sandbox.Invalid("", "the body is empty; send a JSON object")
	}
	return sandbox.Invalid("", "the body is not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
}

func fieldName(path string) string {
	if path == "" {
		return "the body"
	}
	return path
}

// typeName says in JSON's words what a Go type wants.
func typeName(goType string) string {
	goType = strings.TrimPrefix(goType, "*")
	switch {
	case goType == "string":
		return "a string"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "int"):
		return "a whole number (of 64 bits)"
	case strings.HasPrefix(goType, "[]"):
		return "an array"
	default:
		return "an object"
	}
}

// listQuery reads the query parameters that every list has.
func listQuery(values url.Values) (sandbox.Query, error) {
	q := sandbox.Query{Limit: 20, After: values.Get("after")}
	if text := values.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 100 {
			return q, sandbox.Invalid("limit", "limit must be a whole number from 1 to 100, not %q", text)
		}
		q.Limit = n
	}
	switch order := values.Get("order"); order {
	case "", "desc":
	case "asc":
		q.Ascending = true
	default:
		return q, sandbox.Invalid("order", "order must be asc or desc, not %q", order)
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
