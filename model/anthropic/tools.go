package anthropic

import (
	"encoding/json"
	"fmt"

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

// newToolList encodes tools, in their order. It fails if a schema is not an object, or if two tools
// have the same name on the wire.
func newToolList(tools []tool.Info) (*toolList, error) {
	list := &toolList{names: make(map[string]string, len(tools)), renames: map[string]renames{}}
	for i := range tools {
		name := wireName(tools[i].Name)
		if err := provider.CheckName(list.names, name, tools[i].Name); err != nil {
			return nil, err
		}
		list.names[name] = tools[i].Name
		wire, err := encodeTool(&tools[i], list.renames)
		if err != nil {
			return nil, err
		}
		list.wire = append(list.wire, wire)
	}
	return list, nil
}

// encodeTool encodes a tool, and puts its renames into all.
func encodeTool(t *tool.Info, all map[string]renames) (json.RawMessage, error) {
	schema, err := provider.ObjectSchema(t.Input)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	schema, r := renameProperties(schema)
	if len(r.toWire) > 0 {
		all[t.Name] = r
	}
	return marshal(wireTool{schema, wireName(t.Name), t.Description}), nil
}

// encodeChoice converts a choice to the API's form, nil for the API's default. It fails on an
// unknown mode.
func encodeChoice(c model.ToolChoice) (*wireChoice, error) {
	switch c.Mode {
	case model.ChoiceAuto:
		return nil, nil
	case model.ChoiceNone:
		return &wireChoice{Type: "none"}, nil
	case model.ChoiceRequired:
		return &wireChoice{Type: "any"}, nil
	case model.ChoiceNamed:
		return &wireChoice{Name: wireName(c.Name), Type: "tool"}, nil
	}
	return nil, fmt.Errorf("unknown tool choice %q; use one of the model.Choice constants", c.Mode)
}

// maxName is the API's limit on names, in bytes.
const maxName = 128

func wireName(name string) string { return provider.WireName(name, maxName) }

// wireID returns the id of a call on the wire. An id that must be changed gets a hash at its end,
// so that it differs from other ids.
func wireID(id string) string {
	wire := provider.WireName(id, len(id))
	if wire != id {
		wire += "_" + provider.Hash(id)
	}
	return wire
}
