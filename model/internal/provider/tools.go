package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
)

// maxToolLists is the maximum number of lists in a ToolCache.
const maxToolLists = 64

// A ToolCache keeps encoded tool lists by [model.Request.Digest]: equal digests mean equal tools. It is safe for
// concurrent use.
type ToolCache[L any] struct {
	mu    sync.Mutex
	lists map[string]*L
}

// Get returns the encoded list of tools. A list without a digest is encoded each time.
func (c *ToolCache[L]) Get(tools []tool.Info, digest string, encode func([]tool.Info) (*L, error)) (*L, error) {
	if digest == "" {
		return encode(tools)
	}
	c.mu.Lock()
	list := c.lists[digest]
	c.mu.Unlock()
	if list != nil {
		return list, nil
	}
	list, err := encode(tools)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// Dropping all lists is simple, and happens only in programs whose tools keep changing.
	if c.lists == nil || len(c.lists) >= maxToolLists {
		c.lists = map[string]*L{}
	}
	c.lists[digest] = list
	return list, nil
}

// ToolsOf returns the tools at the head of a request, their digest, and the changes to them in the conversation. If
// there are no changes, or they cannot be sent, the head has all tools that may be called. serverTools is the number of
// tools that the server runs: changes can only be sent after a head with at least one tool.
func ToolsOf(req *model.Request, supportsChanges bool, serverTools int) (head []tool.Info, digest string, changes []*model.ToolChange) {
	if !supportsChanges || req.Reveal == nil || req.Extra["tools"] != nil { // this Extra replaces all tools
		return req.Tools, req.Digest, nil
	}
	reveal := req.Revealed()
	isChoice := func(t tool.Info) bool { return t.Name == req.Choice.Name }
	if len(reveal.Head)+serverTools == 0 || req.Choice.Mode == model.ChoiceNamed && !slices.ContainsFunc(reveal.Head, isChoice) {
		return req.Tools, req.Digest, nil // the APIs require a chosen tool to be in the head
	}
	return reveal.Head, reveal.Digest, reveal.Changes
}

// CheckOutput returns an error if the schema of an answer is not a JSON object.
func CheckOutput(out *model.OutputSchema) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(out.Schema, &object); err != nil || object == nil {
		return fmt.Errorf("output schema %q is not a JSON object: %.60s", out.Name, out.Schema)
	}
	return nil
}

// Arguments returns the input of a call, or an empty object if the model sent anything but a JSON object, which the
// conversation keeps but the APIs reject.
func Arguments(input json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(input)
	if !bytes.HasPrefix(trimmed, []byte("{")) || !json.Valid(trimmed) {
		return json.RawMessage("{}")
	}
	return trimmed
}

// CheckName returns an error if another tool has the same name on the wire. names has the tools' own names by those on
// the wire.
func CheckName(names map[string]string, wire, name string) error {
	if other, ok := names[wire]; ok {
		return fmt.Errorf("tools %q and %q are both sent as %q, as the API allows only letters, digits, _ and - in names; rename one", other, name, wire)
	}
	return nil
}

// WireName returns the name of a tool on the wire: each byte that the API does not allow becomes "_", and the end of
// a name that is longer than limit bytes is replaced with a hash. It depends only on the name, so that a call in an
// old message is always encoded the same way.
func WireName(name string, limit int) string {
	b := []byte(name)
	for i, c := range b {
		if !isNameByte(c) {
			b[i] = '_'
		}
	}
	if len(b) > limit {
		b = append(append(b[:limit-len("_1234567")], '_'), Hash(name)...)
	}
	return string(b)
}

// Hash returns a hash of s: at most seven digits in base 36.
func Hash(s string) string {
	h := fnv.New32a()
	h.Write([]byte(s))
	return strconv.FormatUint(uint64(h.Sum32()), 36)
}

// isNameByte reports whether the APIs allow c in names.
func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
