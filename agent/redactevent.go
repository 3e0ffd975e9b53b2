package agent

import (
	"encoding/json"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/redact"
)

// An eventRedactor removes secrets from the events of a run, and so from files, screens and logs. The State and the model
// keep the secrets: a model that has read a key with one tool must be able to use the key with the next, and a call must
// run with the arguments that were judged. The permission rules decide what the model may do with secrets.
type eventRedactor struct {
	r    *redact.Redactor
	held []*heldText // the texts that are being streamed, in the order in which they began
}

// A heldText is a text that arrives in deltas. The end of the text is held back as long as it could be the beginning of
// a secret. Arguments are held back completely: an escape sequence of JSON can hide any letter until the whole string
// has arrived.
type heldText struct {
	key      textKey
	text     *redact.Stream
	args     json.RawMessage // instead of text, for arguments
	newDelta func(text string) event.Event
}

// A textKey identifies a text. The model streams one text at a time, except that arguments of several calls may arrive
// alternately. The output of a call has up to two texts: one for the model and one for the user.
type textKey struct {
	kind    string // the type of the events with the deltas
	id      string // of a block, or of a call for arguments and output
	forUser bool   // output that only the user is shown
}

func (k textKey) isArgs() bool { return k.kind == event.TypeOf((*event.ToolCallDelta)(nil)) }

func isModelText(k textKey) bool { return k.kind != event.TypeOf((*event.ToolDelta)(nil)) }

// isOutputOf returns a function that reports whether a text is output of the call.
func isOutputOf(call string) func(textKey) bool {
	return func(k textKey) bool { return !isModelText(k) && k.id == call }
}

// redact returns the events to emit in place of ev: none while a delta could be the beginning of a secret, several if ev
// ends a text of which something is held back. The caller numbers the returned events.
func (er *eventRedactor) redact(ev event.Event) []event.Event {
	switch ev := ev.(type) {
	case *event.TextDelta:
		return er.delta(textKey{kind: event.TypeOf(ev), id: ev.Block}, ev.Text, func(s string) event.Event {
			return &event.TextDelta{Message: ev.Message, Block: ev.Block, Text: s}
		})
	case *event.ThinkingDelta:
		return er.delta(textKey{kind: event.TypeOf(ev), id: ev.Block}, ev.Text, func(s string) event.Event {
			return &event.ThinkingDelta{Message: ev.Message, Block: ev.Block, Text: s}
		})
	case *event.ToolCallDelta:
		return er.delta(textKey{kind: event.TypeOf(ev), id: ev.Call}, ev.Args, func(s string) event.Event {
			return &event.ToolCallDelta{Message: ev.Message, Call: ev.Call, Name: ev.Name, Args: s}
		})
	case *event.ToolDelta:
		if ev.Text == "" {
			return []event.Event{redacted(er.r, ev)}
		}
		var out []event.Event
		if ev.Progress != nil { // emitted separately, as the text may be held back
			out = append(out, redacted(er.r, &event.ToolDelta{Call: ev.Call, Name: ev.Name, ForUser: ev.ForUser, Progress: ev.Progress}))
		}
		return append(out, er.delta(textKey{event.TypeOf(ev), ev.Call, ev.ForUser}, ev.Text, func(s string) event.Event {
			return &event.ToolDelta{Call: ev.Call, Name: ev.Name, Text: s, ForUser: ev.ForUser}
		})...)
	case *event.ToolResult:
		return append(er.flush(isOutputOf(ev.Call)), redacted(er.r, ev))
	case *event.Elicitation, *event.Sampling: // a call has caused these, so the model's current text may continue
		return []event.Event{redacted(er.r, ev)}
	case *event.Background:
		er.flush(isOutputOf(ev.Call)) // dropped: no more deltas of the call follow, and the held text may be half a secret
	case *event.Discard:
		er.flush(isModelText) // dropped: the consumer discards the earlier deltas of this text, too
	}
	return append(er.flush(isModelText), redacted(er.r, ev))
}

// delta adds a piece to a text and returns what can be shown now.
func (er *eventRedactor) delta(key textKey, text string, newDelta func(string) event.Event) []event.Event {
	var out []event.Event
	if isModelText(key) { // the other texts of the model have ended, except other arguments if this is an argument
		out = er.flush(func(k textKey) bool { return isModelText(k) && k != key && !(key.isArgs() && k.isArgs()) })
	}
	i := slices.IndexFunc(er.held, func(h *heldText) bool { return h.key == key })
	if i < 0 {
		i = len(er.held)
		er.held = append(er.held, &heldText{key: key, text: er.r.Stream()})
		if key.isArgs() { // empty arguments, so that a consumer can already show the call
			out = append(out, newDelta(""))
		}
	}
	h := er.held[i]
	h.newDelta = newDelta // the latest: some servers send the name of a call after its first arguments
	if key.isArgs() {
		h.args = append(h.args, text...)
	} else if shown := h.text.Write(text); shown != "" {
		out = append(out, newDelta(shown))
	}
	return out
}

// flush ends the texts for which hasEnded is true. It returns deltas with what was held back of these texts, in the order
// in which the texts began.
func (er *eventRedactor) flush(hasEnded func(textKey) bool) []event.Event {
	var out []event.Event
	er.held = slices.DeleteFunc(er.held, func(h *heldText) bool {
		if !hasEnded(h.key) {
			return false
		}
		rest := h.text.Close()
		if h.key.isArgs() {
			rest = string(redacted(er.r, h.args))
		}
		if rest != "" {
			out = append(out, h.newDelta(rest))
		}
		return true
	})
	return out
}
