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

// leaf returns a new schema of a type without fields or items, or nil for other types. It uses, in this order, the
// type's own schema, its values, its methods for JSON, its methods for text, and its kind.
func (r *reflector) leaf(t reflect.Type) *jsonschema.Schema {
	if s := r.known(t); s != nil {
		return s
	}
	s := anything()
	values := docs.Enum(t)
	if e, ok := reflect.New(t).Interface().(interface{ Enum() []any }); ok {
		values = e.Enum()
	}
	for _, v := range values {
		s.Enum = append(s.Enum, asType(v, t))
	}
	switch {
	case r.isCustom(t):
		return s
	case r.isText(t):
		s.Type = "string"
		return s
	case len(s.Enum) > 0:
		s.Type = kindType(t.Kind())
		return s
	// encoding/json writes bytes as base64, unless the element writes itself.
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 && !r.isCustom(t.Elem()) && !r.isText(t.Elem()):
		s.Type, s.ContentEncoding = "string", "base64"
		return s
	// A result may hold an interface with methods, but no argument can be decoded into one.
	case t.Kind() == reflect.Interface && (r.out || t.NumMethod() == 0):
		return s
	}
	if s.Type = kindType(t.Kind()); s.Type == "" {
		return nil
	}
	s.Minimum, s.Maximum = intRange(t)
	return s
}

// asType converts v to t, whose methods write its JSON, if it has t's kind; else it returns v.
func asType(v any, t reflect.Type) any {
	if c := reflect.ValueOf(v); c.IsValid() && c.Kind() == t.Kind() {
		return c.Convert(t).Interface()
	}
	return v
}

// checkEnum returns an error if t cannot be read from one of its values.
func (r *reflector) checkEnum(t reflect.Type, values []any) error {
	for _, v := range values {
		data, err := json.Marshal(v)
		if err == nil && !r.out {
			err = json.Unmarshal(data, reflect.New(t).Interface())
		}
		if err != nil {
			return fmt.Errorf("%v cannot be read from %s, which is one of its values: %w; let Enum return values as they are in JSON", t, data, err)
		}
	}
	return nil
}

// known returns the schema of a type with a method JSONSchema, or whose JSON differs from
// its Go definition; else nil.
func (r *reflector) known(t reflect.Type) *jsonschema.Schema {
	s := anything()
	if c, ok := reflect.New(t).Interface().(interface{ JSONSchema() *jsonschema.Schema }); ok {
		if own := c.JSONSchema(); own != nil {
			*s = *own // a copy, since the type may return the same one each time
		}
		return s
	}
	switch t {
	case timeType:
		s.Type, s.Format = "string", "date-time"
	case durationType:
		if r.out { // as encoding/json writes it
			s.Type = "integer"
			break
		}
		s.Type, s.Pattern, s.Examples = "string", durationPattern, []any{"1m30s"}
	case numberType:
		s.Type = "number"
	case bigIntType: // it has methods for text, but its JSON is a number
		s.Type = "integer"
	case rawType: // any value
	default:
		return nil
	}
	return s
}

// isCustom reports whether a type reads (or writes) its JSON itself, so that it may be anything.
func (r *reflector) isCustom(t reflect.Type) bool {
	if r.out {
		return implements[json.Marshaler](t)
	}
	return implements[json.Unmarshaler](t)
}

// isText reports whether a type reads (or writes) itself as text.
func (r *reflector) isText(t reflect.Type) bool {
	if r.out {
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
