package openai

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	sdk "github.com/sashabaranov/go-openai"
)

// maxToolLists is the number of encoded tool lists that are kept.
const maxToolLists = 64

// A toolList is an encoded list of tools. Only last changes after it is made.
type toolList struct {
	wire json.RawMessage         // an array; empty for no tools
	own  map[string]string       // from the name on the wire to the tool's own
	last atomic.Pointer[opening] // of the last request with these tools

	// Of a list that is the head of a request and what was added later: own has those names only.
	head    *toolList
	changes []*model.ToolChange
}

// A toolCache keeps tool lists by the digests in requests. The caller must use equal digests only for
// equal tools; see model.Request. It is safe for concurrent use.
type toolCache struct {
	responses bool // encode for the Responses API

	none  toolList // of requests without tools
	mu    sync.Mutex
	lists map[string]*toolList
}

// get returns the encoded list of tools. Without a digest it is encoded each time.
// It fails on a schema that is not an object, and on two names that are the same on the wire.
func (c *toolCache) get(tools []tool.Info, digest string) (*toolList, error) {
	switch {
	case len(tools) == 0:
		return &c.none, nil
	case digest == "":
		return c.newToolList(tools)
	}
	c.mu.Lock()
	list := c.lists[digest]
	c.mu.Unlock()
	if list != nil {
		return list, nil
	}
	list, err := c.newToolList(tools)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Dropping all lists is simple, and only happens in programs whose tools change
	// all the time.
	if c.lists == nil || len(c.lists) >= maxToolLists {
		c.lists = map[string]*toolList{}
	}
	c.lists[digest] = list
	return list, nil
}

// newToolList encodes tools, in their order.
func (c *toolCache) newToolList(tools []tool.Info) (*toolList, error) {
	list := &toolList{own: make(map[string]string, len(tools))}
	all := make([]any, 0, len(tools))
	for _, t := range tools {
		name := wireName(t.Name)
		if err := checkWireName(list.own, name, t.Name); err != nil {
			return nil, err
		}
		list.own[name] = t.Name
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
	wire, err := encoded(all)
	list.wire = wire
	return list, err
}

// checkWireName returns an error if another tool has the name on the wire.
func checkWireName(taken map[string]string, wire, name string) error {
	if other, ok := taken[wire]; ok {
		return fmt.Errorf("tools %q and %q are both sent as %q, as the API allows only letters, digits, _ and - in names; rename one", other, name, wire)
	}
	return nil
}

// newFunctionTool returns a tool as the Responses API has it.
func newFunctionTool(wire string, t tool.Info) (functionTool, error) {
	params, err := parameters(t.Input)
	if err != nil {
		return functionTool{}, fmt.Errorf("tool %q: %w", t.Name, err)
	}
	return functionTool{sdk.ToolTypeFunction, wire, t.Description, params, false}, nil
}

// parameters returns a schema as the API requires it: an object that has
// "type" and "properties", which OpenAI rejects schemas without. Existing members are
// kept byte for byte.
func parameters(schema json.RawMessage) (json.RawMessage, error) {
	if len(schema) == 0 || string(schema) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`), nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil || top == nil {
		return nil, fmt.Errorf("input schema is not a JSON object: %.60s", schema)
	}
	add := ""
	if _, ok := top["type"]; !ok {
		add += `,"type":"object"`
	}
	if _, ok := top["properties"]; !ok {
		add += `,"properties":{}`
	}
	if add == "" {
		return schema, nil
	}
	if len(top) == 0 {
		return json.RawMessage("{" + add[1:] + "}"), nil
	}
	end := len(schema) - 1
	for schema[end] != '}' {
		end--
	}
	return json.RawMessage(string(schema[:end]) + add + "}"), nil
}

// toolChoice returns the API's value for a choice, nil for the default. It fails on an unknown mode.
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

// ownName returns the tool's own name for a wire name. An unknown name
// is returned unchanged: the result of the call will list the known names.
func (l *toolList) ownName(wire string) string {
	if own, ok := l.own[wire]; ok {
		return own
	}
	if l.head != nil {
		return l.head.ownName(wire)
	}
	return wire
}

// maxName is the API's limit on names, in bytes.
const maxName = 64

// wireName returns the name of a tool on the wire: each character that the API does not
// allow becomes "_", and the end of a name that is too long is replaced with a hash. It depends
// only on the name, so that a call in an old message is always encoded the same way.
func wireName(name string) string {
	legal := len(name) <= maxName
	for i := 0; legal && i < len(name); i++ {
		legal = isNameByte(name[i])
	}
	if legal {
		return name
	}
	b := []byte(name)
	for i, c := range b {
		if !isNameByte(c) {
			b[i] = '_'
		}
	}
	if len(b) > maxName { // 32 bits are at most seven digits to the base 36
		h := fnv.New32a()
		h.Write([]byte(name))
		sum := strconv.FormatUint(uint64(h.Sum32()), 36)
		b = append(append(b[:maxName-8], '_'), sum...)
	}
	return string(b)
}

// isNameByte reports whether the API allows c in a name.
func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
