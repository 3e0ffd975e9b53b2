package anthropic

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/kitbag-go/kitbag/message"
)

// This file keeps what the blocks of an answer have that a message has no place for: signatures, redacted
// thinking, citations, the blocks of the server's tools, and the order. The message itself is the truth about
// texts, thinking and calls; where it was edited, what was kept no longer fits and is left out.

// A keptAnswer is the Extra of the last thinking of a message.
type keptAnswer struct {
	Endpoint string      `json:"endpoint"` // and model, which alone may read it
	Prefix   string      `json:"prefix"`   // identifies all that came before the answer
	Thoughts string      `json:"thoughts"` // a hash of the message's thinking
	Blocks   []keptBlock `json:"blocks"`
}

// A keptBlock is a block of an answer without what the message holds: the next Size bytes of its text or of its
// thinking, or its next call. One without a Block is text that was put between two blocks.
type keptBlock struct {
	Block map[string]json.RawMessage `json:"block,omitempty"`
	Size  int                        `json:"size,omitempty"`
}

// kept returns the blocks that a message was made of, false if they are not known or do not fit it. Thinking is
// left out if anything before it is not what it was.
func (e *encoder) kept(m *message.Message, calls []*message.ToolCall) (blocks []json.RawMessage, ok bool) {
	k := e.keptAnswer(m)
	if k == nil {
		return nil, false
	}
	text, thoughts := textsOf(m)
	thinks := !e.refuses.hasLost(m) && k.Prefix == e.sum() && k.Thoughts == hashOf(thoughts)
	for _, b := range k.Blocks {
		kind := word(b.Block["type"])
		switch kind {
		case "", "text":
			if b.Size < 0 || b.Size > len(text) {
				return nil, false
			}
			part := textOf(text[:b.Size])
			text = text[b.Size:]
			if kind == "" || part == "" {
				continue
			}
			b.Block["text"] = quote(part)
		case "thinking":
			if !thinks {
				continue
			}
			if b.Size < 0 || b.Size > len(thoughts) {
				return nil, false
			}
			b.Block["thinking"] = quote(thoughts[:b.Size])
			thoughts = thoughts[b.Size:]
			if b.Block["signature"] == nil {
				continue
			}
		case "redacted_thinking":
			if !thinks {
				continue
			}
		case "tool_use":
			if len(calls) == 0 || word(b.Block["name"]) != wireName(calls[0].Name) {
				return nil, false
			}
			b.Block["name"] = quote(callName(calls[0]))
			b.Block["id"], b.Block["input"] = quote(wireID(calls[0].ID)), callInput(calls[0].Input)
			calls = calls[1:]
		}
		data, err := json.Marshal(b.Block)
		if err != nil {
			return nil, false
		}
		blocks = append(blocks, data)
	}
	if text != "" || len(calls) > 0 {
		return nil, false
	}
	for n := len(blocks); n > 0 && strings.HasSuffix(kindOf(blocks[n-1]), "thinking"); n-- { // the API refuses it at the end
		blocks = blocks[:n-1]
	}
	return blocks, true
}

// keptAnswer returns the Extra of a message that came from here, nil if there is none.
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
	var said, thought strings.Builder
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			said.WriteString(b.Text)
		case *message.Thinking:
			thought.WriteString(b.Text)
		}
	}
	return said.String(), thought.String()
}

// extra returns the Extra that keeps the blocks of an answer, nil if the message says as much: texts
// without citations, and calls.
func (a *answer) extra() json.RawMessage {
	k := keptAnswer{Endpoint: a.origin, Prefix: a.prefix, Thoughts: hashOf(a.thoughts.String())}
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
	data, err := json.Marshal(k)
	if err != nil {
		return nil // cannot be: each member was valid JSON
	}
	return data
}

// wire returns the block as it goes back. The API refuses thinking without a signature.
func (b *answerBlock) wire() map[string]json.RawMessage {
	members := maps.Clone(b.members)
	switch b.kind {
	case "text":
		members["text"] = quote(string(b.text))
		delete(members, "citations") // null, or empty
		if len(b.citations) > 0 {
			members["citations"] = list(b.citations)
		}
	case "thinking":
		members["thinking"] = quote(string(b.text))
		delete(members, "signature")
		if b.signature != "" {
			members["signature"] = quote(b.signature)
		}
	default:
		if len(b.args) > 0 {
			members["input"] = callInput(b.args)
		}
	}
	return members
}

// soFar returns the blocks of an answer that is paused, as the request that continues it ends with them.
func (a *answer) soFar() (blocks []*json.RawMessage) {
	for _, b := range a.blocks {
		if b.broken || b.kind == "text" && textOf(string(b.text)) == "" || b.kind == "thinking" && b.signature == "" {
			continue
		}
		data, err := json.Marshal(b.wire())
		if err != nil {
			continue // cannot be: each member was valid JSON
		}
		raw := json.RawMessage(data)
		blocks = append(blocks, &raw)
	}
	return blocks
}

// quote returns s as a JSON string.
func quote(s string) json.RawMessage {
	data, _ := json.Marshal(s) // a string always encodes
	return data
}

// list returns items as a JSON array.
func list(items []json.RawMessage) json.RawMessage {
	data, err := json.Marshal(items)
	if err != nil {
		return json.RawMessage("[]") // cannot be: each was valid JSON
	}
	return data
}

// word returns a string, empty for anything else.
func word(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}
