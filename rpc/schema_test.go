package rpc_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/shelld/shelld/rpc"
)

func load(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(rpc.OpenAPI)
	if err != nil {
		t.Fatalf("load document: %v", err)
	}
	return doc
}

func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	if err := load(t).Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// Every operation has a name of its own and an answer for errors.
func TestOperations(t *testing.T) {
	t.Parallel()
	doc := load(t)
	ids := map[string]bool{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.OperationID == "" || ids[op.OperationID] {
				t.Errorf("%s %s: operation id %q is missing or taken", method, path, op.OperationID)
			}
			ids[op.OperationID] = true
			if op.Summary == "" || len(op.Tags) == 0 {
				t.Errorf("%s %s: no summary or no tag", method, path)
			}
			if op.Responses.Default() == nil || op.Responses.Default().Ref != "#/components/responses/Error" {
				t.Errorf("%s %s: errors are not described", method, path)
			}
		}
	}
}

// The types and the schemas of the document describe the same objects.
func TestTypesFitSchemas(t *testing.T) {
	t.Parallel()
	doc := load(t)
	request, response := true, false
	types := map[string]struct {
		of      any
		request bool
	}{
		"ErrorResponse":    {rpc.ErrorResponse{}, response},
		"Status":           {rpc.Status{}, response},
		"ExpiresAfter":     {rpc.ExpiresAfter{}, response},
		"NetworkPolicy":    {rpc.NetworkPolicy{}, response},
		"StringMap":        {map[string]string{}, response},
		"ContainerCreate":  {rpc.ContainerCreate{}, request},
		"Limit":            {rpc.Limit{}, response},
		"Container":        {rpc.Container{}, response},
		"ContainerList":    {rpc.List[rpc.Container]{}, response},
		"ContainerDeleted": {rpc.Deleted{}, response},
		"ShellAction":      {rpc.ShellAction{}, request},
		"Environment":      {rpc.Environment{}, request},
		"ShellCallCreate":  {rpc.ShellCallCreate{}, request},
		"ShellCall":        {rpc.ShellCall{}, response},
		"ShellCallOutput":  {rpc.ShellCallOutput{}, response},
		"ShellResult":      {rpc.ShellResult{}, response},
		"ShellCallList":    {rpc.List[rpc.ShellCall]{}, response},
		"StdinWritten":     {rpc.StdinWritten{}, response},
		"Shutdown":         {rpc.Shutdown{}, request},
		"Info":             {rpc.Info{}, response},
	}
	for name, schema := range doc.Components.Schemas {
		typ, ok := types[name]
		switch {
		case ok:
			c := comparison{t, typ.request}
			c.compare(name, schema.Value, reflect.TypeOf(typ.of))
		case name != "ContainerFields": // a part of two others
			t.Errorf("schema %s has no type", name)
		}
	}
	for name := range types {
		if doc.Components.Schemas[name] == nil {
			t.Errorf("type %s has no schema", name)
		}
	}
}

type comparison struct {
	t       *testing.T
	request bool
}

func (c comparison) compare(path string, schema *openapi3.Schema, typ reflect.Type) {
	c.t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	object := flatten(schema)
	switch typ.Kind() {
	case reflect.Struct:
		c.request = c.request || typ == reflect.TypeFor[rpc.ShellAction]() // which goes both ways
		c.fields(path, object, typ)
	case reflect.Map:
		if object.AdditionalProperties.Schema == nil {
			c.t.Errorf("%s: the type is a map, the schema is not", path)
		}
	case reflect.Slice:
		if !object.Type.Is("array") {
			c.t.Errorf("%s: the type is an array, the schema %v", path, object.Type)
			return
		}
		c.compare(path+"[]", object.Items.Value, typ.Elem())
	case reflect.String:
		c.is(path, object, "string")
	case reflect.Bool:
		c.is(path, object, "boolean")
	case reflect.Int, reflect.Int64:
		c.is(path, object, "integer")
	case reflect.Interface: // anything
	default:
		c.t.Errorf("%s: no comparison for %s", path, typ)
	}
}

func (c comparison) is(path string, schema *openapi3.Schema, want string) {
	c.t.Helper()
	if !schema.Type.Is(want) {
		c.t.Errorf("%s: the schema is of type %v, the Go type wants %s", path, schema.Type, want)
	}
}

func (c comparison) fields(path string, schema *openapi3.Schema, typ reflect.Type) {
	c.t.Helper()
	seen := map[string]bool{}
	for _, field := range reflect.VisibleFields(typ) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "-" {
			continue
		}
		seen[name] = true
		property := schema.Properties[name]
		if property == nil {
			c.t.Errorf("%s.%s: not in the document", path, name)
			continue
		}
		c.compare(path+"."+name, property.Value, field.Type)
		if c.request {
			continue
		}
		always := !strings.Contains(options, "omitempty")
		if required := slices.Contains(schema.Required, name); required != always {
			c.t.Errorf("%s.%s: required in the document: %t, always sent: %t", path, name, required, always)
		}
		if null := always && field.Type.Kind() == reflect.Pointer; null && !flatten(property.Value).Nullable && path+"."+name != "ErrorResponse.error.code" { // null from other servers only
			c.t.Errorf("%s.%s: may be null, but not in the document", path, name)
		}
	}
	for name := range schema.Properties {
		if !seen[name] {
			c.t.Errorf("%s.%s: not in the Go type", path, name)
		}
	}
}

// flatten puts a schema together that is made of several.
func flatten(s *openapi3.Schema) *openapi3.Schema {
	if len(s.AllOf)+len(s.OneOf) == 0 {
		return s
	}
	flat := &openapi3.Schema{Type: s.Type, Nullable: s.Nullable, Properties: openapi3.Schemas{}}
	for _, refs := range []openapi3.SchemaRefs{s.AllOf, s.OneOf} {
		for _, ref := range refs {
			part := flatten(ref.Value)
			if flat.Type == nil {
				flat.Type = part.Type
			}
			for name, property := range part.Properties {
				flat.Properties[name] = property
			}
			flat.Required = append(flat.Required, part.Required...)
			if part.AdditionalProperties.Schema != nil {
				flat.AdditionalProperties = part.AdditionalProperties
			}
		}
	}
	return flat
}
