package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/tool/docs"
)

// An inputType describes an argument type of function tools. It is shared by all tools with that type and never
// changed.
type inputType struct {
	typ         reflect.Type
	schema      json.RawMessage
	defaults    json.RawMessage // an object, or nil
	hasDuration bool            // a value may contain a time.Duration, which models write as text
	generation  int             // docs.Generation when the schema was made
}

type outputType struct{ schema json.RawMessage }

// The caches are not limited, since a program has a fixed number of types.
var (
	inputTypes  sync.Map // reflect.Type → *inputType
	outputTypes sync.Map // reflect.Type → *outputType, nil for a type that does not marshal to a JSON object
)

// inputTypeOf returns the inputType of t, or of the type that t points to. It makes a new inputType if docs were
// registered since the cached one was made. The error names a field that JSON cannot express.
func inputTypeOf(t reflect.Type) (*inputType, error) {
	t = deref(t)
	generation := docs.Generation()
	if v, ok := inputTypes.Load(t); ok && v.(*inputType).generation == generation {
		return v.(*inputType), nil
	}
	schema, err := reflectSchema(t, false)
	if err != nil {
		return nil, err
	}
	in := &inputType{typ: t, schema: schema, generation: generation}
	in.hasDuration = containsType(t, durationType, map[reflect.Type]bool{})
	if in.defaults, err = topLevelDefaults(schema); err != nil {
		return nil, err
	}
	inputTypes.Store(t, in)
	return in, nil
}

// topLevelDefaults returns an object with the defaults of a schema's properties, or nil if there are none. Defaults of
// nested properties are ignored: the object around such a property may be absent.
func topLevelDefaults(schema json.RawMessage) (json.RawMessage, error) {
	var s struct {
		Properties map[string]struct {
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	values := map[string]json.RawMessage{}
	for name, p := range s.Properties {
		if p.Default != nil {
			values[name] = p.Default
		}
	}
	if len(values) == 0 {
		return nil, nil
	}
	return json.Marshal(values)
}

// containsType reports whether a value of type t that was decoded from JSON may contain a value of type want. Types in
// seen are not searched again.
func containsType(t, want reflect.Type, seen map[reflect.Type]bool) bool {
	if t == want {
		return true
	}
	if seen[t] {
		return false
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return containsType(t.Elem(), want, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if containsType(t.Field(i).Type, want, seen) {
				return true
			}
		}
	}
	return false
}

// decode fills p, a pointer to in.typ, from arguments that fit the schema. Absent fields get the schema's defaults.
func (in *inputType) decode(raw json.RawMessage, p any) error {
	if in.defaults != nil {
		if err := in.unmarshal(in.defaults, p); err != nil {
			return fmt.Errorf("default values: %w", err)
		}
	}
	return in.unmarshal(raw, p)
}

// unmarshal reads JSON into p with encoding/json. If in.typ may contain durations, or encoding/json refuses a number
// such as 3.0 for an int, rewriteForGo rewrites the JSON first.
func (in *inputType) unmarshal(raw json.RawMessage, p any) error {
	if !in.hasDuration {
		err := json.Unmarshal(raw, p)
		if _, ok := err.(*json.UnmarshalTypeError); !ok {
			return err
		}
	}
	v, err := parseValue(raw)
	if err != nil {
		return err
	}
	if err := rewriteForGo(v, in.typ); err != nil {
		return err
	}
	return json.Unmarshal(v.appendJSON(nil), p)
}

// rewriteForGo rewrites, in place, values that JSON Schema and encoding/json treat differently: durations become
// nanoseconds, and integers written as 3.0 or 1e3 become 3 and 1000.
func rewriteForGo(v *value, t reflect.Type) error {
	t = deref(t)
	if t == durationType && v.kind == stringValue {
		d, err := time.ParseDuration(v.text())
		if err != nil {
			// The limit is 290 years of 365 days; an int64 of nanoseconds holds 292.
			return fmt.Errorf("%q is not a duration; write it like 1m30s, at most 2540400h", v.text())
		}
		*v = value{kind: numberValue, raw: []byte(fmt.Sprint(int64(d)))}
		return nil
	}
	if r := (&reflector{}); r.hasJSONMethod(t) || r.hasTextMethod(t) { // the type's own method decodes the JSON
		return nil
	}
	switch k := t.Kind(); {
	case k == reflect.Struct && v.kind == objectValue:
		return rewriteFieldsForGo(v, t)
	case k == reflect.Map && v.kind == objectValue:
		for _, m := range v.members {
			if err := rewriteForGo(m.value, t.Elem()); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
	case (k == reflect.Slice || k == reflect.Array) && v.kind == arrayValue:
		for i, item := range v.items {
			if err := rewriteForGo(item, t.Elem()); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
	case kindType(k) == "integer" && v.kind == numberValue && bytes.ContainsAny(v.raw, ".eE"):
		if n, ok := new(big.Rat).SetString(string(v.raw)); ok && n.IsInt() {
			v.raw = []byte(n.Num().String())
		}
	}
	return nil
}

// rewriteFieldsForGo is rewriteForGo for an object and a struct type. It ignores members that are not fields of the struct.
func rewriteFieldsForGo(v *value, t reflect.Type) error {
	fields, err := jsonFields(t)
	if err != nil {
		return err
	}
	byName := make(map[string]reflect.Type, len(fields))
	for _, f := range fields {
		byName[f.name] = f.typ
	}
	for _, m := range v.members {
		if fieldType := byName[m.name]; fieldType != nil {
			if err := rewriteForGo(m.value, fieldType); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
	}
	return nil
}
