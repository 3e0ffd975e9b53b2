package openai

import (
	"encoding/json"
	"slices"
	"strings"
	"weak"

	"github.com/kitbag-go/kitbag/message"
	sdk "github.com/sashabaranov/go-openai"
)

// This file writes messages as input items of the Responses API, and keeps what the items of an answer
// have and a message lacks: reasoning, order, ids and phases. The message itself is authoritative for
// texts and calls; if it was edited, the kept items no longer match and are left out.

// item appends an input item.
func (e *encoder) item(v any) {
	e.wire.WriteByte(',')
	e.object(v, nil)
}

func inputMessage(role string, content any) sdk.ResponseInputMessage {
	return sdk.ResponseInputMessage{Type: "message", Role: role, Content: content}
}

// A functionCall is an input item for a tool call.
type functionCall struct {
	Type      string `json:"type"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Arguments string `json:"arguments"`
}

// output appends the items of an assistant message, if possible those it came as.
func (e *encoder) output(m *message.Message, calls []*message.ToolCall) {
	if items := e.keptItems(m, calls); items != nil {
		for _, item := range items {
			e.item(item)
		}
		return
	}
	var text message.Blocks
	flush := func() {
		if s := assistantText(text); s != "" {
			e.item(inputMessage(sdk.ChatMessageRoleAssistant, s))
		}
		text = nil
	}
	for _, b := range m.Blocks {
		c, ok := b.(*message.ToolCall)
		if !ok {
			text = append(text, b)
			continue
		}
		flush()
		e.item(functionCall{"function_call", c.ID, callName(c), e.namespace(callName(c)), arguments(c.Input)})
	}
	flush()
}

// namespace returns the namespace of a call. The server puts a tool that was added later into a namespace of
// the same name, and resolves all calls against the tools of the request, whatever these were when the call was made.
func (e *encoder) namespace(wire string) string {
	if e.tools.isLate(wire) {
		return wire
	}
	return ""
}

func callName(c *message.ToolCall) string {
	if name := wireName(c.Name); name != "" {
		return name
	}
	return "unknown"
}

// keptMember is the member of an Extra with the items of an answer.
const keptMember = "items"

// A keptItem is an item of an answer without what the message has. Text is in parts, each with its
// length in the message's text; a part without a type is the break between two items.
type keptItem struct {
	Item  map[string]json.RawMessage `json:"item,omitempty"`
	Parts []keptPart                 `json:"parts,omitempty"`
}

type keptPart struct {
	Type string `json:"type,omitempty"`
	Size int    `json:"size"`
}

// hasKept reports whether items of an answer may have been kept.
func hasKept(m *message.Message) bool {
	return slices.ContainsFunc(m.Blocks, func(b message.Block) bool {
		t, ok := b.(*message.Thinking)
		return ok && len(t.Extra) > 0
	})
}

// keptItems returns the items that a message came as, nil if they are unknown or no longer match it.
func (e *encoder) keptItems(m *message.Message, calls []*message.ToolCall) (items []any) {
	if !hasKept(m) {
		return nil
	}
	if _, lost := e.lost.Load(weak.Make(m)); lost {
		return nil
	}
	var text strings.Builder
	var kept []keptItem
	for _, b := range m.Blocks {
		switch b := b.(type) {
		case *message.Text:
			text.WriteString(b.Text)
		case *message.Thinking:
			for _, mb := range e.extras(b.Extra) {
				if mb.name != keptMember {
					continue
				}
				var ok bool
				if kept, ok = decodeKept(mb.value); !ok {
					return nil
				}
			}
		}
	}
	left := text.String()
	for _, k := range kept {
		switch jsonString(k.Item["type"]) {
		case "": // not one that was kept here
			return nil
		case "message":
			k.Item["role"] = quote(sdk.ChatMessageRoleAssistant)
			content := []any{}
			for _, p := range k.Parts {
				if p.Size < 0 || p.Size > len(left) {
					return nil
				}
				if p.Type != "" && strings.TrimSpace(left[:p.Size]) != "" {
					content = append(content, textContent(p.Type, left[:p.Size]))
				}
				left = left[p.Size:]
			}
			switch {
			case len(content) > 0:
				k.Item["content"], _ = encoded(content) // text always encodes
			case k.Item["content"] == nil: // blank, and the API rejects reasoning without the item after it
				return nil
			}
		case "function_call":
			if len(calls) == 0 || string(k.Item["name"]) != string(quote(callName(calls[0]))) {
				return nil
			}
			k.Item["call_id"], k.Item["arguments"] = quote(calls[0].ID), quote(arguments(calls[0].Input))
			delete(k.Item, "namespace")
			if space := e.namespace(callName(calls[0])); space != "" {
				k.Item["namespace"] = quote(space)
			}
			calls = calls[1:]
		}
		items = append(items, k.Item)
	}
	if left != "" || len(calls) > 0 {
		return nil
	}
	return items
}

// textContent returns a content part of an assistant message.
func textContent(kind, text string) any {
	if kind == "refusal" {
		return map[string]string{"type": kind, "refusal": text}
	}
	return map[string]any{"type": kind, "text": text, "annotations": []any{}}
}

// keep returns the items of an answer to be kept, nil if the message has everything: no reasoning, items of
// the server's own tools, phases or refusals. It leaves out what the API would reject later: reasoning
// without its content, and then also the ids, which are valid only together with it.
func keep(items []*outputItem) json.RawMessage {
	var kept []keptItem
	lost := slices.ContainsFunc(items, func(i *outputItem) bool { return i.kind == "reasoning" && !i.complete() })
	plain := true
	for _, i := range items {
		if k, ok := i.keep(lost); ok {
			kept = append(kept, k)
			plain = plain && (i.kind == "function_call" || i.kind == "message" && k.Item["phase"] == nil && len(k.Parts) == 1 && k.Parts[0].Type != "refusal")
		}
	}
	if plain {
		return nil
	}
	data, err := encoded(kept)
	if err != nil {
		return nil // unreachable: each member is valid JSON
	}
	return data
}

// keep returns the item without what the message has, and whether there is anything to keep.
func (i *outputItem) keep(lost bool) (keptItem, bool) {
	if i.members == nil { // only deltas came
		i.members = map[string]json.RawMessage{"type": quote(i.kind)}
	}
	k := keptItem{Item: i.members}
	prefix := ""
	switch i.kind {
	case "":
		return k, false
	case "reasoning":
		return k, i.complete()
	case "message":
		k.Parts, prefix = i.parts, "msg_"
		delete(k.Item, "content")
		if len(k.Parts) == 0 {
			return k, false
		}
	case "function_call":
		prefix = "fc_"
		delete(k.Item, "arguments")
		delete(k.Item, "call_id")
		delete(k.Item, "namespace") // see encoder.namespace
		k.Item["name"] = quote(i.name)
	case "image_generation_call": // its image is a block
		k.Item = map[string]json.RawMessage{"type": quote("message"), "role": quote("assistant"), "content": quote("(an image was generated)")}
	}
	if k.Item["status"] != nil {
		k.Item["status"] = quote("completed")
	}
	if lost || !strings.HasPrefix(i.id, prefix) { // the API rejects other ids, which proxies make up
		delete(k.Item, "id")
	}
	return k, true
}
