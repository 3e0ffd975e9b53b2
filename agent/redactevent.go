package agent

import (
	"encoding/json"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/redact"
)

// An eventRedactor takes secrets out of the events of a run. The State and the model keep
// them: a model that has read a key with one tool is to use it with the next, and
// a call must run with what was judged. What it does with secrets the permission
// rules decide; here they are kept from files, screens and logs.
type eventRedactor struct {
	r    *redact.Redactor
	held []*heldText // the texts that are coming, in order of their beginning
}

// heldText is a text that comes in deltas, of which the end is not shown as long as it could be the
// beginning of a secret. Arguments are held back whole: an escape sequence of JSON can hide any letter
// until the string that it is in has come.
type heldText struct {
	key   textKey
	text  *redact.Stream
	args  json.RawMessage
	delta func(text string) event.Event // a delta
}

// A textKey names a text by what its deltas are and the id in them. The model says one thing at a time,
// but for arguments: those of several calls may come side by side. Of tools there is one text for each
// call and reader.
type textKey struct {
	kind    string
	id      string // of a block or a call
	forUser bool
}

func (k textKey) isArgs() bool { return k.kind == event.TypeOf((*event.ToolCallDelta)(nil)) }

func ofModel(k textKey) bool { return k.kind != event.TypeOf((*event.ToolDelta)(nil)) }

func ofCall(call string) func(textKey) bool {
	return func(k textKey) bool { return !ofModel(k) && k.id == call }
}

// redact returns the events to emit in the place of ev: none while a delta could be the
// beginning of a secret, several where one is followed by the end of another text.
// They get their numbers afterwards, so that none is missing.
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
			return []event.Event{without(c.r, ev)}
		}
		var out []event.Event
		if ev.Progress != nil { // the text may have to wait
			out = append(out, without(c.r, &event.ToolDelta{Call: ev.Call, Name: ev.Name, ForUser: ev.ForUser, Progress: ev.Progress}))
		}
		return append(out, c.delta(textKey{event.TypeOf(ev), ev.Call, ev.ForUser}, ev.Text, func(s string) event.Event {
			return &event.ToolDelta{Call: ev.Call, Name: ev.Name, Text: s, ForUser: ev.ForUser}
		})...)
	case *event.ToolResult:
		return append(c.flush(ofCall(ev.Call)), without(c.r, ev))
	case *event.Elicitation, *event.Sampling: // of a call, while the model may be within a secret
		return []event.Event{without(c.r, ev)}
	case *event.Background: // no more of its pieces come, and what is held back may be half a secret
		c.flush(ofCall(ev.Call))
	case *event.Discard: // the deltas are void, and so is what is held back of them
		c.flush(ofModel)
	}
	return append(c.flush(ofModel), without(c.r, ev))
}

// delta takes a piece of a text and returns what can be shown by now.
func (c *eventRedactor) delta(key textKey, text string, newDelta func(string) event.Event) []event.Event {
	var out []event.Event
	if ofModel(key) { // whatever else the model was saying has ended
		out = c.flush(func(k textKey) bool { return ofModel(k) && k != key && !(key.isArgs() && k.isArgs()) })
	}
	i := slices.IndexFunc(c.held, func(h *heldText) bool { return h.key == key })
	if i < 0 {
		i = len(c.held)
		c.held = append(c.held, &heldText{key: key, text: c.r.Stream()})
		if key.isArgs() { // so that a consumer can show that there is a call
			out = append(out, newDelta(""))
		}
	}
	h := c.held[i]
	h.delta = newDelta // a call may get its name late
	if key.isArgs() {
		h.args = append(h.args, text...)
	} else if shown := h.text.Write(text); shown != "" {
		out = append(out, newDelta(shown))
	}
	return out
}

// flush ends the texts that which picks, and returns what was held back.
func (c *eventRedactor) flush(which func(textKey) bool) []event.Event {
	var out []event.Event
	// In the order in which they began, which a consumer can count on.
	c.held = slices.DeleteFunc(c.held, func(h *heldText) bool {
		if !which(h.key) {
			return false
		}
		rest := h.text.Close()
		if h.key.isArgs() {
			rest = string(without(c.r, h.args))
		}
		if rest != "" {
			out = append(out, h.delta(rest))
		}
		return true
	})
	return out
}
