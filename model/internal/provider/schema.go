package provider

import (
	"encoding/json"
	"fmt"
	"slices"
)

// A branch is a schema in an allOf, anyOf or oneOf.
type branch struct {
	Properties map[string]json.RawMessage
	Required   []string
	inAllOf    bool // its required members are required in any case
}

// ObjectSchema returns the schema of a tool's arguments in the form that the APIs accept: of an object, with
// properties, and without allOf, anyOf, oneOf and further refused members at the top. A schema that has this form
// already is returned unchanged. Otherwise the result may allow more; the tool validates its arguments itself.
func ObjectSchema(schema json.RawMessage, refused ...string) (json.RawMessage, error) {
	if len(schema) == 0 || string(schema) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`), nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil || top == nil {
		return nil, fmt.Errorf("input schema is not a JSON object: %.60s", schema)
	}
	root := branch{inAllOf: true}
	_ = json.Unmarshal(top["properties"], &root.Properties)
	_ = json.Unmarshal(top["required"], &root.Required)
	branches := []branch{root}
	changed := string(top["type"]) != `"object"` || root.Properties == nil
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		var list []json.RawMessage
		_ = json.Unmarshal(top[word], &list) // ignore anything but a list
		for _, raw := range list {
			b := branch{inAllOf: word == "allOf"}
			if json.Unmarshal(raw, &b) == nil { // a branch may be true or false
				branches = append(branches, b)
			}
		}
		refused = append(refused, word)
	}
	for _, word := range refused {
		changed = changed || top[word] != nil
		delete(top, word)
	}
	if !changed {
		return schema, nil
	}
	merge(top, branches)
	return json.Marshal(top)
}

// merge sets the properties of all branches. A property is required if an allOf or every alternative requires it.
func merge(top map[string]json.RawMessage, branches []branch) {
	properties := map[string]json.RawMessage{}
	var required, either []string // by an allOf; by every alternative
	hasAlternative := false
	for _, b := range branches {
		for name, schema := range b.Properties {
			if properties[name] == nil {
				properties[name] = schema
			}
		}
		switch {
		case b.inAllOf:
			required = append(required, b.Required...)
		case !hasAlternative:
			either, hasAlternative = slices.Clone(b.Required), true
		default:
			either = slices.DeleteFunc(either, func(name string) bool { return !slices.Contains(b.Required, name) })
		}
	}
	top["type"] = json.RawMessage(`"object"`)
	top["properties"], _ = json.Marshal(properties) // cannot fail: the members were valid JSON
	delete(top, "required")
	if required = slices.Compact(slices.Sorted(slices.Values(append(required, either...)))); len(required) > 0 {
		top["required"], _ = json.Marshal(required) // strings always encode
	}
}
