package anthropic

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// This file renames properties of tools whose names the API refuses, such as "$top". A property has
// the same new name everywhere in a tool's schema, in its arguments and in its earlier calls.

// maxProperty is the API's limit on the names of properties, in bytes.
const maxProperty = 64

// renames has the properties of a tool that have other names on the wire. Most tools have none.
type renames struct{ toWire, toOwn map[string]string }

// renameProperties returns a schema with names that the API accepts.
func renameProperties(schema json.RawMessage) (json.RawMessage, renames) {
	used, r := map[string]bool{}, renames{map[string]string{}, map[string]string{}}
	walk := schemaWalk{
		name:  func(name string) string { used[name] = true; return name },
		value: func(v json.RawMessage) json.RawMessage { return v },
	}
	walk.schema(schema) // changes nothing
	for _, own := range slices.Sorted(maps.Keys(used)) {
		legal := legalProperty(own)
		if own == legal {
			continue
		}
		name := legal
		for n := 2; used[name]; n++ {
			name = fmt.Sprintf("%.60s_%d", legal, n)
		}
		used[name], r.toWire[own], r.toOwn[name] = true, name, own
	}
	if len(r.toWire) == 0 {
		return schema, r
	}
	walk.name = func(name string) string { return renamed(r.toWire, name) }
	walk.value = func(v json.RawMessage) json.RawMessage { return renameKeys(v, r.toWire) }
	return walk.schema(schema), r
}

// legalProperty returns a name in which each byte that the API refuses is "_".
func legalProperty(name string) string {
	b := []byte(name[:min(len(name), maxProperty)])
	for i, c := range b {
		if c != '.' && wireName(string(c)) != string(c) {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "_"
	}
	return string(b)
}

// renamed returns the name in names for a name, or the name itself.
func renamed(names map[string]string, name string) string {
	if other, ok := names[name]; ok {
		return other
	}
	return name
}

// renameKeys renames the members of all objects in a value, such as the arguments of a call.
// Invalid JSON is returned unchanged.
func renameKeys(value json.RawMessage, names map[string]string) json.RawMessage {
	if len(names) == 0 {
		return value
	}
	return mapJSON(value, func(item json.RawMessage) json.RawMessage { return renameKeys(item, names) },
		func(o map[string]json.RawMessage) {
			for _, name := range slices.Sorted(maps.Keys(o)) {
				v := renameKeys(o[name], names)
				to := renamed(names, name)
				if _, taken := o[to]; taken {
					to = name
				}
				delete(o, name)
				o[to] = v
			}
		})
}

// mapJSON returns a value with a function applied to the items of a list, or to the members of an
// object.
func mapJSON(
	value json.RawMessage, item func(json.RawMessage) json.RawMessage, object func(map[string]json.RawMessage),
) json.RawMessage {
	var items []json.RawMessage
	if json.Unmarshal(value, &items) == nil && items != nil {
		for i := range items {
			items[i] = item(items[i])
		}
		return marshal(items)
	}
	var o map[string]json.RawMessage
	if json.Unmarshal(value, &o) != nil || o == nil {
		return value
	}
	object(o)
	return marshal(o)
}

// A schemaWalk calls name for each name of a property in a schema, and value for each value that a
// call may have, and replaces them with the results.
type schemaWalk struct {
	name  func(string) string
	value func(json.RawMessage) json.RawMessage
}

// schema returns a schema, or a list of schemas, with the names replaced.
func (w *schemaWalk) schema(raw json.RawMessage) json.RawMessage {
	return mapJSON(raw, w.schema, func(o map[string]json.RawMessage) {
		for keyword, v := range o {
			switch keyword {
			case "properties", "dependentRequired", "dependentSchemas", "dependencies":
				o[keyword] = w.members(v, w.name)
			case "$defs", "definitions", "patternProperties":
				o[keyword] = w.members(v, func(name string) string { return name })
			case "required":
				o[keyword] = w.names(v)
			case "default", "const", "enum", "examples":
				o[keyword] = w.value(v)
			case "$ref":
				o[keyword] = w.reference(v)
			case "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "else", "if",
				"items", "not", "oneOf", "prefixItems", "then", "unevaluatedItems", "unevaluatedProperties":
				o[keyword] = w.schema(v)
			}
		}
	})
}

// members replaces the names of an object whose members are schemas or lists of names.
func (w *schemaWalk) members(raw json.RawMessage, rename func(string) string) json.RawMessage {
	return mapJSON(raw, w.schema, func(o map[string]json.RawMessage) {
		members := maps.Clone(o)
		clear(o)
		for name, v := range members {
			if v[0] == '[' {
				v = w.names(v)
			} else {
				v = w.schema(v)
			}
			o[rename(name)] = v
		}
	})
}

func (w *schemaWalk) names(raw json.RawMessage) json.RawMessage {
	return mapJSON(raw, func(item json.RawMessage) json.RawMessage {
		var name string
		if json.Unmarshal(item, &name) != nil {
			return item
		}
		return marshal(w.name(name))
	}, func(map[string]json.RawMessage) {})
}

// pointerUnescapes is for a name in a JSON pointer (RFC 6901, section 4).
var pointerUnescapes = strings.NewReplacer("~0", "~", "~1", "/")

// reference replaces the names in a pointer to a part of the schema, such as "#/properties/$top".
// The pointer is in a URL, in which any byte may be escaped.
func (w *schemaWalk) reference(raw json.RawMessage) json.RawMessage {
	parts := strings.Split(jsonString(raw), "/")
	for i := 2; i < len(parts); i++ {
		own, err := url.PathUnescape(parts[i])
		if parts[i-1] != "properties" || err != nil {
			continue
		}
		own = pointerUnescapes.Replace(own)
		if name := w.name(own); name != own {
			parts[i] = name // which needs no escapes
		}
	}
	return marshal(strings.Join(parts, "/"))
}
