package tool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// A coercer changes values of the wrong type to what was obviously meant, according to the schema: "3" to 3, a
// JSON object inside a string to the object. It is used only on arguments that do not fit, and its result is
// validated, so it may guess. It notes each change.
//
// It changes the parsed value in place, and may put values of the schema into it, which must not be changed.
type coercer struct {
	v     *validator
	notes []string // what was changed, each with its path
}

func (c *coercer) note(path, format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	if path != "" {
		s = path + ": " + s
	}
	c.notes = append(c.notes, s)
}

// root returns the object of arguments: v itself, the object inside the string or list v, or an object whose only field
// is v.
func (c *coercer) root(v *value) *value {
	for range 3 { // it may be encoded several times
		if v.kind != stringValue {
			break
		}
		inner := parseText(v.text())
		if inner == nil || inner.kind != objectValue && inner.kind != stringValue {
			break
		}
		c.note("", "the object was inside a string")
		v = inner
	}
	// Where one field is required, [{…}] may also be meant as its value.
	if v.kind == arrayValue && len(v.items) == 1 && v.items[0].kind == objectValue && len(c.v.required()) != 1 {
		c.note("", "the object was inside a list")
		v = v.items[0]
	}
	if name := c.v.onlyField(); v.kind != objectValue && v.kind != nullValue && name != "" {
		c.note("", "the value was given without its field %q", name)
		v = &value{kind: objectValue, members: []member{{name, v}}}
	}
	return c.value(v, c.v.schema, "", 0)
}

// parseText parses the JSON in a string, repaired if necessary. It returns nil if there is none or if it is cut
// off, and does not remove prose around it: a text may mention an object.
func parseText(s string) *value {
	if v, err := parseValue([]byte(s)); err == nil {
		return v
	}
	if t := strings.TrimSpace(s); !strings.HasPrefix(t, "{") && !strings.HasPrefix(t, "[") {
		return nil
	}
	v, r, err := repair([]byte(s))
	if err != nil || r.truncated {
		return nil
	}
	return v
}

// required returns the names of the fields that must be given, as JSON strings.
func (v *validator) required() []*value {
	if r := v.resolve(v.schema).get("required"); r != nil {
		return r.items
	}
	return nil
}

// onlyField returns the only field that the schema names, or the only one that it requires;
// empty if there are several.
func (v *validator) onlyField() string {
	if names := v.fieldNames(v.schema); len(names) == 1 {
		return names[0]
	}
	if r := v.required(); len(r) == 1 {
		return r[0].text()
	}
	return ""
}

// value returns v in a type that the schema allows, or v itself if it cannot be converted. It converts v before
// its parts, since v may be an object in a string.
func (c *coercer) value(v, schema *value, path string, depth int) *value {
	if depth > maxDepth {
		return v
	}
	types := c.v.types(schema)
	if len(types) > 0 && !allows(types, v) {
		if w := c.convert(v, schema, types, path); w != nil {
			v = w
		}
	}
	switch v.kind {
	case objectValue:
		c.object(v, schema, path, depth)
	case arrayValue:
		if item := c.v.itemSchema(schema); item != nil {
			for i := range v.items {
				v.items[i] = c.value(v.items[i], item, fmt.Sprintf("%s[%d]", path, i), depth+1)
			}
		}
	case stringValue:
		return c.fixCase(v, schema, path)
	}
	return v
}

// allows reports whether a value has one of the types. Every number counts as an integer.
func allows(types []string, v *value) bool {
	for _, t := range types {
		if t == v.kind.String() || t == "integer" && v.kind == numberValue {
			return true
		}
	}
	return false
}

// object coerces the fields, and drops optional fields whose null the schema does not allow: models often fill in all
// fields, and in strict mode they must.
func (c *coercer) object(v, schema *value, path string, depth int) {
	kept := v.members[:0]
	for _, m := range v.members {
		at := joinPath(path, m.name)
		p := c.v.property(schema, m.name)
		if p == nil {
			kept = append(kept, m)
			continue
		}
		types := c.v.types(p)
		if m.value.kind == nullValue && len(types) > 0 && !allows(types, m.value) && !c.v.requires(schema, m.name) {
			c.note(at, "null dropped")
			continue
		}
		m.value = c.value(m.value, p, at, depth+1)
		kept = append(kept, m)
	}
	v.members = kept
}

// joinPath returns the path of a field. The name comes from the model and may be long.
func joinPath(path, name string) string {
	if path == "" {
		return visible.Cut(name, maxFound, "…")
	}
	return path + "." + visible.Cut(name, maxFound, "…")
}

// requires reports whether a schema requires the field.
func (v *validator) requires(schema *value, name string) bool {
	return v.search(schema, 0, func(s *value) *value {
		if r := s.get("required"); hasText(r, name) {
			return r
		}
		return nil
	}) != nil
}

// convert returns v in the first of the types that it can be converted to, or nil. If the schema lists the values,
// the result must be one of them; fixCase corrects upper and lower case later.
func (c *coercer) convert(v, schema *value, types []string, path string) *value {
	enum := c.v.resolve(schema).get("enum")
	for _, t := range types {
		w := convertTo(v, t)
		if w != nil && (enum == nil || slices.ContainsFunc(enum.items, func(e *value) bool { return strings.EqualFold(e.text(), w.text()) })) {
			c.note(path, "%s taken as %s", article([]string{v.kind.String()}), article([]string{t}))
			return w
		}
	}
	// One value in place of a list, if it could be an item; its type is corrected later, like that of any item. An
	// object is never meant as a text.
	if item := c.v.itemSchema(schema); item != nil && slices.Contains(types, "array") && v.kind != nullValue {
		if want := c.v.types(item); allows(want, v) || len(want) > 0 && v.kind != objectValue && convertTo(v, want[0]) != nil {
			c.note(path, "a single value taken as a list")
			return &value{kind: arrayValue, items: []*value{v}}
		}
	}
	return nil
}

// convertTo returns v as a value of type t, or nil. It does not make a text of null, which usually means that
// nothing is given, nor of a list, whose items could be joined in several ways.
func convertTo(v *value, t string) *value {
	text := v.source
	if v.kind == stringValue {
		text = strings.TrimSpace(v.text())
	}
	switch t {
	case "integer", "number":
		if num := fixNumber(text); v.kind == stringValue && num != "" && checkNumber([]byte(num)) == nil {
			return &value{kind: numberValue, raw: []byte(num)}
		}
	case "boolean", "null":
		if lit, ok := literals[text]; ok && v.kind == stringValue && literalKind(lit[0]).String() == t {
			return &value{kind: literalKind(lit[0]), raw: []byte(lit)}
		}
	case "string":
		if v.kind != nullValue && v.kind != arrayValue {
			return newString(v.text())
		}
	case "object", "array":
		if v.kind == stringValue {
			if w := parseText(text); w != nil && w.kind.String() == t {
				return w
			}
		}
		if t == "object" && v.kind == arrayValue && len(v.items) == 1 && v.items[0].kind == objectValue {
			return v.items[0]
		}
	}
	return nil
}

// fixCase returns the value of the schema's enum that differs from v only in upper and lower case. If there are two, it
// returns v: it is unclear which was meant.
func (c *coercer) fixCase(v, schema *value, path string) *value {
	enum := c.v.textEnum(schema, 0)
	if enum == nil {
		return v
	}
	var meant *value
	for _, e := range enum.items {
		switch {
		case e.kind != stringValue:
		case e.text() == v.text():
			return v
		case strings.EqualFold(e.text(), strings.TrimSpace(v.text())):
			if meant != nil {
				return v
			}
			meant = e
		}
	}
	if meant == nil {
		return v
	}
	c.note(path, "%s taken as %s", visible.Cut(string(v.raw), maxFound, "…"), visible.Cut(string(meant.raw), maxFound, "…"))
	return meant
}
