package tool

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbag-go/kitbag/internal/near"
)

// formatSamples are values of the formats that models get wrong. Names and addresses are
// those reserved for documentation (RFC 2606, 5737 and 3849), in case a model uses one.
var formatSamples = map[string]string{
	"date-time": "2026-01-31T09:30:00Z",
	"date":      "2026-01-31",
	"time":      "09:30:00Z",
	"duration":  "PT1H30M",
	"email":     "name@example.org",
	"uri":       "https://example.org/",
	"uuid":      "0f8fad5b-d9cb-469f-a165-70867728950e",
	"ipv4":      "192.0.2.1",
	"ipv6":      "2001:db8::1",
	"hostname":  "example.org",
}

// example returns short arguments that fit the schema, or "" if it finds none: after a wrong call, an example helps a
// model more than a rule. The arguments are guessed from the schema, then validated.
func (v *validator) example() string { return v.exampleText(v.buildValue(v.schema, 0)) }

// requiredExample returns an example of the required fields, or "" if no field is required: any example would then set an
// optional field, and models copy examples.
func (v *validator) requiredExample() string {
	if len(v.requiredNames()) == 0 {
		return ""
	}
	return v.example()
}

// corrected returns the arguments of a call with only the wrong fields replaced or left out, or "" if it cannot correct
// them. Models copy examples: an example that sets other fields, such as every group of the tool reset_tools to false,
// would do harm.
func (v *validator) corrected(args *value, x *explainer) string {
	fixed := args.clone()
	// Remove the fields that must not be given, or rename them to the fields that were meant.
	for _, wrong := range x.violations {
		if !wrong.drop {
			continue
		}
		parent, name := fixed.parent(wrong.loc)
		given := parent.child(name)
		if !parent.replace(name, nil) {
			return ""
		}
		if wrong.meant != "" && parent.child(wrong.meant) == nil {
			parent.replace(wrong.meant, given)
		}
	}
	var replaced []string // the last replaced location; violations inside it follow, and were corrected with it
	for _, wrong := range x.violations {
		parent, name := fixed.parent(wrong.loc)
		renamed := args.at(wrong.loc) == nil && fixed.at(wrong.loc) != nil // the missing field was given under another name
		inside := replaced != nil && len(wrong.loc) > len(replaced) && slices.Equal(wrong.loc[:len(replaced)], replaced)
		if wrong.drop || renamed || inside {
			continue
		}
		replaced = wrong.loc
		correction := x.nearestChoice(wrong.loc)
		if correction == nil {
			correction = v.buildValue(x.schemaAt(wrong.loc), 0)
		}
		if correction == nil || !parent.replace(name, correction) {
			return ""
		}
	}
	return v.exampleText(fixed)
}

// nearestChoice returns the value of the enum that is most similar to the text at loc, or nil.
func (x *explainer) nearestChoice(loc []string) *value {
	given, enum := x.args.at(loc), x.validator.textEnum(x.schemaAt(loc), 0)
	if given == nil || given.kind != stringValue || enum == nil {
		return nil
	}
	var names []string
	for _, c := range enum.items {
		names = append(names, c.text())
	}
	similar := near.Names(given.text(), names, 1)
	if len(similar) == 0 {
		return nil
	}
	return enum.items[slices.Index(names, similar[0])]
}

// exampleText formats arguments as models do, with spaces after commas and colons, or returns "" if they are nil,
// invalid, empty or too long.
func (v *validator) exampleText(args *value) string {
	if args == nil || args.kind != objectValue || v.validate(args.generic()) != nil {
		return ""
	}
	var fields []string
	for _, m := range args.members {
		fields = append(fields, fmt.Sprintf("%s: %s", appendQuoted(nil, m.name), m.value.appendJSON(nil)))
	}
	text := "{" + strings.Join(fields, ", ") + "}"
	if len(fields) == 0 || len(text) > maxExample {
		return ""
	}
	return text
}

// buildValue returns a value for a schema: a value that the schema names, else a small value of its type, else nil. Only
// exampleText validates the value.
func (v *validator) buildValue(s *value, depth int) *value {
	s = v.resolve(s)
	if s == nil || depth > maxSchemaDepth {
		return nil
	}
	if s.kind == boolValue { // any value; if the schema is false, exampleText drops the example
		return newString("…")
	}
	for _, keyword := range []string{"const", "default"} {
		if c := s.get(keyword); c != nil && c.kind != nullValue { // null would show nothing
			return c
		}
	}
	for _, keyword := range []string{"examples", "enum"} {
		if list := s.get(keyword); list != nil && len(list.items) > 0 {
			return list.items[0]
		}
	}
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} { // beside a type they only restrict the value
		if list := s.get(keyword); list != nil && len(list.items) > 0 && s.get("type") == nil {
			return v.buildValue(list.items[0], depth+1)
		}
	}
	types := v.types(s)
	if len(types) == 0 {
		return newString("…")
	}
	switch types[0] {
	case "object":
		return v.buildObject(s, depth)
	case "array":
		list := &value{kind: arrayValue}
		// One item shows what the items are. Lists far inside stay empty, to keep the example short.
		if s.get("minItems") != nil || depth < 3 {
			if item := v.buildValue(v.itemSchema(s), depth+1); item != nil {
				list.items = append(list.items, item)
			}
		}
		return list
	case "integer", "number":
		return &value{kind: numberValue, raw: v.buildNumber(s)}
	case "boolean":
		return &value{kind: boolValue, raw: []byte("true")}
	case "null":
		return &value{kind: nullValue, raw: []byte("null")}
	}
	return newString(buildText(s))
}

// buildText returns a text. It ignores patterns: exampleText drops an example that does not match. "AAAA" is base64,
// the only encoding that tools use.
func buildText(s *value) string {
	text := "…"
	if f := s.get("format"); f != nil && formatSamples[f.text()] != "" {
		text = formatSamples[f.text()]
	}
	if n := s.get("minLength"); n != nil {
		if count, _ := strconv.Atoi(string(n.raw)); count > 1 && count < maxExample {
			text = strings.Repeat("x", count)
		}
	}
	if s.get("contentEncoding") != nil {
		text = "AAAA"
	}
	return text
}

// buildObject sets the required fields. If the arguments as a whole have none, it sets their first field: an example that
// sets every optional field would do harm when a model copies it.
func (v *validator) buildObject(s *value, depth int) *value {
	required := s.get("required")
	noneRequired := required == nil || len(required.items) == 0
	obj := &value{kind: objectValue}
	for _, name := range v.fieldNames(s) {
		setFirst := depth == 0 && noneRequired && len(obj.members) == 0
		if !hasText(required, name) && !setFirst {
			continue
		}
		if item := v.buildValue(v.property(s, name), depth+1); item != nil {
			obj.members = append(obj.members, member{name, item})
		}
	}
	return obj
}

// buildNumber returns a bound or a multiple, else one more than an exclusive minimum, else 1. If another keyword refuses
// the number, exampleText drops the example.
func (v *validator) buildNumber(s *value) []byte {
	for _, keyword := range []string{"minimum", "maximum", "multipleOf"} {
		if n := s.get(keyword); n != nil && n.kind == numberValue {
			return n.raw
		}
	}
	if n := s.get("exclusiveMinimum"); n != nil && n.kind == numberValue {
		if f, err := strconv.ParseFloat(string(n.raw), 64); err == nil {
			return strconv.AppendFloat(nil, f+1, 'f', -1, 64)
		}
	}
	return []byte("1")
}
