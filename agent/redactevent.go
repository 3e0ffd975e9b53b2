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
			return []Event{ev}
		}
		key := textKey{toolText, ev.Call}
		if ev.ForUser {
			key.kind = toolForUser
		}
		return c.delta(key, ev.Text, func(s string) Event {
			return &ToolDelta{Call: ev.Call, Name: ev.Name, Text: s, ForUser: ev.ForUser}
		})
	case *ToolResult:
		return append(c.flush(ofCall(ev.Call)), c.clean(ev))
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
	return append(c.flush(ofModel), c.clean(ev))
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
	return &heldText{key: key, write: write, close: func() string { return string(c.json([]byte(all.String()))) }}
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

// json returns data without secrets, nothing of what is not JSON: there it cannot be
// told what an escape sequence stands for.
func (c *eventRedactor) json(data json.RawMessage) json.RawMessage {
	if !json.Valid(data) {
		return nil
	}
	return c.r.JSON(data)
}

func (c *eventRedactor) texts(list []string) []string {
	out := slices.Clone(list)
	for i, s := range out {
		out[i] = c.r.Text(s)
	}
	return out
}

// clean returns ev without secrets. What stays as it is, is ev itself.
func (c *eventRedactor) clean(ev Event) Event {
	text := c.r.Text
	switch ev := ev.(type) {
	case *Discard:
		cp := *ev
		cp.Error = text(ev.Error)
		return &cp
	case *Retry:
		cp := *ev
		cp.Error = text(ev.Error)
		return &cp
	case *Message:
		cp := *ev
		cp.Message = redactMessage(c.r, ev.Message)
		return &cp
	case *ToolCall:
		cp := *ev
		cp.Input, cp.Repaired = c.json(ev.Input), c.texts(ev.Repaired)
		return &cp
	case *ToolStart:
		cp := *ev
		cp.Reason = text(ev.Reason)
		return &cp
	case *ToolResult:
		cp := *ev
		cp.Result = redactResult(c.r, ev.Result)
		cp.Text = cp.Result.Text()
		return &cp
	case *Approval:
		cp := *ev
		cp.Input, cp.Reason, cp.Preview = c.json(ev.Input), text(ev.Reason), text(ev.Preview)
		cp.Suggest, cp.Runs = redactRules(c.r, ev.Suggest), text(ev.Runs)
		return &cp
	case *External:
		cp := *ev
		cp.Input = c.json(ev.Input)
		return &cp
	case *Background:
		cp := *ev
		cp.Result = redactResult(c.r, ev.Result)
		return &cp
	case *Elicitation:
		cp := *ev
		cp.Message, cp.URL, cp.Site, cp.Error = text(ev.Message), text(ev.URL), text(ev.Site), text(ev.Error)
		cp.Schema, cp.Warnings = c.json(ev.Schema), c.texts(ev.Warnings)
		return &cp
	case *Sampling:
		cp := *ev
		cp.Text, cp.Refused = text(ev.Text), text(ev.Refused)
		return &cp
	case *Compaction:
		cp := *ev
		cp.Summary, cp.Failed = text(ev.Summary), text(ev.Failed)
		return &cp
	case *End:
		cp := *ev
		cp.Detail, cp.Text, cp.Output = text(ev.Detail), text(ev.Text), c.json(ev.Output)
		return &cp
	}
	return ev // deltas come here only in their pieces; a Sub's event was cleaned by the run below
}
