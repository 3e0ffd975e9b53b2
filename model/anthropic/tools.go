package anthropic

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
)

// maxToolLists is how many encoded tool lists are kept.
const maxToolLists = 64

// A toolList is an encoded list of tools. It does not change once it is made.
type toolList struct {
	wire  []json.RawMessage
	names map[string]string // the name on the wire → the tool's own
}

// toolCache keeps tool lists by the digests that requests give them. That equal digests
// mean equal tools is the caller's promise; see model.Request. It is safe for concurrent
// use.
type toolCache struct {
	mu    sync.Mutex
	lists map[string]*toolList
}

// get returns encoded tools. Without a digest they are not kept.
func (c *toolCache) get(tools []tool.Info, digest string) (*toolList, error) {
	if digest == "" {
		return newToolList(tools)
	}
	c.mu.Lock()
	list := c.lists[digest]
	c.mu.Unlock()
	if list != nil {
		return list, nil
	}
	list, err := newToolList(tools)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Emptying it whole is simple, and happens to programs only that change
	// their tools all the time.
	if c.lists == nil || len(c.lists) >= maxToolLists {
		c.lists = map[string]*toolList{}
	}
	c.lists[digest] = list
	return list, nil
}

// newToolList encodes tools, in their order. It fails on a schema that is not an object, and on two names
// that become one.
func newToolList(tools []tool.Info) (*toolList, error) {
	list := &toolList{names: make(map[string]string, len(tools))}
	for i := range tools {
		name := wireName(tools[i].Name)
		if other, ok := list.names[name]; ok {
			return nil, fmt.Errorf("tools %q and %q are both called %q on the wire, which allows letters, digits, _ and - only; rename one", other, tools[i].Name, name)
		}
		list.names[name] = tools[i].Name
		wire, err := toolParam(&tools[i])
		if err != nil {
			return nil, err
		}
		list.wire = append(list.wire, wire)
	}
	return list, nil
}

// toolParam encodes a tool.
func toolParam(t *tool.Info) (json.RawMessage, error) {
	schema, err := inputSchema(t.Input)
	if err != nil {
		return nil, fmt.Errorf("tool %q: %w", t.Name, err)
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

// inputSchema returns a schema as the API wants it: of an object, and without oneOf, allOf and anyOf at the top.
// A schema that has none of them is left as it is.
func inputSchema(schema json.RawMessage) (json.RawMessage, error) {
	if len(schema) == 0 || string(schema) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`), nil
	}
	var top map[string]json.RawMessage
	if err := json.Unmarshal(schema, &top); err != nil || top == nil {
		return nil, fmt.Errorf("its input schema is not a JSON object: %.60s", schema)
	}
	var branches []branch
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		var list []json.RawMessage
		_ = json.Unmarshal(top[word], &list) // what is not a list says nothing
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
	all        bool // in an allOf: it must hold
}

// merge adds to a schema what its branches say of properties: all of them, of which those are required that
// are in each alternative. It allows more than the branches did; the tool checks its arguments itself.
func merge(top map[string]json.RawMessage, branches []branch) error {
	var own branch
	own.all = true
	_ = json.Unmarshal(top["properties"], &own.Properties)
	_ = json.Unmarshal(top["required"], &own.Required)
	properties := map[string]json.RawMessage{}
	var required []string // by those that must hold
	var either []string   // by each of the alternatives
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
	required = append(required, either...)
	slices.Sort(required)
	required = slices.Compact(required)
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

// toolChoice returns a choice as the API has it. It fails on a mode that is not known.
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
		return p, fmt.Errorf("tool choice %q is not known", c.Mode)
	}
	return p, nil
}

// ownName returns the name of the tool that the model calls by a wire name. Names that
// no tool has are passed on: the result of the call says what names there are.
func ownName(names map[string]string, wire string) string {
	if own, ok := names[wire]; ok {
		return own
	}
	return wire
}

// maxName is the API's limit on names, in bytes.
const maxName = 128

// wireName returns the name by which a tool is known on the wire: what the API does not
// allow becomes "_", and the end of a name that is too long a hash of it. It depends on
// the name alone, so that a call in an old message is always encoded alike.
func wireName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if !isNameByte(c) {
			b[i] = '_'
		}
	}
	if len(b) > maxName {
		b = append(append(b[:maxName-8], '_'), hashOf(name)...)
	}
	return string(b)
}

// wireID returns the id by which a call is known on the wire. One that has to be changed ends with a hash,
// since another id may become the same otherwise.
func wireID(id string) string {
	b := []byte(id)
	legal := true
	for i, c := range b {
		if !isNameByte(c) {
			b[i], legal = '_', false
		}
	}
	if legal {
		return id
	}
	return string(b) + "_" + hashOf(id)
}

// hashOf returns a hash of s, of at most seven digits to the base 36.
func hashOf(s string) string {
	h := fnv.New32a()
	h.Write([]byte(s))
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// isNameByte reports whether the API allows c in names and ids.
func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
