package agent

import (
	"encoding/json"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/redact"
)

// An eventRedactor removes secrets from the events of a run. The State and the model keep them: a model that has read
// a key with one tool must be able to use it with the next, and a call must run with the arguments that were judged.
// The permission rules decide what the model may do with secrets; this type keeps them out of files, screens and logs.
type eventRedactor struct {
	r    *redact.Redactor
	held []*heldText // the texts that are being streamed, in the order in which they began
}

// heldText is a text that arrives in deltas. Its end is held back as long as it could be the beginning of a secret.
// Arguments are held back completely: an escape sequence of JSON can hide any letter until the whole string has
// arrived.
type heldText struct {
	key      textKey
	text     *redact.Stream
	args     json.RawMessage
	newDelta func(text string) event.Event
}

// A textKey names a text by the type of its deltas and the id in them. The model streams one text at a time, except
// for arguments: those of several calls may arrive alternately. A tool has one text for each call and each reader.
type textKey struct {
	kind    string
	id      string // of a block or a call
	forUser bool
}

func (k textKey) isArgs() bool { return k.kind == event.TypeOf((*event.ToolCallDelta)(nil)) }

func isModelText(k textKey) bool { return k.kind != event.TypeOf((*event.ToolDelta)(nil)) }

func isTextOf(call string) func(textKey) bool {
	return func(k textKey) bool { return !isModelText(k) && k.id == call }
}

// redact returns the events to emit in place of ev: none while a delta could be the beginning of a secret,
// several if the event ends another text. They are numbered afterwards, so that no number is missing.
func (c *eventRedactor) redact(ev event.Event) []event.Event {
	switch ev := ev.(type) {
	case *event.TextDelta:
		return c.delta(textKey{kind: event.TypeOf(ev), id: ev.Block}, ev.Text, func(s string) event.Event {
			return &event.TextDelta{Message: ev.Message, Block: ev.Block, Text: s}
		})
	case *event.ThinkingDelta:
		return c.delta(textKey{kind: event.TypeOf(ev), id: ev.Block}, ev.Text, func(s string) event.Event {
			return &event.ThinkingDelta{Message: ev.Message, Block: ev.Block, Text: s}
		})
	case *event.ToolCallDelta:
		return c.delta(textKey{kind: event.TypeOf(ev), id: ev.Call}, ev.Args, func(s string) event.Event {
			return &event.ToolCallDelta{Message: ev.Message, Call: ev.Call, Name: ev.Name, Args: s}
		})
	case *event.ToolDelta:
		if ev.Text == "" {
			return []event.Event{redacted(c.r, ev)}
		}
		var out []event.Event
		if ev.Progress != nil { // the text may be held back
			out = append(out, redacted(c.r, &event.ToolDelta{Call: ev.Call, Name: ev.Name, ForUser: ev.ForUser, Progress: ev.Progress}))
		}
		return append(out, c.delta(textKey{event.TypeOf(ev), ev.Call, ev.ForUser}, ev.Text, func(s string) event.Event {
			return &event.ToolDelta{Call: ev.Call, Name: ev.Name, Text: s, ForUser: ev.ForUser}
		})...)
	case *event.ToolResult:
		return append(c.flush(isTextOf(ev.Call)), redacted(c.r, ev))
	case *event.Elicitation, *event.Sampling: // they come from a call, and the model may be in the middle of a secret
		return []event.Event{redacted(c.r, ev)}
	case *event.Background: // no more deltas of the call follow, and what is held back may be half a secret
		c.flush(isTextOf(ev.Call))
	case *event.Discard: // the deltas are discarded, and what is held back of them too
		c.flush(isModelText)
	}
	return append(c.flush(isModelText), redacted(c.r, ev))
}

// delta adds a piece to a text and returns what can be shown now.
func (c *eventRedactor) delta(key textKey, text string, newDelta func(string) event.Event) []event.Event {
	var out []event.Event
	if isModelText(key) { // any other text of the model has ended
		out = c.flush(func(k textKey) bool { return isModelText(k) && k != key && !(key.isArgs() && k.isArgs()) })
	}
	i := slices.IndexFunc(c.held, func(h *heldText) bool { return h.key == key })
	if i < 0 {
		i = len(c.held)
		c.held = append(c.held, &heldText{key: key, text: c.r.Stream()})
		if key.isArgs() { // so that a consumer can show the call
			out = append(out, newDelta(""))
		}
	}
	h := c.held[i]
	h.newDelta = newDelta // the name of a call may arrive later
	if key.isArgs() {
		h.args = append(h.args, text...)
	} else if shown := h.text.Write(text); shown != "" {
		out = append(out, newDelta(shown))
	}
	return out
}

// flush ends the texts that ends selects, and returns what was held back of them.
func (c *eventRedactor) flush(ends func(textKey) bool) []event.Event {
	var out []event.Event
	// In the order in which they began: consumers rely on it.
	c.held = slices.DeleteFunc(c.held, func(h *heldText) bool {
		if !ends(h.key) {
			return false
		}
		rest := h.text.Close()
		if h.key.isArgs() {
			rest = string(redacted(c.r, h.args))
		}
		if rest != "" {
			out = append(out, h.newDelta(rest))
		}
		return true
	})
	return out
}
