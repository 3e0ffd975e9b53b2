package openai

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
	"github.com/kitbag-go/kitbag/tool"
	sdk "github.com/sashabaranov/go-openai"
)

// A toolList is an encoded list of tools. All but lastOpening is immutable.
type toolList struct {
	wire        json.RawMessage         // an array; empty for no tools
	names       map[string]string       // the tools' names by their names on the wire
	lastOpening atomic.Pointer[opening] // of the last request with these tools

	// For a conversation in which tools were added: the list at its start, and the changes. Then names has only the added
	// tools, and wire is empty.
	initial *toolList
	changes []*model.ToolChange
}

// A toolCache keeps the tool lists of a protocol.
type toolCache struct {
	responses bool // encode for the Responses API

	empty toolList
	lists provider.ToolCache[toolList]
}

// get returns the encoded list of tools. It fails on a schema that is not an object, and on tools with the same name on
// the wire.
func (c *toolCache) get(tools []tool.Info, digest string) (*toolList, error) {
	if len(tools) == 0 {
		return &c.empty, nil
	}
	return c.lists.Get(tools, digest, c.newToolList)
}

func (c *toolCache) newToolList(tools []tool.Info) (*toolList, error) {
	list := &toolList{names: make(map[string]string, len(tools))}
	all := make([]any, 0, len(tools))
	for _, t := range tools {
		name := wireName(t.Name)
		if err := provider.CheckName(list.names, name, t.Name); err != nil {
			return nil, err
		}
		list.names[name] = t.Name
		f, err := newFunctionTool(name, t)
		if err != nil {
			return nil, err
		}
		if c.responses {
			all = append(all, f)
			continue
		}
		all = append(all, sdk.Tool{
			Type:     f.Type,
			Function: &sdk.FunctionDefinition{Name: name, Description: f.Description, Parameters: f.Parameters},
		})
	}
	wire, err := encodeJSON(all)
	list.wire = wire
	return list, err
}

// newFunctionTool returns a tool in the form of the Responses API.
func newFunctionTool(wire string, t tool.Info) (functionTool, error) {
	params, err := provider.ObjectSchema(t.Input, "enum", "not") // OpenAI refuses these keywords too
	if err != nil {
		return functionTool{}, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	return functionTool{sdk.ToolTypeFunction, wire, t.Description, params, false}, nil
}

// toolChoice returns the API's value for a choice, nil for the API's default. It fails on an unknown mode.
func toolChoice(c model.ToolChoice, responses bool) (any, error) {
	switch c.Mode {
	case model.ChoiceAuto:
		return nil, nil
	case model.ChoiceNone, model.ChoiceRequired:
		return c.Mode, nil
	case model.ChoiceNamed:
		if responses {
			return namedTool{sdk.ToolTypeFunction, wireName(c.Name)}, nil
		}
		return sdk.ToolChoice{Type: sdk.ToolTypeFunction, Function: sdk.ToolFunction{Name: wireName(c.Name)}}, nil
	}
	return nil, fmt.Errorf("unknown tool choice %q; use one of the model.Choice constants", c.Mode)
}

// toolName returns the name of the tool with a name on the wire. A name that no tool has is returned unchanged: the
// result of the call will list the existing names.
func (l *toolList) toolName(wire string) string {
	if name, ok := l.names[wire]; ok {
		return name
	}
	if l.initial != nil {
		return l.initial.toolName(wire)
	}
	return wire
}

// maxName is the API's limit on names, in bytes.
const maxName = 64

func wireName(name string) string { return provider.WireName(name, maxName) }
