package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/internal/provider"
	sdk "github.com/sashabaranov/go-openai"
)

// This file writes messages as input items of the Responses API. A Thinking block keeps the parts of an answer that
// blocks cannot hold: reasoning, order, ids and phases. Texts and calls are taken from the blocks; if the message was
// edited, the kept items no longer match the blocks and are left out.

func (e *encoder) addItem(v any) {
	e.wire.WriteByte(',')
	e.addObject(v, nil)
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

// addOutput appends the items of an assistant message: the original items if they were kept.
func (e *encoder) addOutput(m *message.Message, calls []*message.ToolCall) {
	if items := e.keptItems(m, calls); items != nil {
		for _, item := range items {
			e.addItem(item)
		}
		return
	}
	var textBlocks message.Blocks
	addText := func() {
		if s := assistantText(textBlocks); s != "" {
			e.addItem(inputMessage(sdk.ChatMessageRoleAssistant, s))
		}
		textBlocks = nil
	}
	for _, b := range m.Blocks {
		c, ok := b.(*message.ToolCall)
		if !ok {
			textBlocks = append(textBlocks, b)
			continue
		}
		addText()
		e.addItem(functionCall{"function_call", c.ID, callName(c), e.namespace(callName(c)), string(provider.Arguments(c.Input))})
	}
	addText()
}

// namespace returns the namespace of a call, which depends on the tools of the request, not on the tools at the time of
// the call. The server puts a tool that was added during the conversation into a namespace with the tool's name.
func (e *encoder) namespace(wire string) string {
	if e.tools.isLate(wire) {
		return wire
	}
	return ""
}

// callName returns the name of a call on the wire, which must not be empty.
func callName(c *message.ToolCall) string { return cmp.Or(wireName(c.Name), "unknown") }

// keptMember is the member of an Extra with the items of an answer.
const keptMember = "items"

// A keptItem is an item of an answer without its text, which is in the message: Parts has the lengths of the pieces of
// the message's text that belong to the item. A part without a type is the break between two items.
type keptItem struct {
	Item  map[string]json.RawMessage `json:"item,omitempty"`
	Parts []keptPart                 `json:"parts,omitempty"`
}

type keptPart struct {
	Type string `json:"type,omitempty"`
	Size int    `json:"size"` // in bytes
}

// mayHaveKept reports whether a message has an extra, which may contain kept items.
func mayHaveKept(m *message.Message) bool {
	return slices.ContainsFunc(m.Blocks, func(b message.Block) bool {
		t, ok := b.(*message.Thinking)
		return ok && len(t.Extra) > 0
	})
}

// keptItems returns the original items of a message, or nil if they were not kept or no longer match the message.
func (e *encoder) keptItems(m *message.Message, calls []*message.ToolCall) (items []any) {
	if !mayHaveKept(m) || e.withoutReasoning.Has(m) {
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
	unused := text.String() // the text that the items so far do not contain
	for _, k := range kept {
		switch jsonString(k.Item["type"]) {
		case "": // encodeKept always writes a type
			return nil
		case "message":
			k.Item["role"] = quote(sdk.ChatMessageRoleAssistant)
			content := []any{}
			for _, p := range k.Parts {
				if p.Size < 0 || p.Size > len(unused) {
					return nil
				}
				if p.Type != "" && strings.TrimSpace(unused[:p.Size]) != "" {
					content = append(content, textContent(p.Type, unused[:p.Size]))
				}
				unused = unused[p.Size:]
			}
			switch {
			case len(content) > 0:
				k.Item["content"], _ = encodeJSON(content) // text always encodes
			case k.Item["content"] == nil: // blank: the API rejects the item, and reasoning without the item after it
				return nil
			}
		case "function_call":
			if len(calls) == 0 || string(k.Item["name"]) != string(quote(callName(calls[0]))) {
				return nil
			}
			k.Item["call_id"], k.Item["arguments"] = quote(calls[0].ID), quote(string(provider.Arguments(calls[0].Input)))
			delete(k.Item, "namespace")
			if space := e.namespace(callName(calls[0])); space != "" {
				k.Item["namespace"] = quote(space)
			}
			calls = calls[1:]
		}
		items = append(items, k.Item)
	}
	if unused != "" || len(calls) > 0 {
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

// encodeKept returns the JSON of the items of an answer, or nil if the message alone is enough: without reasoning, items
// of server tools, phases and refusals. It leaves out reasoning without content, which the API would reject, and in that
// case also all ids, which are valid only together with the reasoning.
func encodeKept(items []*outputItem) json.RawMessage {
	var kept []keptItem
	noIDs := slices.ContainsFunc(items, func(item *outputItem) bool { return item.kind == "reasoning" && !item.canSendBack() })
	messageSuffices := true
	for _, item := range items {
		if k, ok := item.keep(noIDs); ok {
			kept = append(kept, k)
			isPlainText := item.kind == "message" && k.Item["phase"] == nil && len(k.Parts) == 1 && k.Parts[0].Type != "refusal"
			messageSuffices = messageSuffices && (isPlainText || item.kind == "function_call")
		}
	}
	if messageSuffices {
		return nil
	}
	data, err := encodeJSON(kept)
	if err != nil {
		return nil // unreachable: each member is valid JSON
	}
	return data
}

// keep returns the item without its text, and with noID also without its id. ok is false if the item is not kept.
func (item *outputItem) keep(noID bool) (k keptItem, ok bool) {
	if item.members == nil { // only deltas were received
		item.members = map[string]json.RawMessage{"type": quote(item.kind)}
	}
	k = keptItem{Item: item.members}
	idPrefix := ""
	switch item.kind {
	case "":
		return k, false
	case "reasoning":
		return k, item.canSendBack()
	case "message":
		k.Parts, idPrefix = item.parts, "msg_"
		delete(k.Item, "content")
		if len(k.Parts) == 0 {
			return k, false
		}
	case "function_call":
		idPrefix = "fc_"
		delete(k.Item, "arguments")
		delete(k.Item, "call_id")
		delete(k.Item, "namespace") // see encoder.namespace
		k.Item["name"] = quote(item.name)
	case "image_generation_call": // the message has the image
		k.Item = map[string]json.RawMessage{"type": quote("message"), "role": quote("assistant"), "content": quote("(an image was generated)")}
	}
	if k.Item["status"] != nil {
		k.Item["status"] = quote("completed")
	}
	if noID || !strings.HasPrefix(item.id, idPrefix) { // proxies make up ids that the API rejects
		delete(k.Item, "id")
	}
	return k, true
}
