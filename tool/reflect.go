package tool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/tool/docs"
)

// durationPattern matches what time.ParseDuration reads, except forms such as +1s, .5s and 1.s.
const durationPattern = `^-?(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`

// A reflector makes the JSON Schema of a Go type.
//
// invopop/jsonschema reads the struct tags and represents the schema. The walk over the type is ours, because the
// library's overflows the stack on recursive types, loses definitions, and disagrees with encoding/json about
// embedded fields and about types with methods for JSON. The library gets one flat struct at a time, with a Mapper
// that returns our schema for every field type.
type reflector struct {
	root      reflect.Type // a reference to the schema of root is "#"
	forResult bool         // the schema of what json.Marshal writes, not of what json.Unmarshal reads

	checked map[reflect.Type]bool   // types that checkType has seen
	cyclic  map[reflect.Type]bool   // types that contain themselves; $ref points at their schemas
	names   map[reflect.Type]string // of the types in defs
	defs    jsonschema.Definitions
	err     error // the first error in a callback of the library
}

// reflectSchema returns the schema of t for arguments or, with forResult, for results. The error names the field whose type
// JSON cannot express.
func reflectSchema(t reflect.Type, forResult bool) (schema json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil { // a JSONSchema or Enum method panicked
			schema, err = nil, fmt.Errorf("schema of %v: %v", t, p)
		}
	}()
	r := &reflector{
		root:      t,
		forResult: forResult,
		checked:   map[reflect.Type]bool{},
		cyclic:    map[reflect.Type]bool{},
		names:     map[reflect.Type]string{},
		defs:      jsonschema.Definitions{},
	}
	if err := r.checkType(t, nil, nil); err != nil {
		return nil, err
	}
	s := r.buildSchema(t)
	if r.err != nil {
		return nil, r.err
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("%v does not marshal to a JSON object; use a struct with a field for each argument, or give the type a method JSONSchema", t)
	}
	s.Description = "" // the model reads the tool's description instead
	if len(r.defs) > 0 {
		s.Definitions = r.defs
	}
	return json.Marshal(s)
}

// checkType returns an error for a type without a schema, and adds the types that contain themselves to cyclic. path
// leads to t, for messages; stack has the types on the way to t.
func (r *reflector) checkType(t reflect.Type, path []string, stack []reflect.Type) error {
	t = deref(t)
	if i := slices.Index(stack, t); i >= 0 {
		viaStruct := slices.ContainsFunc(stack[i:], func(u reflect.Type) bool { return u.Kind() == reflect.Struct })
		if !viaStruct {
			return fmt.Errorf("%sthe type %v contains itself with no struct between, so no schema can describe it; put a struct between", fieldPrefix(path), t)
		}
		r.cyclic[t] = true
		return nil
	}
	if r.checked[t] {
		return nil
	}
	r.checked[t] = true
	if leaf := r.leafSchema(t); leaf != nil {
		if err := r.checkEnum(t, leaf.Enum); err != nil {
			return fmt.Errorf("%s%w", fieldPrefix(path), err)
		}
		return nil
	}
	stack = append(stack, t)
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return r.checkType(t.Elem(), append(path, "[]"), stack)
	case reflect.Map:
		if !r.validMapKey(t.Key()) {
			return fmt.Errorf("%sa map with keys of type %v does not marshal to a JSON object; use string or integer keys", fieldPrefix(path), t.Key())
		}
		return r.checkType(t.Elem(), append(path, "[]"), stack)
	case reflect.Struct:
		fields, err := jsonFields(t)
		if err != nil {
			return fmt.Errorf("%s%v: %w", fieldPrefix(path), t, err)
		}
		for _, f := range fields {
			if err := r.checkType(f.typ, append(path, "."+f.goName), stack); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%s%v has no form in JSON; use another type, or leave the field out with `json:\"-\"`", fieldPrefix(path), t)
}

// fieldPrefix formats a path for a message: "field Lines[].Price: ".
func fieldPrefix(path []string) string {
	if len(path) == 0 {
		return ""
	}
	return "field " + strings.TrimPrefix(strings.Join(path, ""), ".") + ": "
}

// validMapKey reports whether encoding/json reads (or writes) keys of type t.
func (r *reflector) validMapKey(t reflect.Type) bool {
	kind := kindType(t.Kind())
	return kind == "string" || kind == "integer" || r.hasTextMethod(t)
}

// schemaOrRef returns the schema of t, or a reference if t contains itself. Other schemas are written out where they are
// used, since not every model API follows references.
func (r *reflector) schemaOrRef(t reflect.Type) *jsonschema.Schema {
	t = deref(t)
	if !r.cyclic[t] {
		return r.buildSchema(t)
	}
	if t == r.root {
		return &jsonschema.Schema{Ref: "#"}
	}
	name, ok := r.names[t]
	if !ok {
		name = r.defName(t)
		r.names[t], r.defs[name] = name, anything() // before buildSchema, which calls schemaOrRef for t again
		r.defs[name] = r.buildSchema(t)
	}
	return &jsonschema.Schema{Ref: "#/$defs/" + name}
}

// buildSchema returns a new schema of t each time, since the library writes the tags of a field into the schema.
func (r *reflector) buildSchema(t reflect.Type) *jsonschema.Schema {
	t = deref(t)
	if s := r.leafSchema(t); s != nil {
		r.moveDefinitions(s)
		return s
	}
	s := anything()
	switch t.Kind() {
	case reflect.Struct:
		s = r.structSchema(t)
	case reflect.Map:
		s.Type = "object"
		if t.Elem().Kind() != reflect.Interface {
			s.AdditionalProperties = r.elementSchema(t.Elem())
		}
		if k := t.Key().Kind(); k != reflect.String && !r.hasTextMethod(t.Key()) { // encoding/json writes integers as text
			s.PropertyNames = &jsonschema.Schema{Pattern: "^-?[0-9]+$"}
		}
	case reflect.Slice, reflect.Array:
		s.Type, s.Items = "array", r.elementSchema(t.Elem())
		if t.Kind() == reflect.Array {
			n := uint64(t.Len())
			s.MinItems, s.MaxItems = &n, &n
		}
	}
	s.Description = r.typeText(t)
	// With this method of the library a type changes the schema that is made of it.
	if e, ok := reflect.New(t).Interface().(interface{ JSONSchemaExtend(*jsonschema.Schema) }); ok {
		e.JSONSchemaExtend(s)
	}
	return s
}

// moveDefinitions moves the definitions of a type's own schema to the root, to which the references are relative.
func (r *reflector) moveDefinitions(s *jsonschema.Schema) {
	s.Version, s.ID = "", "" // with an ID references would be relative to s
	for _, name := range slices.Sorted(maps.Keys(s.Definitions)) {
		if def, taken := r.defs[name]; taken && !reflect.DeepEqual(def, s.Definitions[name]) {
			r.fail(fmt.Errorf("two definitions called %q; rename one in its JSONSchema method", name))
		}
		r.defs[name] = s.Definitions[name]
	}
	s.Definitions = nil
}

// fail records an error in a callback of the library, which cannot return it.
func (r *reflector) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// structSchema returns the schema of a struct. It gives the library a flat struct with the same JSON fields: the library
// reads the tags, but calls back for the schema of each field's type.
func (r *reflector) structSchema(t reflect.Type) *jsonschema.Schema {
	fields, err := jsonFields(t)
	if err != nil {
		r.fail(err)
		return anything()
	}
	flat := make([]reflect.StructField, len(fields))
	for i, f := range fields {
		tag, err := r.fieldTag(f)
		if err != nil {
			r.fail(fmt.Errorf("field %s of %v: %w", f.goName, t, err))
		}
		flat[i] = reflect.StructField{Name: "F" + strconv.Itoa(i), Type: f.typ, Tag: tag}
	}
	if r.err != nil {
		return anything()
	}
	flatType := reflect.StructOf(flat)
	lib := jsonschema.Reflector{Anonymous: true, DoNotReference: true, Mapper: func(u reflect.Type) *jsonschema.Schema {
		if u == flatType { // nil lets the library read the fields
			return nil
		}
		return r.schemaOrRef(u)
	}}
	s := lib.ReflectFromType(flatType)
	s.Version = ""
	for _, f := range fields {
		p, _ := s.Properties.Get(f.name)
		if f.quoted {
			quoteSchema(p, deref(f.typ).Kind())
		}
		if err := checkTag(f, p); err != nil {
			r.fail(fmt.Errorf("field %s of %v: the tag's %w", f.goName, t, err))
		}
	}
	return s
}

// quoteSchema changes the schema of a value to the schema of a string that contains such a value.
func quoteSchema(s *jsonschema.Schema, k reflect.Kind) {
	switch kindType(k) {
	case "integer":
		s.Pattern = "^-?[0-9]+$"
	case "number":
		s.Pattern = `^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$`
	case "boolean":
		s.Enum = []any{"true", "false"}
	}
	s.Type, s.Minimum, s.Maximum = "string", "", ""
}

// fieldTag returns the tag for the library, which treats a field as required unless the tag says omitempty. The
// description is from f's own tag, else the field's doc comment, else the type's description.
func (r *reflector) fieldTag(f field) (reflect.StructTag, error) {
	keywords, err := schemaTag(f.tag.Get("jsonschema"))
	if err != nil {
		return "", err
	}
	omit := ""
	if f.optional && !r.forResult || f.omitted && r.forResult {
		omit = ",omitempty"
	}
	// In arguments null means "not given" (see coercer.coerceFields); in results it is a value.
	if r.forResult && !f.omitted && r.encodesNull(f.typ) {
		keywords = strings.TrimPrefix(keywords+",nullable", ",")
	}
	description := f.tag.Get("jsonschema_description")
	if description == "" && !strings.Contains(","+keywords, ",description=") {
		description = cmp.Or(docs.Text(f.owner, f.goName), r.typeText(f.typ))
	}
	var tag strings.Builder
	fmt.Fprintf(&tag, "json:%q", f.name+omit)
	for _, kv := range [][2]string{{"jsonschema", keywords}, {"jsonschema_description", description}, {"jsonschema_extras", f.tag.Get("jsonschema_extras")}} {
		if kv[1] != "" {
			fmt.Fprintf(&tag, " %s:%q", kv[0], kv[1])
		}
	}
	return reflect.StructTag(tag.String()), nil
}

// typeText describes a type if a field has no description.
func (r *reflector) typeText(t reflect.Type) string {
	t = deref(t)
	if t == durationType && r.forResult {
		return "nanoseconds"
	}
	return docs.Text(t, "")
}

// encodesNull reports whether encoding/json writes null for some value of t and the schema of t does not allow null.
func (r *reflector) encodesNull(t reflect.Type) bool {
	if k := t.Kind(); k != reflect.Slice && k != reflect.Map && k != reflect.Pointer {
		return false
	}
	s := r.leafSchema(deref(t))
	return s == nil || s.Type != "" // without a type the schema allows any value
}

// elementSchema returns the schema of the items of a list or a map.
func (r *reflector) elementSchema(t reflect.Type) *jsonschema.Schema {
	s := r.schemaOrRef(t)
	if r.forResult && r.encodesNull(t) {
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{s, {Type: "null"}}}
	}
	return s
}

// packagePath matches the package paths in the name of a generic type.
var packagePath = lazy.Regexp(`[^\[\],*]*[./]`)

// defName returns a unique name for t in $defs. Box[example.org/x.Inner] becomes BoxInner: in a reference a slash
// separates names. Equal names are numbered from 2.
func (r *reflector) defName(t reflect.Type) string {
	name := strings.Map(func(c rune) rune {
		if strings.ContainsRune("[],* ", c) {
			return -1
		}
		return c
	}, packagePath().ReplaceAllString(t.Name(), ""))
	unique := name
	for i := 2; r.defs[unique] != nil; i++ {
		unique = name + strconv.Itoa(i)
	}
	return unique
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	durationType = reflect.TypeFor[time.Duration]()
	numberType   = reflect.TypeFor[json.Number]()
	rawType      = reflect.TypeFor[json.RawMessage]()
	bigIntType   = reflect.TypeFor[big.Int]()
)

// anything returns the schema of any value. It is written as {}, since some model APIs refuse true.
func anything() *jsonschema.Schema { return &jsonschema.Schema{Extras: map[string]any{}} }
