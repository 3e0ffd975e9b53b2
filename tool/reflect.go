package tool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/tool/docs"
)

// durationPattern is what time.ParseDuration reads, without its odder forms.
const durationPattern = `^-?(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$`

// A reflector makes the JSON Schema of a Go type.
//
// invopop/jsonschema reads the struct tags and holds the schema; the walk over
// the type is ours, because the library's own overflows the stack on recursive
// types, forgets definitions, and disagrees with encoding/json about embedded
// fields and about types with methods of their own. It is given one flat
// struct at a time, with a Mapper that answers for every field type.
type reflector struct {
	root reflect.Type // what the schema is of; a reference to it is "#"

	// out asks for what json.Marshal writes instead of what json.Unmarshal
	// reads.
	out bool

	checked map[reflect.Type]bool   // walked by check already
	cyclic  map[reflect.Type]bool   // types that contain themselves; $ref points at them
	names   map[reflect.Type]string // of those in defs
	defs    jsonschema.Definitions
	err     error // the first that happened inside the library's walk
}

// reflectSchema returns the schema of t as bytes. Types that JSON cannot
// express are an error that names the field.
func reflectSchema(t reflect.Type, out bool) (schema json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil { // a JSONSchema or Enum method
			schema, err = nil, fmt.Errorf("schema of %v: %v", t, p)
		}
	}()
	r := &reflector{
		root:    t,
		out:     out,
		checked: map[reflect.Type]bool{},
		cyclic:  map[reflect.Type]bool{},
		names:   map[reflect.Type]string{},
		defs:    jsonschema.Definitions{},
	}
	if err := r.check(t, nil, nil); err != nil {
		return nil, err
	}
	s := r.build(t)
	if r.err != nil {
		return nil, r.err
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("%v does not marshal to a JSON object; use a struct with a field for each argument, or give the type a method JSONSchema", t)
	}
	// The model reads the tool's own description, of which this would be a second one.
	s.Description = ""
	if len(r.defs) > 0 {
		s.Definitions = r.defs
	}
	return json.Marshal(s)
}

// check finds what cannot be expressed, and the types that contain themselves.
// path leads to t, for messages; stack holds the types on the way.
func (r *reflector) check(t reflect.Type, path []string, stack []reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if i := slices.Index(stack, t); i >= 0 {
		viaStruct := slices.ContainsFunc(stack[i:], func(u reflect.Type) bool { return u.Kind() == reflect.Struct })
		if !viaStruct {
			return fmt.Errorf("%sthe type %v contains itself with no struct between, so no schema can describe it; put a struct between", at(path), t)
		}
		r.cyclic[t] = true
		return nil
	}
	if r.checked[t] {
		return nil
	}
	r.checked[t] = true
	if leaf := r.leaf(t); leaf != nil {
		if err := r.checkEnum(t, leaf.Enum); err != nil {
			return fmt.Errorf("%s%w", at(path), err)
		}
		return nil
	}
	stack = append(stack, t)
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return r.check(t.Elem(), append(path, "[]"), stack)
	case reflect.Map:
		if !r.mapKey(t.Key()) {
			return fmt.Errorf("%sa map with keys of type %v does not marshal to a JSON object; use string or integer keys", at(path), t.Key())
		}
		return r.check(t.Elem(), append(path, "[]"), stack)
	case reflect.Struct:
		fields, err := jsonFields(t)
		if err != nil {
			return fmt.Errorf("%s%v: %w", at(path), t, err)
		}
		for _, f := range fields {
			if err := r.check(f.typ, append(path, "."+f.goName), stack); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("%s%v has no form in JSON; use another type, or leave the field out with `json:\"-\"`", at(path), t)
}

// at words where in a type something is: "field Lines[].Price: ".
func at(path []string) string {
	if len(path) == 0 {
		return ""
	}
	return "field " + strings.TrimPrefix(strings.Join(path, ""), ".") + ": "
}

// mapKey reports whether encoding/json reads (or writes) keys of type t.
func (r *reflector) mapKey(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return r.isText(t)
}

// schema returns the schema of t, or a reference to it if it contains itself. All others are
// written out where they are used, which every reader of a schema understands.
func (r *reflector) schema(t reflect.Type) *jsonschema.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !r.cyclic[t] {
		return r.build(t)
	}
	if t == r.root {
		return &jsonschema.Schema{Ref: "#"}
	}
	name, ok := r.names[t]
	if !ok {
		name = r.defName(t)
		r.names[t] = name // before build, which comes back here
		r.defs[name] = r.build(t)
	}
	return &jsonschema.Schema{Ref: "#/$defs/" + name}
}

// build always returns a new schema: the tags of a field are written into it.
func (r *reflector) build(t reflect.Type) *jsonschema.Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s := r.leaf(t); s != nil {
		r.hoist(s)
		return s
	}
	s := anything()
	switch t.Kind() {
	case reflect.Struct:
		s = r.object(t)
	case reflect.Map:
		s.Type = "object"
		if t.Elem().Kind() != reflect.Interface {
			s.AdditionalProperties = r.part(t.Elem())
		} // else any value, which is what saying nothing means
		// encoding/json writes integer keys as text.
		if k := t.Key().Kind(); k != reflect.String && !r.isText(t.Key()) {
			s.PropertyNames = &jsonschema.Schema{Pattern: "^-?[0-9]+$"}
		}
	case reflect.Slice, reflect.Array:
		s.Type, s.Items = "array", r.part(t.Elem())
		if t.Kind() == reflect.Array {
			n := uint64(t.Len())
			s.MinItems, s.MaxItems = &n, &n
		}
	}
	s.Description = r.typeText(t)
	// The library's own hook for a type that is nearly what its definition says.
	if e, ok := reflect.New(t).Interface().(interface{ JSONSchemaExtend(*jsonschema.Schema) }); ok {
		e.JSONSchemaExtend(s)
	}
	return s
}

// hoist moves the definitions of a type's own schema to the root, where its
// references look for them.
func (r *reflector) hoist(s *jsonschema.Schema) {
	s.Version, s.ID = "", ""
	for name, d := range s.Definitions {
		if _, taken := r.defs[name]; taken {
			r.fail(fmt.Errorf("two definitions called %q; rename one in its JSONSchema method", name))
		}
		r.defs[name] = d
	}
	s.Definitions = nil
}

// fail notes an error where the library calls us and takes none.
func (r *reflector) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// object reflects a struct by way of a flat one with the same JSON fields, whose names do
// not matter. The library is asked for no more than what the tags say: for the type of each
// field it calls back.
func (r *reflector) object(t reflect.Type) *jsonschema.Schema {
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
		if u == flatType { // the library's own walk, one level deep
			return nil
		}
		return r.schema(u)
	}}
	s := lib.ReflectFromType(flatType)
	s.Version = ""
	for _, f := range fields {
		p, _ := s.Properties.Get(f.name)
		if f.quoted {
			quoteSchema(p, deref(f.typ).Kind())
		}
		if missing := lost(f, p); missing != "" {
			r.fail(fmt.Errorf("field %s of %v: the tag's %s does not fit the type %v", f.goName, t, missing, f.typ))
		}
		if err := unreadablePattern(f, p); err != nil {
			r.fail(fmt.Errorf("field %s of %v: the tag's pattern: %w; write one of Go's package regexp, or nothing is checked", f.goName, t, err))
		}
	}
	return s
}

// quoteSchema turns the schema of a value into that of the value in quotes.
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

// fieldTag writes the tag that the library reads. It takes a field as required unless
// its tag says omitempty, so that this is what the tag says, whatever encoding/json does
// with the field. Of descriptions the tag's comes first, then that of the field's doc
// comment, then the type's.
func (r *reflector) fieldTag(f field) (reflect.StructTag, error) {
	schema, err := schemaTag(f.tag.Get("jsonschema"))
	if err != nil {
		return "", err
	}
	omit := ""
	if f.optional && !r.out || f.omits && r.out {
		omit = ",omitempty"
	}
	// Read, null is taken as "not given" (see coercer.object); written, it is there.
	if r.out && !f.omits && r.nilable(f.typ) {
		schema = strings.TrimPrefix(schema+",nullable", ",")
	}
	description := f.tag.Get("jsonschema_description")
	if description == "" && !strings.Contains(","+schema, ",description=") {
		description = cmp.Or(docs.Text(f.owner, f.goName), r.typeText(f.typ))
	}
	var tag strings.Builder
	fmt.Fprintf(&tag, "json:%q", f.name+omit)
	for _, kv := range [][2]string{{"jsonschema", schema}, {"jsonschema_description", description}, {"jsonschema_extras", f.tag.Get("jsonschema_extras")}} {
		if kv[1] != "" {
			fmt.Fprintf(&tag, " %s:%q", kv[0], kv[1])
		}
	}
	return reflect.StructTag(tag.String()), nil
}

// typeText describes a type if a field has no description.
func (r *reflector) typeText(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == durationType && r.out {
		return "nanoseconds"
	}
	return docs.Text(t, "")
}

// nilable reports whether encoding/json writes null for some value of t, which
// the schema of t does not allow by itself.
func (r *reflector) nilable(t reflect.Type) bool {
	if k := t.Kind(); k != reflect.Slice && k != reflect.Map && k != reflect.Pointer {
		return false
	}
	s := r.leaf(deref(t))
	return s == nil || s.Type != ""
}

// part returns the schema of the items of a list or a map.
func (r *reflector) part(t reflect.Type) *jsonschema.Schema {
	s := r.schema(t)
	if r.out && r.nilable(t) {
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{s, {Type: "null"}}}
	}
	return s
}

// lost returns a keyword of f's tag of which the library made nothing: it drops one that
// does not fit the type, and a value that does not parse, without an error. Of a list it
// gives some keywords to the items.
func lost(f field, p *jsonschema.Schema) string {
	if p.OneOf != nil || p.AnyOf != nil {
		return ""
	}
	items := p
	if p.Items != nil {
		items = p.Items
	}
	has := map[string]bool{
		"default":          p.Default != nil || items.Default != nil,
		"enum":             len(p.Enum)+len(items.Enum) > 0,
		"example":          len(p.Examples)+len(items.Examples) > 0,
		"minimum":          p.Minimum != "" || items.Minimum != "",
		"maximum":          p.Maximum != "" || items.Maximum != "",
		"exclusiveMinimum": p.ExclusiveMinimum != "" || items.ExclusiveMinimum != "",
		"exclusiveMaximum": p.ExclusiveMaximum != "" || items.ExclusiveMaximum != "",
		"multipleOf":       p.MultipleOf != "" || items.MultipleOf != "",
		"minLength":        p.MinLength != nil || items.MinLength != nil,
		"maxLength":        p.MaxLength != nil || items.MaxLength != nil,
		"pattern":          p.Pattern != "" || items.Pattern != "",
		"minItems":         p.MinItems != nil,
		"maxItems":         p.MaxItems != nil,
	}
	for _, part := range splitUnescaped(f.tag.Get("jsonschema")) {
		key, _, _ := strings.Cut(part, "=")
		if made, known := has[key]; known && !made {
			return key
		}
	}
	return ""
}

// unreadablePattern returns why the pattern of f's tag cannot be checked. Those of types that
// make their own schema are not ours to judge: they may be JavaScript's.
func unreadablePattern(f field, p *jsonschema.Schema) error {
	if !strings.Contains(f.tag.Get("jsonschema"), "pattern=") {
		return nil
	}
	if p.Items != nil {
		p = p.Items
	}
	_, err := regexp.Compile(p.Pattern)
	return err
}

// packagePath matches what precedes the names in those of generic types.
var packagePath = lazy.Regexp(`[^\[\],*]*[./]`)

// defName returns a name for t in $defs: letters and digits only, since a slash in it
// would be a step of the reference, and unique. Box[example.org/x.Inner] becomes
// BoxInner; types of one name from two packages are numbered, from 2.
func (r *reflector) defName(t reflect.Type) string {
	name := strings.Map(func(c rune) rune {
		if strings.ContainsRune("[],* ", c) {
			return -1
		}
		return c
	}, packagePath().ReplaceAllString(t.Name(), ""))
	taken := func(s string) bool {
		for _, n := range r.names {
			if n == s {
				return true
			}
		}
		return false
	}
	unique := name
	for i := 2; taken(unique); i++ {
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

// anything returns the schema that every value fits, written {} rather than
// true, which some model APIs refuse.
func anything() *jsonschema.Schema { return &jsonschema.Schema{Extras: map[string]any{}} }
