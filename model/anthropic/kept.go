package anthropic

import (
	"encoding/json"
	"maps"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

// This file keeps the parts of an answer that a message cannot hold: signatures, redacted thinking,
// citations, blocks of server tools, and the order of blocks. The message itself is authoritative
// for texts, thinking and calls: if it was edited, the kept parts no longer fit and are left out.

// A keptAnswer is the Extra of the last thinking of a message.
type keptAnswer struct {
	Endpoint string      `json:"endpoint"` // host and model; no other model may read it
	Prefix   string      `json:"prefix"`   // identifies everything before the answer
	Thoughts string      `json:"thoughts"` // a hash of the message's thinking
	Blocks   []keptBlock `json:"blocks"`
}

// A keptBlock is a block of an answer without its content, which is in the message: the next Size
// bytes of text or thinking, or the next call. If Block is nil, the text is a blockBreak.
type keptBlock struct {
	Block map[string]json.RawMessage `json:"block,omitempty"`
	Size  int                        `json:"size,omitempty"`
}

// kept returns the original blocks of a message, or false if they were not kept or do not fit it.
// Thinking is left out if anything before it has changed.
func (e *encoder) kept(m *message.Message, calls []*message.ToolCall) ([]json.RawMessage, bool) {
	k := e.keptAnswer(m)
	if k == nil {
		return nil, false
	}
	rest := contents{calls: calls}
	rest.text, rest.thoughts = textsOf(m)
	isUnchanged := k.Prefix == e.sum() && k.Thoughts == provider.Hash(rest.thoughts)
	withThinking := isUnchanged && !e.refused.withoutThinking.Has(m)
	e.keptThinking = e.keptThinking || withThinking
	var blocks []json.RawMessage
	for _, b := range k.Blocks {
		if isThinking(jsonString(b.Block["type"])) && !withThinking {
			continue
		}
		block, ok := e.fill(b, &rest)
		if !ok {
			return nil, false
		}
		if block != nil {
			blocks = append(blocks, marshal(block))
		}
	}
	if rest.text != "" || len(rest.calls) > 0 {
		return nil, false
	}
	for n := len(blocks); n > 0 && isThinking(kindOf(blocks[n-1])); n-- {
		blocks = blocks[:n-1] // the API refuses thinking at the end
	}
	return blocks, true
}

// contents are the contents of a message that no kept block has yet.
type contents struct {
	text, thoughts string
	calls          []*message.ToolCall
}

// fill returns a kept block with its content, the first of rest, from which fill removes it. The
// block is nil if it cannot be sent. If the content does not fit the block, ok is false.
func (e *encoder) fill(b keptBlock, rest *contents) (block map[string]json.RawMessage, ok bool) {
	var part string
	switch jsonString(b.Block["type"]) {
	case "":
		part, ok = cut(&rest.text, b.Size)
		return nil, ok && part == blockBreak
	case "text":
		if part, ok = cut(&rest.text, b.Size); textOf(part) == "" {
			return nil, ok
		}
		b.Block["text"] = marshal(part)
		return b.Block, ok
	case "thinking":
		if part, ok = cut(&rest.thoughts, b.Size); b.Block["signature"] == nil {
			return nil, ok
		}
		b.Block["thinking"] = marshal(part)
		return b.Block, ok
	case "tool_use":
		if len(rest.calls) == 0 || jsonString(b.Block["name"]) != wireName(rest.calls[0].Name) {
			return nil, false
		}
		c := rest.calls[0]
		rest.calls = rest.calls[1:]
		b.Block["name"], b.Block["id"] = marshal(callName(c)), marshal(wireID(c.ID))
		b.Block["input"] = e.input(c)
	}
	return b.Block, true
}

// cut removes the first bytes of s and returns them. It fails if s has fewer.
func cut(s *string, size int) (part string, ok bool) {
	if size < 0 || size > len(*s) {
		return "", false
	}
	part, *s = (*s)[:size], (*s)[size:]
	return part, true
}

// keptAnswer returns the Extra of a message if this model made it, otherwise nil.
func (e *encoder) keptAnswer(m *message.Message) *keptAnswer {
	for _, b := range m.Blocks {
		t, ok := b.(*message.Thinking)
		if !ok || len(t.Extra) == 0 {
			continue
		}
		var k keptAnswer
		if json.Unmarshal(t.Extra, &k) == nil && k.Endpoint == e.origin && len(k.Blocks) > 0 {
			return &k
		}
	}
	return nil
}

// textsOf returns the text of a message and its thinking.
func textsOf(m *message.Message) (text, thoughts string) {
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			text += b.Text
		case *message.Thinking:
			thoughts += b.Text
		}
	}
	return text, thoughts
}

// extra returns the Extra with the blocks of an answer, or nil if the message alone is enough:
// texts without citations, and calls.
func (a *answer) extra() json.RawMessage {
	thoughts := provider.Hash(a.thoughts.String())
	k := keptAnswer{Endpoint: a.origin, Prefix: a.prefix, Thoughts: thoughts}
	plain := true
	for _, b := range a.blocks {
		if b.broken {
			continue
		}
		if b.gap > 0 {
			k.Blocks = append(k.Blocks, keptBlock{Size: b.gap})
		}
		members := b.wire()
		switch b.kind {
		case "text":
			delete(members, "text")
			plain = plain && len(members) == 1
		case "thinking":
			delete(members, "thinking")
			plain = plain && members["signature"] == nil
		case "tool_use":
			delete(members, "id")
			delete(members, "input")
			plain = plain && len(members) == 2
		default:
			plain = false
		}
		k.Blocks = append(k.Blocks, keptBlock{Block: members, Size: len(b.text)})
	}
	if plain {
		return nil
	}
	return marshal(k)
}

// wire returns the block in the form that is sent back.
func (b *answerBlock) wire() map[string]json.RawMessage {
	members := maps.Clone(b.members)
	switch b.kind {
	case "text":
		members["text"] = marshal(string(b.text))
		delete(members, "citations") // null, or empty
		if len(b.citations) > 0 {
			members["citations"] = marshal(b.citations)
		}
	case "thinking":
		members["thinking"] = marshal(string(b.text))
		delete(members, "signature")
		if b.signature != "" {
			members["signature"] = marshal(b.signature)
		}
	default:
		if len(b.args) > 0 {
			members["input"] = callInput(b.args)
		}
	}
	return members
}

// soFar returns the blocks of a paused answer, with which the request that continues it ends.
func (a *answer) soFar() (blocks []*json.RawMessage) {
	for _, b := range a.blocks {
		if b.sendable() {
			data := marshal(b.wire())
			blocks = append(blocks, &data)
		}
	}
	return blocks
}

// sendable reports whether the API accepts the block in a request. It refuses blank text, and
// thinking without a signature.
func (b *answerBlock) sendable() bool {
	switch {
	case b.broken:
		return false
	case b.kind == "text":
		return textOf(string(b.text)) != ""
	case b.kind == "thinking":
		return b.signature != ""
	}
	return true
}

// jsonString returns the value of a JSON string, empty for any other JSON.
func jsonString(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}
