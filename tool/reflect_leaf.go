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

// leaf returns the schema of a type that has no parts we look into, or nil.
// What a type says of itself goes before what its kind says: first its own schema, then its
// values, then its methods for JSON, then those for text, as encoding/json has it. The
// schema is a new one each time.
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
	// Any value can be written; read can be only what needs no methods.
	case t.Kind() == reflect.Interface && (r.out || t.NumMethod() == 0):
		return s
	}
	if s.Type = kindType(t.Kind()); s.Type == "" {
		return nil
	}
	s.Minimum, s.Maximum = intRange(t)
	return s
}

// asType returns v as a t, which may have methods of its own to write it, if it is a constant of
// the same kind; else v.
func asType(v any, t reflect.Type) any {
	if c := reflect.ValueOf(v); c.IsValid() && c.Kind() == t.Kind() {
		return c.Convert(t).Interface()
	}
	return v
}

// checkEnum returns an error for a value of t's own list that t cannot be read from: the schema would
// ask for what is refused.
func (r *reflector) checkEnum(t reflect.Type, values []any) error {
	for _, v := range values {
		data, err := json.Marshal(v)
		if err == nil && !r.out {
			err = json.Unmarshal(data, reflect.New(t).Interface())
		}
		if err != nil {
			return fmt.Errorf("%v cannot be read from %s, one of the values that it is said to have: %w; let Enum return what its JSON is", t, data, err)
		}
	}
	return nil
}

// known returns the schema of a type that brings its own, or whose JSON is not
// what its Go definition suggests; else nil.
func (r *reflector) known(t reflect.Type) *jsonschema.Schema {
	s := anything()
	if c, ok := reflect.New(t).Interface().(interface{ JSONSchema() *jsonschema.Schema }); ok {
		if own := c.JSONSchema(); own != nil {
			*s = *own // theirs may be shared
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
	case bigIntType: // which has methods for text, but JSON in numbers
		s.Type = "integer"
	case rawType: // any value
	default:
		return nil
	}
	return s
}

// isCustom reports whether a type reads (or writes) its JSON itself, so that
// nothing is known about it.
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

// implements reports whether a pointer to t has the methods of I: encoding/json finds them
// there, as it decodes into what it can address.
func implements[I any](t reflect.Type) bool {
	return t.Kind() != reflect.Interface && reflect.PointerTo(t).Implements(reflect.TypeFor[I]())
}

// kindType returns the JSON type of values of a kind, empty for those with parts and those
// that JSON has not.
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

// intRange returns the bounds of the integer types that a model might exceed. What does
// not fit into 64 bits, decoding refuses.
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
