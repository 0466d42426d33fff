package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// entry is one key with its value as it stands in a file.
type entry struct {
	name  string
	value any
	line  int
}

// probe receives a value from the TOML decoder. Its error makes the decoder
// tell the line, which it does for errors only.
type probe struct{ value any }

var errProbed = errors.New("value taken")

// UnmarshalTOML takes the value.
func (p *probe) UnmarshalTOML(value any) error {
	p.value = value
	return errProbed
}

// parse reads a TOML document into a list of its keys, sections opened one
// level deep, in order of their lines. The fault, if any, is the document's.
func parse(data []byte) ([]entry, *Fault) {
	var top map[string]toml.Primitive
	meta, err := toml.Decode(string(data), &top)
	if err != nil {
		return nil, syntaxFault(err)
	}
	var entries []entry
	for name, primitive := range top {
		e := take(&meta, name, primitive)
		if _, table := e.value.(map[string]any); !table {
			entries = append(entries, e)
			continue
		}
		var section map[string]toml.Primitive
		if err := meta.PrimitiveDecode(primitive, &section); err != nil {
			return nil, syntaxFault(err)
		}
		if len(section) == 0 {
			entries = append(entries, e)
		}
		for base, primitive := range section {
			entries = append(entries, take(&meta, name+"."+base, primitive))
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if a.line != b.line {
			return a.line - b.line
		}
		return strings.Compare(a.name, b.name)
	})
	return entries, nil
}

func take(meta *toml.MetaData, name string, primitive toml.Primitive) entry {
	var p probe
	err := meta.PrimitiveDecode(primitive, &p)
	e := entry{name: name, value: p.value}
	if at, ok := errors.AsType[toml.ParseError](err); ok {
		e.line = at.Position.Line
	}
	return e
}

func syntaxFault(err error) *Fault {
	fault := &Fault{Message: "is not valid TOML: " + err.Error()}
	if at, ok := errors.AsType[toml.ParseError](err); ok {
		fault.Line = at.Position.Line
		fault.Message = "is not valid TOML: " + at.Message
	}
	return fault
}

// set stores value, as the TOML decoder gives it, in the field of the key. The
// error continues "KEY ".
func (k key) set(value any) error {
	switch field := k.field.(type) {
	case *string:
		s, ok := value.(string)
		if !ok {
			return wrongType("text in quotes", value)
		}
		if strings.ContainsRune(s, 0) {
			return errors.New("must not contain a NUL character")
		}
		*field = s
	case *bool:
		b, ok := value.(bool)
		if !ok {
			return wrongType("true or false, without quotes", value)
		}
		*field = b
	case *int:
		n, ok := value.(int64)
		if !ok {
			return wrongType("a whole number without quotes", value)
		}
		if n > math.MaxInt32 || n < math.MinInt32 {
			return fmt.Errorf("must be at most %d, not %d", math.MaxInt32, n)
		}
		*field = int(n)
	case *[]string:
		return setStrings(field, value)
	case *time.Duration:
		s, ok := value.(string)
		if !ok {
			return wrongType("a duration in quotes, such as \"90s\" or \"1h30m\"", value)
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return fmt.Errorf("must be a duration such as \"90s\" or \"1h30m\" (units ms, s, m, h), not %q", s)
		}
		*field = d
	case *Size:
		s, ok := value.(string)
		if !ok {
			return wrongType("a size in quotes, such as \"64m\" or \"2g\"", value)
		}
		size, err := ParseSize(s)
		if err != nil {
			return err
		}
		*field = size
	default:
		return fmt.Errorf("has a field of type %T, which cannot be set", k.field)
	}
	return nil
}

func setStrings(field *[]string, value any) error {
	list, ok := value.([]any)
	if !ok {
		return wrongType("a list of texts, such as [\"/opt\"]", value)
	}
	texts := make([]string, 0, len(list))
	for i, item := range list {
		s, ok := item.(string)
		if !ok {
			return fmt.Errorf("must be a list of texts, but item %d is %s", i+1, describe(item))
		}
		if strings.ContainsRune(s, 0) {
			return fmt.Errorf("must not contain a NUL character, but item %d does", i+1)
		}
		texts = append(texts, s)
	}
	*field = texts
	return nil
}

func wrongType(want string, value any) error {
	return fmt.Errorf("must be %s, not %s", want, describe(value))
}

// describe names a value of a TOML document to its writer.
func describe(value any) string {
	switch v := value.(type) {
	case string:
		if len(v) > 40 {
			return "a text"
		}
		return fmt.Sprintf("the text %q", v)
	case int64:
		return fmt.Sprintf("the number %d", v)
	case float64:
		return fmt.Sprintf("the number %v", v)
	case bool:
		return fmt.Sprintf("%t", v)
	case map[string]any:
		return "a section"
	case []map[string]any:
		return "a list of sections"
	case []any:
		return "a list"
	default:
		return "a date or time"
	}
}
