package agent

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/redact"
)

// An eventRedactor takes secrets out of the events of a run. The State and the model keep
// them: a model that has read a key with one tool is to use it with the next, and
// a call must run with what was judged. What it does with secrets the permission
// rules decide; here they are kept from files, screens and logs.
type eventRedactor struct {
	r    *redact.Redactor
	held []*heldText // the texts that are coming, in order of their beginning

	away []string // calls in the background: nobody is told of their pieces any more
}

// heldText is a text that comes in deltas, of which the end is not shown as
// long as it could be the beginning of a secret.
type heldText struct {
	key   textKey
	write func(string) string
	close func() string
	event func(text string) Event // a delta
}

// A textKey tells texts apart, by what their deltas are and by the id in them.
type textKey struct {
	kind textKind
	id   string // of a block or a call
}

type textKind int

// The model says one thing at a time, but for arguments: those of several calls may
// come side by side. Of tools there is one text for each call and reader.
const (
	modelText textKind = iota
	modelThinking
	modelArgs
	toolText
	toolForUser
)

func ofModel(k textKey) bool { return k.kind <= modelArgs }

func ofCall(call string) func(textKey) bool {
	return func(k textKey) bool { return k.kind > modelArgs && k.id == call }
}

// redact returns the events to emit in the place of ev: none while a delta could be the
// beginning of a secret, several where one is followed by the end of another text.
// They get their numbers afterwards, so that none is missing.
func (c *eventRedactor) redact(ev Event) []Event {
	switch ev := ev.(type) {
	case *TextDelta:
		return c.delta(textKey{modelText, ev.Block}, ev.Text, func(s string) Event {
			return &TextDelta{Message: ev.Message, Block: ev.Block, Text: s}
		})
	case *ThinkingDelta:
		return c.delta(textKey{modelThinking, ev.Block}, ev.Text, func(s string) Event {
			return &ThinkingDelta{Message: ev.Message, Block: ev.Block, Text: s}
		})
	case *ToolCallDelta:
		return c.delta(textKey{modelArgs, ev.Call}, ev.Args, func(s string) Event {
			return &ToolCallDelta{Message: ev.Message, Call: ev.Call, Name: ev.Name, Args: s}
		})
	case *ToolDelta:
		if slices.Contains(c.away, ev.Call) {
			return nil // what it goes on from was not told to its end
		}
		if ev.Text == "" {
			return []Event{without(c.r, ev)}
		}
		var out []Event
		if ev.Progress != nil { // the text may have to wait
			out = append(out, without(c.r, &ToolDelta{Call: ev.Call, Name: ev.Name, ForUser: ev.ForUser, Progress: ev.Progress}))
		}
		key := textKey{toolText, ev.Call}
		if ev.ForUser {
			key.kind = toolForUser
		}
		return append(out, c.delta(key, ev.Text, func(s string) Event {
			return &ToolDelta{Call: ev.Call, Name: ev.Name, Text: s, ForUser: ev.ForUser}
		})...)
	case *ToolResult:
		return append(c.flush(ofCall(ev.Call)), without(c.r, ev))
	case *Background:
		if ev.Result == nil {
			c.away = append(c.away, ev.Call)
			c.flush(ofCall(ev.Call))
		} else { // it says nothing any more
			c.away = slices.DeleteFunc(c.away, func(call string) bool { return call == ev.Call })
		}
	case *Discard: // the deltas are void, and so is what is held back of them
		c.flush(ofModel)
	}
	return append(c.flush(ofModel), without(c.r, ev))
}

// delta takes a piece of a text and returns what can be shown by now.
func (c *eventRedactor) delta(key textKey, text string, event func(string) Event) []Event {
	var out []Event
	args := key.kind == modelArgs
	if ofModel(key) { // whatever else the model was saying has ended
		out = c.flush(func(k textKey) bool { return ofModel(k) && k != key && !(args && k.kind == modelArgs) })
	}
	i := slices.IndexFunc(c.held, func(h *heldText) bool { return h.key == key })
	if i < 0 {
		i = len(c.held)
		c.held = append(c.held, c.hold(key))
		if args { // so that a consumer can show that there is a call
			out = append(out, event(""))
		}
	}
	h := c.held[i]
	h.event = event // a call may get its name late
	if shown := h.write(text); shown != "" {
		out = append(out, event(shown))
	}
	return out
}

// hold begins a text. Arguments are held back whole: an escape sequence of JSON
// can hide any letter until the string that it is in has come.
func (c *eventRedactor) hold(key textKey) *heldText {
	if key.kind != modelArgs {
		s := c.r.Stream()
		return &heldText{key: key, write: s.Write, close: s.Close}
	}
	var all strings.Builder
	write := func(s string) string {
		all.WriteString(s)
		return ""
	}
	return &heldText{key: key, write: write, close: func() string { return string(without(c.r, json.RawMessage(all.String()))) }}
}

// flush ends the texts that which picks, and returns what was held back.
func (c *eventRedactor) flush(which func(textKey) bool) []Event {
	var out []Event
	// In the order in which they began, which a consumer can count on.
	c.held = slices.DeleteFunc(c.held, func(h *heldText) bool {
		if !which(h.key) {
			return false
		}
		if rest := h.close(); rest != "" {
			out = append(out, h.event(rest))
		}
		return true
	})
	return out
}
