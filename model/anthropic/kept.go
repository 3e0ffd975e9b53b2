package anthropic

import (
	"encoding/json"
	"maps"
	"strings"

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
func (e *encoder) kept(m *message.Message, calls []*message.ToolCall) (blocks []json.RawMessage, ok bool) {
	k := e.keptAnswer(m)
	if k == nil {
		return nil, false
	}
	text, thoughts := textsOf(m)
	withThinking := !e.refused.withoutThinking.Has(m) && k.Prefix == e.sum() && k.Thoughts == provider.Hash(thoughts)
	e.keptThinking = e.keptThinking || withThinking
	for _, b := range k.Blocks {
		kind := jsonString(b.Block["type"])
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
			b.Block["text"] = marshal(part)
		case "thinking":
			if !withThinking {
				continue
			}
			if b.Size < 0 || b.Size > len(thoughts) {
				return nil, false
			}
			b.Block["thinking"] = marshal(thoughts[:b.Size])
			thoughts = thoughts[b.Size:]
			if b.Block["signature"] == nil {
				continue
			}
		case "redacted_thinking":
			if !withThinking {
				continue
			}
		case "tool_use":
			if len(calls) == 0 || jsonString(b.Block["name"]) != wireName(calls[0].Name) {
				return nil, false
			}
			b.Block["name"] = marshal(callName(calls[0]))
			b.Block["id"], b.Block["input"] = marshal(wireID(calls[0].ID)), e.input(calls[0])
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
	for n := len(blocks); n > 0 && strings.HasSuffix(kindOf(blocks[n-1]), "thinking"); n-- { // the API refuses thinking at the end
		blocks = blocks[:n-1]
	}
	return blocks, true
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
	k := keptAnswer{Endpoint: a.origin, Prefix: a.prefix, Thoughts: provider.Hash(a.thoughts.String())}
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

// soFar returns the blocks of a paused answer, with which the request that continues it ends. The
// API refuses thinking without a signature.
func (a *answer) soFar() (blocks []*json.RawMessage) {
	for _, b := range a.blocks {
		if b.broken || b.kind == "text" && textOf(string(b.text)) == "" || b.kind == "thinking" && b.signature == "" {
			continue
		}
		data := marshal(b.wire())
		blocks = append(blocks, &data)
	}
	return blocks
}

// jsonString returns the value of a JSON string, empty for any other JSON.
func jsonString(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}
