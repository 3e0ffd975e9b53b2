package tool

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// A coercer changes values of the wrong type to what was obviously meant, according to the schema: "3" to 3, a
// JSON object inside a string to the object. It is used only on arguments that do not fit, and its result is
// validated, so it may guess.
//
// A coercer changes the parsed arguments in place. They may then share values with the schema, so nothing may
// change them afterwards.
type coercer struct {
	validator *validator
	notes     []string // what was changed, each with its path
}

func (c *coercer) note(path, format string, a ...any) {
	s := fmt.Sprintf(format, a...)
	if path != "" {
		s = path + ": " + s
	}
	c.notes = append(c.notes, s)
}

// coerceArguments coerces v and its parts. If v is a string or a list that has only an object inside, it coerces
// that object. Any other v, except an object or null, becomes the value of onlyField in a new object.
func (c *coercer) coerceArguments(v *value) *value {
	for range 3 { // some models encode the object several times: a string in a string
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
	// If exactly one field is required, the list may be the value of that field.
	if v.kind == arrayValue && len(v.items) == 1 && v.items[0].kind == objectValue && len(c.validator.requiredNames()) != 1 {
		c.note("", "the object was inside a list")
		v = v.items[0]
	}
	if name := c.validator.onlyField(); v.kind != objectValue && v.kind != nullValue && name != "" {
		c.note("", "the value was given without its field %q", name)
		v = &value{kind: objectValue, members: []member{{name, v}}}
	}
	return c.coerce(v, c.validator.schema, "", 0)
}

// parseText parses a string that is JSON, repaired if necessary. It returns nil for other strings, for JSON that is cut
// off, and for JSON with prose around it, since the text may only mention the JSON.
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

// requiredNames returns the names of the arguments that must be given, as JSON strings.
func (v *validator) requiredNames() []*value {
	if r := v.resolve(v.schema).get("required"); r != nil {
		return r.items
	}
	return nil
}

// onlyField returns the only field that the schema names, else the only field that it requires, else "".
func (v *validator) onlyField() string {
	if names := v.fieldNames(v.schema); len(names) == 1 {
		return names[0]
	}
	if r := v.requiredNames(); len(r) == 1 {
		return r[0].text()
	}
	return ""
}

// coerce returns v in a type that the schema allows, or v itself if it cannot be converted, with its parts coerced.
// It converts v before the parts, since v may be an object in a string.
func (c *coercer) coerce(v, schema *value, path string, depth int) *value {
	if depth > maxDepth {
		return v
	}
	if types := c.validator.types(schema); len(types) > 0 && !allows(types, v) {
		v = c.convert(v, schema, types, path)
	}
	switch v.kind {
	case objectValue:
		c.coerceFields(v, schema, path, depth)
	case arrayValue:
		if item := c.validator.itemSchema(schema); item != nil {
			for i := range v.items {
				v.items[i] = c.coerce(v.items[i], item, fmt.Sprintf("%s[%d]", path, i), depth+1)
			}
		}
	case stringValue:
		return c.matchEnum(v, schema, path)
	}
	return v
}

// allows reports whether a value has one of the types. Every number counts as an integer: 1.5 cannot be converted to
// one, and the validator refuses it.
func allows(types []string, v *value) bool {
	return slices.Contains(types, v.kind.String()) || v.kind == numberValue && slices.Contains(types, "integer")
}

// coerceFields coerces the fields of an object, and drops optional fields whose null the schema does not allow: models
// often give every field, and in OpenAI's strict mode they must.
func (c *coercer) coerceFields(v, schema *value, path string, depth int) {
	kept := v.members[:0]
	for _, m := range v.members {
		if p := c.validator.property(schema, m.name); p != nil {
			fieldPath, types := joinPath(path, m.name), c.validator.types(p)
			if m.value.kind == nullValue && len(types) > 0 && !allows(types, m.value) && !c.validator.requires(schema, m.name) {
				c.note(fieldPath, "null dropped")
				continue
			}
			m.value = c.coerce(m.value, p, fieldPath, depth+1)
		}
		kept = append(kept, m)
	}
	v.members = kept
}

// joinPath returns the path of a field. The name comes from the model and may be long.
func joinPath(path, name string) string {
	if path != "" {
		path += "."
	}
	return path + visible.Cut(name, maxShown, "…")
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

// convert returns v in the first of the types that it can be converted to, or v itself. If the schema has an enum,
// the result must be in it, but its case may differ: matchEnum corrects that later.
func (c *coercer) convert(v, schema *value, types []string, path string) *value {
	enum := c.validator.resolve(schema).get("enum")
	for _, t := range types {
		w := convertTo(v, t)
		sameText := func(e *value) bool { return strings.EqualFold(e.text(), w.text()) }
		if w != nil && (enum == nil || slices.ContainsFunc(enum.items, sameText)) {
			c.note(path, "%s taken as %s", article([]string{v.kind.String()}), article([]string{t}))
			return w
		}
	}
	// Models also send the only item of a list without the list. coerce converts the item to its type later. An object is
	// made an item only of a list of objects: instead of a list of texts it was probably meant as something else.
	if item := c.validator.itemSchema(schema); item != nil && slices.Contains(types, "array") && v.kind != nullValue {
		if want := c.validator.types(item); allows(want, v) || len(want) > 0 && v.kind != objectValue && convertTo(v, want[0]) != nil {
			c.note(path, "a single value taken as a list")
			return &value{kind: arrayValue, items: []*value{v}}
		}
	}
	return v
}

// convertTo returns v as a value of type t, or nil. It does not make a text of null, which usually means that
// nothing is given, nor of a list, whose items could be joined in several ways.
func convertTo(v *value, t string) *value {
	text := "" // stays empty for other values, so that nothing below parses them
	if v.kind == stringValue {
		text = strings.TrimSpace(v.text())
	}
	switch t {
	case "integer", "number":
		if num := fixNumber(text); num != "" && checkNumber([]byte(num)) == nil {
			return &value{kind: numberValue, raw: []byte(num)}
		}
	case "boolean", "null":
		if lit, ok := literals[text]; ok && literalKind(lit[0]).String() == t {
			return &value{kind: literalKind(lit[0]), raw: []byte(lit)}
		}
	case "string":
		if v.kind != nullValue && v.kind != arrayValue {
			return newString(v.text())
		}
	case "object", "array":
		if w := parseText(text); w != nil && w.kind.String() == t {
			return w
		}
		if t == "object" && v.kind == arrayValue && len(v.items) == 1 && v.items[0].kind == objectValue {
			return v.items[0]
		}
	}
	return nil
}

// matchEnum returns the text of the schema's enum that differs from the text v only in upper and lower case or in the
// space around v. It returns v if no text or more than one does.
func (c *coercer) matchEnum(v, schema *value, path string) *value {
	enum := c.validator.textEnum(schema, 0)
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
	c.note(path, "%s taken as %s", visible.Cut(string(v.raw), maxShown, "…"), visible.Cut(string(meant.raw), maxShown, "…"))
	return meant
}
