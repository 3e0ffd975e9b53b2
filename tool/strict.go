package tool

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Strict returns the form of a schema that OpenAI's strict mode takes: every
// field required, those that were optional nullable, no additional fields.
//
// What strict mode cannot express is listed, a phrase each with its place; the
// schema must then be sent as it is, without strict mode. [Arguments] reads
// what either form leads to: a null for a field that the tool's own schema has
// as optional means that it is not given.
//
// The rules are those of OpenAI's guide to structured outputs: a root object
// without anyOf, at most 5,000 properties, 10 levels, 120,000 characters of
// names and enum values, 1,000 enum values. One limit is not checked: an enum of more
// than 250 texts may have no more than 15,000 characters.
func Strict(schema json.RawMessage) (strict json.RawMessage, problems []string) {
	doc, err := parseValue(schema)
	if err != nil {
		return schema, []string{"the schema is " + err.Error()}
	}
	s := stricter{}
	if t := doc.get("type"); t == nil || t.kind != stringValue || t.text() != "object" {
		s.problem("", "the root is no object")
	}
	s.schema(doc, "", 1)
	s.limits()
	if len(s.problems) > 0 {
		return schema, s.problems
	}
	return doc.appendJSON(nil), nil
}

// A stricter rewrites a parsed schema in place, notes what it cannot express, and counts
// what is limited for the whole schema.
type stricter struct {
	problems   []string
	properties int
	enums      int
	characters int
}

func (s *stricter) problem(path, text string) {
	if path != "" {
		text = path + ": " + text
	}
	s.problems = append(s.problems, text)
}

// limits notes what there is too much of. It comes last: the counts are of all.
func (s *stricter) limits() {
	for _, l := range []struct {
		n, max int
		what   string
	}{
		{s.properties, 5000, "properties"}, {s.enums, 1000, "enum values"}, {s.characters, 120_000, "characters of names and enum values"},
	} {
		if l.n > l.max {
			s.problem("", fmt.Sprintf("%d %s; at most %d", l.n, l.what, l.max))
		}
	}
}

// refused are keywords without which a schema means something else. They cannot be left
// out: the model would be held to less than the tool needs.
var refused = []string{
	"oneOf", "allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties",
	"propertyNames", "unevaluatedProperties", "unevaluatedItems", "contains", "minContains", "maxContains",
	"minProperties", "maxProperties", "uniqueItems", "prefixItems",
}

// dropped are keywords that only advise; strict mode does not take them.
var dropped = []string{"default", "examples", "$schema", "$comment", "contentEncoding", "readOnly", "writeOnly", "deprecated", "title"}

// schema rewrites a schema and those below it. The depth counts the levels of nesting as
// the guide does, from 1; definitions count from where they stand.
func (s *stricter) schema(v *value, path string, depth int) {
	if v.kind != objectValue || len(v.members) == 0 {
		s.problem(path, "any value is allowed")
		return
	}
	if depth == 11 { // and not for each level below it
		s.problem(path, "more than 10 levels")
	}
	v.members = slices.DeleteFunc(v.members, func(m member) bool { return slices.Contains(dropped, m.name) })
	for _, m := range v.members {
		switch {
		case slices.Contains(refused, m.name): // and not walked: one reason is enough
			s.problem(path, m.name+" is not supported")
		case m.name == "enum":
			s.enums += len(m.value.items)
			s.characters += len(m.value.appendJSON(nil))
		case m.name == "items":
			s.schema(m.value, path+"[]", depth+1)
		case m.name == "anyOf":
			for _, branch := range m.value.items {
				s.schema(branch, path, depth+1)
			}
		case m.name == "$defs" || m.name == "definitions":
			for _, d := range m.value.members {
				s.characters += len(d.name)
				s.schema(d.value, d.name, depth)
			}
		}
	}
	typed := v.get("type") != nil || v.get("$ref") != nil || v.get("anyOf") != nil || v.get("enum") != nil || v.get("const") != nil
	if !typed {
		s.problem(path, "any value is allowed")
	}
	if slices.Contains((&validator{schema: v}).types(v), "object") && v.get("$ref") == nil {
		s.object(v, path, depth)
	}
}

// object requires all fields of an object. Those that were optional become nullable, which
// is how a model in strict mode says that it does not give them.
func (s *stricter) object(v *value, path string, depth int) {
	if extra := v.get("additionalProperties"); extra == nil || extra.kind != boolValue || extra.raw[0] == 't' {
		s.problem(path, "fields of any name are allowed")
	}
	props := v.get("properties")
	if props == nil {
		props = &value{kind: objectValue}
		v.members = append(v.members, member{"properties", props})
	}
	var required []*value
	for i, p := range props.members {
		s.properties++
		s.characters += len(p.name)
		at := joinPath(path, p.name)
		s.schema(p.value, at, depth+1)
		if !hasText(v.get("required"), p.name) {
			props.members[i].value = nullable(p.value)
		}
		required = append(required, newString(p.name))
	}
	v.members = slices.DeleteFunc(v.members, func(m member) bool { return m.name == "required" })
	v.members = append(v.members, member{"required", &value{kind: arrayValue, items: required}})
}

// nullable returns a schema that allows null besides. It changes v where v says its types
// itself, so that the schema stays short; what it has in enum must then allow null, too.
func nullable(v *value) *value {
	null := &value{kind: nullValue, raw: []byte("null")}
	t := v.get("type")
	if t == nil {
		return &value{kind: objectValue, members: []member{{"anyOf", &value{kind: arrayValue, items: []*value{
			v, {kind: objectValue, members: []member{{"type", newString("null")}}},
		}}}}}
	}
	for i, m := range v.members {
		switch {
		case m.name == "type" && t.kind == stringValue:
			v.members[i].value = &value{kind: arrayValue, items: []*value{t, newString("null")}}
		case m.name == "type" && !hasText(t, "null"):
			t.items = append(t.items, newString("null"))
		case m.name == "enum":
			m.value.items = append(m.value.items, null)
		}
	}
	return v
}
