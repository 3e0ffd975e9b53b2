package tool

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/kitbag-go/kitbag/internal/near"
)

// A field is a member of the JSON object that a struct decodes from.
type field struct {
	name     string // in JSON
	goName   string
	owner    reflect.Type // the struct that declares the field
	typ      reflect.Type
	tag      reflect.StructTag
	omitted  bool  // encoding may omit the field
	optional bool  // arguments may omit the field
	quoted   bool  // `json:",string"`: the value is encoded inside a string
	tagged   int   // 1 if the name is from the field's tag, else 0; an int because dropHidden sorts by it
	index    []int // for reflect.Value.FieldByIndex; longer than one for a field of an embedded struct
}

// jsonFields lists the fields of a struct as encoding/json sees them, in the order of their declaration: embedded
// structs are flattened, and an outer field hides an inner field of the same name. Two fields of one name at the same
// depth, which encoding/json silently drops, are an error. Schemas and decoding agree because both use jsonFields.
func jsonFields(t reflect.Type) ([]field, error) {
	type embedded struct {
		typ        reflect.Type
		index      []int
		viaPointer bool // which may be nil, so that encoding omits the fields
	}
	var all []field
	visited := map[reflect.Type]int{} // the depth at which a struct was first found
	level := []embedded{{typ: t}}
	for depth := 0; len(level) > 0; depth++ {
		var next []embedded
		for _, e := range level {
			// The same struct at a lower depth hides this one; without this check a recursive struct would have no
			// end. At the same depth dropHidden returns an error.
			if first, ok := visited[e.typ]; ok && first < depth {
				continue
			}
			visited[e.typ] = depth
			for i := range e.typ.NumField() {
				sf := e.typ.Field(i)
				index := append(slices.Clone(e.index), i)
				f, nested := jsonField(sf)
				switch {
				case nested != nil:
					if !sf.IsExported() && sf.Type.Kind() == reflect.Pointer {
						return nil, fmt.Errorf("field %s: encoding/json cannot fill an embedded pointer to an unexported struct; embed the struct itself", sf.Name)
					}
					next = append(next, embedded{nested, index, e.viaPointer || sf.Type.Kind() == reflect.Pointer})
				case f.name != "":
					f.owner, f.index = e.typ, index
					f.omitted = f.omitted || e.viaPointer
					all = append(all, f)
				}
			}
		}
		level = next
	}
	return dropHidden(all)
}

// jsonField returns a field of a struct, or the embedded struct to flatten, or neither for a field that is not part of
// the JSON. The tag jsonschema:"-" hides a field from the model.
func jsonField(sf reflect.StructField) (f field, nested reflect.Type) {
	tag := sf.Tag.Get("json")
	if tag == "-" || sf.Tag.Get("jsonschema") == "-" {
		return field{}, nil
	}
	name, options, _ := strings.Cut(tag, ",")
	if !validTagName(name) {
		name = ""
	}
	if sf.Anonymous {
		t := sf.Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		// With a name in its tag an embedded struct is not flattened.
		if name == "" && t.Kind() == reflect.Struct {
			return field{}, t
		}
	}
	if !sf.IsExported() { // checked last: an unexported embedded struct may have exported fields
		return field{}, nil
	}
	f = field{name: name, goName: sf.Name, typ: sf.Type, tag: sf.Tag, tagged: 1}
	if name == "" {
		f.name, f.tagged = sf.Name, 0
	}
	for o := range strings.SplitSeq(options, ",") {
		switch o {
		case "omitempty", "omitzero":
			f.omitted = true
		case "string":
			f.quoted = quotable(sf.Type)
		}
	}
	f.optional = f.omitted || sf.Type.Kind() == reflect.Pointer
	return f, nil
}

// dropHidden drops hidden fields and restores the order of declaration. As in encoding/json, of several fields with one
// name the least nested one wins, and at the same depth the only one with the name in its tag.
func dropHidden(all []field) ([]field, error) {
	precedence := func(a, b field) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(len(a.index), len(b.index)), cmp.Compare(b.tagged, a.tagged))
	}
	slices.SortStableFunc(all, precedence)
	var kept []field
	for i, f := range all {
		if i > 0 && all[i-1].name == f.name {
			continue // hidden
		}
		if i+1 < len(all) && precedence(f, all[i+1]) == 0 {
			g := all[i+1]
			if g.owner == f.owner && g.goName == f.goName {
				return nil, fmt.Errorf("field %s.%s is embedded twice, so that encoding/json ignores it; embed %v once", f.owner, f.goName, f.owner)
			}
			return nil, fmt.Errorf("fields %s.%s and %s.%s are both called %q in JSON; rename one with a json tag", f.owner, f.goName, g.owner, g.goName, f.name)
		}
		kept = append(kept, f)
	}
	slices.SortFunc(kept, func(a, b field) int { return slices.Compare(a.index, b.index) })
	return kept, nil
}

// validTagName reports whether encoding/json accepts a name from a tag; other names it ignores silently.
func validTagName(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", c)
	})
}

// quotable reports whether the option ",string" of a json tag has an effect on t.
func quotable(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return kindType(t.Kind()) != ""
}

// tagKeywords has the keywords of a jsonschema tag in invopop/jsonschema v0.14, and whether each takes a value. The
// library ignores other words without an error.
var tagKeywords = map[string]bool{
	"required": false, "nullable": false,
	"title": true, "description": true, "type": true, "anchor": true,
	"oneof_required": true, "anyof_required": true, "oneof_ref": true, "oneof_type": true, "anyof_ref": true, "anyof_type": true,
	"minLength": true, "maxLength": true, "pattern": true, "format": true, "readOnly": true, "writeOnly": true,
	"multipleOf": true, "minimum": true, "maximum": true, "exclusiveMinimum": true, "exclusiveMaximum": true,
	"minItems": true, "maxItems": true, "uniqueItems": true,
	"default": true, "example": true, "enum": true,
}

// schemaTag rewrites a jsonschema tag for the library: commas in a description or a pattern are escaped, and a tag that
// is prose becomes a description. An unknown keyword is an error.
func schemaTag(tag string) (string, error) {
	if tag == "" {
		return "", nil
	}
	var parts []string
	for i, p := range splitUnescaped(tag) {
		key, _, hasValue := strings.Cut(p, "=")
		takesValue, known := tagKeywords[key]
		switch {
		case known && takesValue == hasValue:
			parts = append(parts, p)
		case known && takesValue:
			return "", fmt.Errorf("jsonschema tag %q: %s needs a value (%s=…)", tag, key, key)
		// "the number, in metres" or "x+y=1" is prose: keywords consist of letters.
		case i == 0 && !looksLikeKeyword(key) && (hasValue || strings.Contains(p, " ")):
			return "description=" + strings.Join(splitUnescaped(tag), `\,`), nil
		// The comma before p belongs to a value: "description=first, then second".
		case i > 0 && strings.Contains(parts[len(parts)-1], "=") && !(hasValue && looksLikeKeyword(key)):
			parts[len(parts)-1] += `\,` + p
		default:
			if similar := near.Names(key, slices.Sorted(maps.Keys(tagKeywords)), 1); len(similar) > 0 {
				return "", fmt.Errorf("jsonschema tag %q: %q is not a keyword; did you mean %s?", tag, key, similar[0])
			}
			return "", fmt.Errorf("jsonschema tag %q: %q is not a keyword; write \\\\, for a comma inside a value, or use jsonschema_description", tag, key)
		}
	}
	return strings.Join(parts, ","), nil
}

// splitUnescaped splits at the commas that no backslash precedes, and keeps the backslashes.
func splitUnescaped(s string) []string {
	var parts []string
	start := 0
	for i := range len(s) {
		if s[i] == ',' && (i == 0 || s[i-1] != '\\') {
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// looksLikeKeyword reports whether s consists of letters and "_".
func looksLikeKeyword(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsLetter(c) && c != '_' })
}
