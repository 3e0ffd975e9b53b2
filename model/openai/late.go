package openai

import (
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	sdk "github.com/sashabaranov/go-openai"
)

// This file adds tools in the course of a conversation. An input item of type additional_tools adds tools from
// there on, so that the list of tools, and with it the prefix that the server caches, remains the same (OpenAI API
// reference, "Create a model response", input). The API cannot remove tools: a developer message names those
// that can no longer be called.

const (
	closedTools   = "These tools can no longer be called: "
	reopenedTools = "These tools can be called again: "
)

// An additionalTools is an item that adds tools.
type additionalTools struct {
	Type  string         `json:"type"`
	Role  string         `json:"role"`
	Tools []functionTool `json:"tools"`
}

// lateModels are prefixes of the names of models that OpenAI's own server is known to support additional_tools for.
var lateModels = []string{"gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6-"}

// takesLateTools reports whether a server is known to support additional_tools.
func takesLateTools(host, name string) bool {
	name = strings.TrimPrefix(name, "ft:")
	return host == "api.openai.com" &&
		(name == "gpt-6" || slices.ContainsFunc(lateModels, func(prefix string) bool { return strings.HasPrefix(name, prefix) }))
}

// Reveals reports whether tools can be added at the end of a conversation; see Config.LateTools.
func (m *Model) Reveals() bool { return m.reveals }

// revealed returns the list of tools of a request, its digest, and the changes to it. If the changes cannot be sent
// the list has all tools that may be called.
func (m *Model) revealed(w *wire, req *model.Request) (head []tool.Info, digest string, changes []*model.ToolChange) {
	if !m.reveals || !w.responses || m.noLate.Load() || req.Reveal == nil || m.cfg.Extra["tools"] != nil || req.Extra["tools"] != nil {
		return req.Tools, req.Digest, nil
	}
	v := req.Revealed()
	inHead := func(t tool.Info) bool { return t.Name == req.Choice.Name }
	if len(v.Head) == 0 || req.Choice.Mode == model.ChoiceNamed && !slices.ContainsFunc(v.Head, inHead) {
		return req.Tools, req.Digest, nil // a choice names a tool of the head
	}
	return v.Head, v.Digest, v.Changes
}

// with returns the list of a request that has l as its list, and changes.
func (l *toolList) with(changes []*model.ToolChange) (*toolList, error) {
	if len(changes) == 0 {
		return l, nil
	}
	late := &toolList{head: l, changes: changes, own: map[string]string{}}
	for _, c := range changes {
		for _, t := range c.Add {
			name := wireName(t.Name)
			if l.own[name] == t.Name || late.own[name] == t.Name { // it comes back
				continue
			}
			if err := checkWireName(late.own, name, t.Name); err != nil {
				return nil, err
			}
			if err := checkWireName(l.own, name, t.Name); err != nil {
				return nil, err
			}
			late.own[name] = t.Name
		}
	}
	return late, nil
}

// isLate reports whether a change adds the tool, and the list lacks it.
func (l *toolList) isLate(wire string) bool { return l.head != nil && l.own[wire] != "" }

// continues reports whether a conversation of n messages that was encoded with some of the changes can be continued
// with all of them. The others must be later, and must not add a tool that was called before, which changes the
// namespace of those calls.
func (l *toolList) continues(c *conversation, n int) bool {
	done := len(c.changes)
	if done > len(l.changes) || !slices.Equal(c.changes, l.changes[:done]) {
		return false
	}
	added := map[string]bool(nil)
	for _, change := range l.changes[done:] {
		if change.At < n {
			return false
		}
		for _, t := range change.Add {
			if name := wireName(t.Name); l.isLate(name) && !l.addedBefore(name, done) {
				if added == nil {
					added = map[string]bool{}
				}
				added[name] = true
			}
		}
	}
	called := func(m *message.Message) bool {
		return m != nil && slices.ContainsFunc(m.Blocks, func(b message.Block) bool {
			call, ok := b.(*message.ToolCall)
			return ok && added[wireName(call.Name)]
		})
	}
	return added == nil || !slices.ContainsFunc(c.before, called) && !called(c.last.Value())
}

// addedBefore reports whether one of the first n changes adds the tool.
func (l *toolList) addedBefore(wire string, n int) bool {
	return slices.ContainsFunc(l.changes[:n], func(c *model.ToolChange) bool {
		return slices.ContainsFunc(c.Add, func(t tool.Info) bool { return wireName(t.Name) == wire })
	})
}

// change appends the n-th change.
func (e *encoder) change(n int) error {
	c := e.tools.changes[n]
	item := additionalTools{Type: "additional_tools", Role: sdk.ChatMessageRoleDeveloper}
	var again, closed []string
	for _, t := range c.Add {
		name := wireName(t.Name)
		if !e.tools.isLate(name) || e.tools.addedBefore(name, n) {
			again = append(again, name)
			continue
		}
		f, err := newFunctionTool(name, t)
		if err != nil {
			return err
		}
		item.Tools = append(item.Tools, f)
	}
	for _, name := range c.Remove {
		closed = append(closed, wireName(name))
	}
	if closed != nil {
		e.item(inputMessage(sdk.ChatMessageRoleDeveloper, closedTools+strings.Join(closed, ", ")))
	}
	if again != nil {
		e.item(inputMessage(sdk.ChatMessageRoleDeveloper, reopenedTools+strings.Join(again, ", ")))
	}
	if item.Tools != nil {
		e.item(item)
	}
	return e.err
}
