package provider

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A branch is a schema in an allOf, anyOf or oneOf, or the schema around these.
type branch struct {
	Properties  map[string]json.RawMessage
	Required    []string
	alternative bool // in an anyOf or oneOf
}

// ObjectSchema returns the schema of a tool's arguments in the form that the APIs accept: of an object, with
// properties, and without allOf, anyOf, oneOf and the keywords in refused at the top. A schema that has this form
// already is returned unchanged. Otherwise the result may allow more than schema: the tool validates its arguments itself.
func ObjectSchema(schema json.RawMessage, refused ...string) (json.RawMessage, error) {
	if len(schema) == 0 || string(schema) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`), nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil || top == nil {
		return nil, fmt.Errorf("input schema is not a JSON object: %.60s", schema)
	}
	var root branch // ignoring properties and required of a wrong type
	_ = json.Unmarshal(top["properties"], &root.Properties)
	_ = json.Unmarshal(top["required"], &root.Required)
	branches := []branch{root}
	changed := string(top["type"]) != `"object"` || root.Properties == nil
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		var list []json.RawMessage
		_ = json.Unmarshal(top[keyword], &list) // ignore anything but a list
		for _, raw := range list {
			b := branch{alternative: keyword != "allOf"}
			if json.Unmarshal(raw, &b) == nil { // a branch may be true or false
				branches = append(branches, b)
			}
		}
		refused = append(refused, keyword)
	}
	for _, keyword := range refused {
		changed = changed || top[keyword] != nil
		delete(top, keyword)
	}
	if !changed {
		return schema, nil
	}
	merge(top, branches)
	return json.Marshal(top)
}

// merge gives top the properties of all branches. A property is required if every alternative requires it, or a branch
// that is not an alternative.
func merge(top map[string]json.RawMessage, branches []branch) {
	properties := map[string]json.RawMessage{}
	var required, byAlternatives []string // byAlternatives: by every alternative so far
	hasAlternative := false
	for _, b := range branches {
		for name, schema := range b.Properties {
			if properties[name] == nil {
				properties[name] = schema
			}
		}
		switch {
		case !b.alternative:
			required = append(required, b.Required...)
		case !hasAlternative:
			byAlternatives, hasAlternative = slices.Clone(b.Required), true
		default:
			byAlternatives = slices.DeleteFunc(byAlternatives, func(name string) bool { return !slices.Contains(b.Required, name) })
		}
	}
	top["type"] = json.RawMessage(`"object"`)
	top["properties"], _ = json.Marshal(properties) // cannot fail: the members were valid JSON
	delete(top, "required")
	if required = slices.Compact(slices.Sorted(slices.Values(append(required, byAlternatives...)))); len(required) > 0 {
		top["required"], _ = json.Marshal(required) // strings always encode
	}
}
