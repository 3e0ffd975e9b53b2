package anthropic

import (
	"encoding/json"
	"fmt"
	"slices"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
	"github.com/kitbag-go/kitbag/tool"
)

// A toolList is an encoded list of tools. It does not change once it is made.
type toolList struct {
	wire    []json.RawMessage
	names   map[string]string  // tool names by the names on the wire
	renames map[string]renames // by tool name, of tools that have any
}

// newToolList encodes tools, in their order. It fails if a schema is not an object, or if two tools have the same
// name on the wire.
func newToolList(tools []tool.Info) (*toolList, error) {
	list := &toolList{names: make(map[string]string, len(tools)), renames: map[string]renames{}}
	for i := range tools {
		name := wireName(tools[i].Name)
		if err := provider.CheckName(list.names, name, tools[i].Name); err != nil {
			return nil, err
		}
		list.names[name] = tools[i].Name
		wire, err := toolParam(&tools[i], list.renames)
		if err != nil {
			return nil, err
		}
		list.wire = append(list.wire, wire)
	}
	return list, nil
}

// toolParam encodes a tool, and puts its renames into all.
func toolParam(t *tool.Info, all map[string]renames) (json.RawMessage, error) {
	schema, err := inputSchema(t.Input)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	schema, r := renameProperties(schema)
	if len(r.toWire) > 0 {
		all[t.Name] = r
	}
	p := sdk.BetaToolParam{Name: wireName(t.Name), InputSchema: param.Override[sdk.BetaToolInputSchemaParam](schema)}
	if t.Description != "" {
		p.Description = sdk.String(t.Description)
	}
	wire, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	return wire, nil
}

// inputSchema returns a schema in the form that the API accepts: its type is object, without oneOf, allOf and anyOf
// at the top. A schema that has this form already is returned unchanged.
func inputSchema(schema json.RawMessage) (json.RawMessage, error) {
	if len(schema) == 0 || string(schema) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`), nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil || top == nil {
		return nil, fmt.Errorf("input schema is not a JSON object: %.60s", schema)
	}
	var branches []branch
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		var list []json.RawMessage
		_ = json.Unmarshal(top[word], &list) // ignore anything but a list
		for _, raw := range list {
			b := branch{all: word == "allOf"}
			if json.Unmarshal(raw, &b) == nil { // a branch may be true or false
				branches = append(branches, b)
			}
		}
	}
	if string(top["type"]) == `"object"` && top["allOf"] == nil && top["anyOf"] == nil && top["oneOf"] == nil {
		return schema, nil
	}
	top["type"] = json.RawMessage(`"object"`)
	if err := merge(top, branches); err != nil {
		return nil, err
	}
	delete(top, "allOf")
	delete(top, "anyOf")
	delete(top, "oneOf")
	return json.Marshal(top)
}

// A branch is a schema in an allOf, anyOf or oneOf.
type branch struct {
	Properties map[string]json.RawMessage
	Required   []string
	all        bool // in an allOf: its required members are required
}

// merge adds the properties of the branches to a schema. A property is required if every alternative requires it.
// The result allows more than the branches did; the tool validates its arguments itself.
func merge(top map[string]json.RawMessage, branches []branch) error {
	own := branch{all: true}
	_ = json.Unmarshal(top["properties"], &own.Properties)
	_ = json.Unmarshal(top["required"], &own.Required)
	properties := map[string]json.RawMessage{}
	var required []string // by allOf
	var either []string   // by every alternative
	alternatives := 0
	for _, b := range append([]branch{own}, branches...) {
		for name, schema := range b.Properties {
			if properties[name] == nil {
				properties[name] = schema
			}
		}
		switch {
		case b.all:
			required = append(required, b.Required...)
		case alternatives == 0:
			either = slices.Clone(b.Required)
			alternatives++
		default:
			either = slices.DeleteFunc(either, func(name string) bool { return !slices.Contains(b.Required, name) })
		}
	}
	required = slices.Compact(slices.Sorted(slices.Values(append(required, either...))))
	for name, v := range map[string]any{"properties": properties, "required": required} {
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		top[name] = data
	}
	if len(required) == 0 {
		delete(top, "required")
	}
	return nil
}

// toolChoice converts a choice to the API's form. It fails on an unknown mode.
func toolChoice(c model.ToolChoice) (p sdk.BetaToolChoiceUnionParam, err error) {
	switch c.Mode {
	case model.ChoiceAuto:
	case model.ChoiceNone:
		p.OfNone = &sdk.BetaToolChoiceNoneParam{}
	case model.ChoiceRequired:
		p.OfAny = &sdk.BetaToolChoiceAnyParam{}
	case model.ChoiceNamed:
		p.OfTool = &sdk.BetaToolChoiceToolParam{Name: wireName(c.Name)}
	default:
		return p, fmt.Errorf("unknown tool choice %q; use one of the model.Choice constants", c.Mode)
	}
	return p, nil
}

// maxName is the API's limit on names, in bytes.
const maxName = 128

func wireName(name string) string { return provider.WireName(name, maxName) }

// wireID returns the id of a call on the wire. An id that must be changed gets a hash at its end, so that it
// differs from other ids.
func wireID(id string) string {
	wire := provider.WireName(id, len(id))
	if wire != id {
		wire += "_" + provider.Hash(id)
	}
	return wire
}
