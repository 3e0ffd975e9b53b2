package tool

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"github.com/invopop/jsonschema"
	"github.com/kitbag-go/kitbag/tool/docs"
)

// leafSchema returns a new schema of a type without fields or items, or nil for other types. It uses, in this order, the
// type's own schema, enum values, methods for JSON, methods for text, and kind.
func (r *reflector) leafSchema(t reflect.Type) *jsonschema.Schema {
	if s := r.ownSchema(t); s != nil {
		return s
	}
	s := anything()
	values := docs.Enum(t)
	if e, ok := reflect.New(t).Interface().(interface{ Enum() []any }); ok {
		values = e.Enum()
	}
	for _, v := range values {
		s.Enum = append(s.Enum, enumValue(v, t))
	}
	switch {
	case r.hasJSONMethod(t):
		return s
	case r.hasTextMethod(t):
		s.Type = "string"
		return s
	case len(s.Enum) > 0:
		s.Type = kindType(t.Kind())
		return s
	// encoding/json writes bytes as base64, unless their type has methods.
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !r.hasJSONMethod(t.Elem()) && !r.hasTextMethod(t.Elem()):
		s.Type, s.ContentEncoding = "string", "base64"
		return s
	// A result may hold an interface with methods, but no argument can be decoded into one.
	case t.Kind() == reflect.Interface && (r.forResult || t.NumMethod() == 0):
		return s
	}
	if s.Type = kindType(t.Kind()); s.Type == "" {
		return nil
	}
	s.Minimum, s.Maximum = intRange(t)
	return s
}

// enumValue returns a value of t's enum as it is encoded to JSON: converted to t, if the kinds are equal, so that t's
// methods write the JSON.
func enumValue(v any, t reflect.Type) any {
	if rv := reflect.ValueOf(v); rv.IsValid() && rv.Kind() == t.Kind() {
		return rv.Convert(t).Interface()
	}
	return v
}

// checkEnum returns an error if one of the values of t's enum cannot be encoded, or not be decoded into t.
func (r *reflector) checkEnum(t reflect.Type, values []any) error {
	for _, v := range values {
		data, err := json.Marshal(v)
		if err == nil && !r.forResult {
			err = json.Unmarshal(data, reflect.New(t).Interface())
		}
		if err != nil {
			return fmt.Errorf("%v cannot be read from the value %s of its enum: %w; let Enum return values as they are in JSON", t, data, err)
		}
	}
	return nil
}

// ownSchema returns the schema of a type with a method JSONSchema, or of a type of the standard library whose JSON differs
// from the Go definition; else nil.
func (r *reflector) ownSchema(t reflect.Type) *jsonschema.Schema {
	s := anything()
	if c, ok := reflect.New(t).Interface().(interface{ JSONSchema() *jsonschema.Schema }); ok {
		if own := c.JSONSchema(); own != nil {
			*s = *own // a copy, since the type may return the same pointer each time
		}
		return s
	}
	switch t {
	case timeType:
		s.Type, s.Format = "string", "date-time"
	case durationType:
		if r.forResult { // as encoding/json writes it
			s.Type = "integer"
			break
		}
		s.Type, s.Pattern, s.Examples = "string", durationPattern, []any{"1m30s"}
	case numberType:
		s.Type = "number"
	case bigIntType: // has methods for text, but encoding/json writes a number
		s.Type = "integer"
	case rawType: // s allows any value
	default:
		return nil
	}
	return s
}

// hasJSONMethod reports whether a method of the type reads (in a result: writes) the JSON, which may then be any value.
func (r *reflector) hasJSONMethod(t reflect.Type) bool {
	if r.forResult {
		return implements[json.Marshaler](t)
	}
	return implements[json.Unmarshaler](t)
}

// hasTextMethod reports whether a method of the type reads (in a result: writes) it as text.
func (r *reflector) hasTextMethod(t reflect.Type) bool {
	if r.forResult {
		return implements[encoding.TextMarshaler](t)
	}
	return implements[encoding.TextUnmarshaler](t)
}

// implements reports whether a pointer to t implements I. encoding/json uses methods of pointers.
func implements[I any](t reflect.Type) bool {
	return t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}

// kindType returns the JSON type of a scalar kind; empty for other kinds.
func kindType(k reflect.Kind) string {
	switch k {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Float32, reflect.Float64:
		return "number"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "integer"
	}
	return ""
}

// intRange returns the bounds of small integer types. Decoding refuses numbers of more than 64 bits.
func intRange(t reflect.Type) (low, high json.Number) {
	switch t.Kind() {
	case reflect.Int8, reflect.Int16, reflect.Int32:
		high := int64(1)<<(t.Bits()-1) - 1
		return json.Number(strconv.FormatInt(-high-1, 10)), json.Number(strconv.FormatInt(high, 10))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return "0", json.Number(strconv.FormatUint(1<<t.Bits()-1, 10))
	case reflect.Uint, reflect.Uint64:
		return "0", ""
	}
	return "", ""
}
