package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/shelld/shelld/rpc"
	"github.com/shelld/shelld/sandbox"
)

// binder decodes JSON into wire types more exactly than encoding/json: a field
// has its name in the very same letters and comes once, null stands only where
// a field may lack a value, and errors name the field by its path.
type binder struct {
	// strict refuses fields that the type lacks; else they are ignored.
	strict bool
}

// value decodes raw, which is valid JSON, into v. Path names it in errors.
func (b binder) value(raw json.RawMessage, v reflect.Value, path string) error {
	isNull := string(raw) == "null"
	switch v.Kind() {
	case reflect.Pointer:
		if isNull {
			return nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return b.value(raw, v.Elem(), path)
	case reflect.Map:
		if isNull {
			return nil
		}
		return b.entries(raw, v, path)
	case reflect.Slice:
		if isNull {
			return nil
		}
		return b.elements(raw, v, path)
	case reflect.Struct:
		return b.fields(raw, v, path)
	case reflect.Interface:
	default:
		if isNull {
			return wrongType(raw, v.Type(), path)
		}
	}
	err := json.Unmarshal(raw, v.Addr().Interface())
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return wrongType(raw, v.Type(), path)
	}
	return err
}

func (b binder) fields(raw json.RawMessage, v reflect.Value, path string) error {
	fields := map[string]reflect.Value{}
	for _, field := range reflect.VisibleFields(v.Type()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous && name != "-" {
			fields[name] = v.FieldByIndex(field.Index)
		}
	}
	return members(raw, v.Type(), path, func(name string, raw json.RawMessage) error {
		field, ok := fields[name]
		switch {
		case ok:
			return b.value(raw, field, join(path, name))
		case b.strict:
			return unknownField(join(path, clip(name)))
		default:
			return nil
		}
	})
}

func (b binder) entries(raw json.RawMessage, v reflect.Value, path string) error {
	v.Set(reflect.MakeMap(v.Type()))
	return members(raw, v.Type(), path, func(name string, raw json.RawMessage) error {
		entry := reflect.New(v.Type().Elem()).Elem()
		if err := b.value(raw, entry, join(path, clip(name))); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(name), entry)
		return nil
	})
}

func (b binder) elements(raw json.RawMessage, v reflect.Value, path string) error {
	if raw[0] != '[' {
		return wrongType(raw, v.Type(), path)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for i := 0; dec.More(); i++ {
		var element json.RawMessage
		if err := dec.Decode(&element); err != nil {
			return err
		}
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		if err := b.value(element, v.Index(i), path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

// members calls f with each member of the object raw.
func members(raw json.RawMessage, t reflect.Type, path string, f func(name string, raw json.RawMessage) error) error {
	if raw[0] != '{' {
		return wrongType(raw, t, path)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // it is one: raw is valid
		if seen[name] {
			return sandbox.Invalid(join(path, clip(name)), "field %q is there twice", join(path, clip(name)))
		}
		seen[name] = true
		var member json.RawMessage
		if err := dec.Decode(&member); err != nil {
			return err
		}
		if err := f(name, member); err != nil {
			return err
		}
	}
	return nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func unknownField(path string) error {
	return &httpError{
		status: http.StatusBadRequest, code: rpc.CodeUnknownField, param: path,
		message: fmt.Sprintf("unknown field %q; GET /openapi.yaml has the fields of every request", path),
	}
}

func wrongType(raw json.RawMessage, t reflect.Type, path string) error {
	name := path
	if name == "" {
		name = "the body"
	}
	return sandbox.Invalid(path, "%s must be %s, not %s", name, typeName(t), valueName(raw))
}

// typeName says in JSON's words what a Go type wants.
func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number (of 64 bits)"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}

// valueName says what a JSON value is.
func valueName(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	default:
		return clip(string(raw)) // a number, true, false or null
	}
}

// one reads the one JSON value that the body is to hold.
func one(body []byte) (json.RawMessage, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	var raw json.RawMessage
	if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
		return nil, sandbox.Invalid("", "the body is empty; send a JSON object")
	} else if err != nil {
		return nil, sandbox.Invalid("", "the body is not JSON: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, sandbox.Invalid("", "the body goes on after the JSON object; send one object")
	}
	return raw, nil
}

// loneSurrogate finds half of a surrogate pair, such as "\ud83d" without its
// other half, in valid JSON. Such a text is no Unicode, and decoding it would
// change it without a word.
func loneSurrogate(text []byte) (offset int, found bool) {
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		unit := codeUnit(text[i:])
		switch {
		case unit < 0:
			i++ // a short escape, maybe of a backslash
		case unit&0xfc00 == 0xd800 && codeUnit(text[i+6:])&^0x3ff == 0xdc00:
			i += 11
		case unit&0xf800 == 0xd800:
			return i, true
		default:
			i += 5
		}
	}
	return 0, false
}

// codeUnit reads an escape of the form \uXXXX at the beginning of text. It
// returns -1 when there is none.
func codeUnit(text []byte) int {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return int(n)
}
