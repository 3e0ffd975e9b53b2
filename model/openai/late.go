package openai

import (
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
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

// with returns the list of a request with the tools of l at its head and the given changes.
func (l *toolList) with(changes []*model.ToolChange) (*toolList, error) {
	if len(changes) == 0 {
		return l, nil
	}
	late := &toolList{head: l, changes: changes, own: map[string]string{}}
	for _, c := range changes {
		for _, t := range c.Add {
			name := wireName(t.Name)
			if l.own[name] == t.Name || late.own[name] == t.Name { // the tool was removed and is added again
				continue
			}
			if err := provider.CheckName(late.own, name, t.Name); err != nil {
				return nil, err
			}
			if err := provider.CheckName(l.own, name, t.Name); err != nil {
				return nil, err
			}
			late.own[name] = t.Name
		}
	}
	return late, nil
}

// isLate reports whether the tool is added by a change and is not in the head.
func (l *toolList) isLate(wire string) bool { return l.head != nil && l.own[wire] != "" }

// continues reports whether a conversation of n messages that was encoded with some of the changes can be continued
// with all of them. The remaining changes must come after those messages. They must not add a tool that was called
// before, since that would change the namespace of those calls.
func (l *toolList) continues(c *conversation, n int) bool {
	done := len(c.changes)
	if done > len(l.changes) || !slices.Equal(c.changes, l.changes[:done]) {
		return false
	}
	added := map[string]bool{}
	for _, change := range l.changes[done:] {
		if change.At < n {
			return false
		}
		for _, t := range change.Add {
			if name := wireName(t.Name); l.isLate(name) && !l.addedBefore(name, done) {
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
	return len(added) == 0 || !slices.ContainsFunc(c.before, called) && !called(c.last.Value())
}

// addedBefore reports whether one of the first n changes adds the tool.
func (l *toolList) addedBefore(wire string, n int) bool {
	return slices.ContainsFunc(l.changes[:n], func(c *model.ToolChange) bool {
		return slices.ContainsFunc(c.Add, func(t tool.Info) bool { return wireName(t.Name) == wire })
	})
}

// change appends the items for the n-th change.
func (e *encoder) change(n int) error {
	c := e.tools.changes[n]
	item := additionalTools{Type: "additional_tools", Role: sdk.ChatMessageRoleDeveloper}
	var reopened, closed []string
	for _, t := range c.Add {
		name := wireName(t.Name)
		if !e.tools.isLate(name) || e.tools.addedBefore(name, n) {
			reopened = append(reopened, name)
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
	if reopened != nil {
		e.item(inputMessage(sdk.ChatMessageRoleDeveloper, reopenedTools+strings.Join(reopened, ", ")))
	}
	if item.Tools != nil {
		e.item(item)
	}
	return e.err
}
