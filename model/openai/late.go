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

// This file adds tools during a conversation. The model can call the tools in an input item of type additional_tools
// after that item. So the list of tools, and with it the prefix that the server caches, remains the same (OpenAI API
// reference, "Create a model response", input). The API cannot remove tools: a developer message names the tools that
// can no longer be called.

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

// supportsLateTools reports whether a server is known to support additional_tools: OpenAI's own server, for these models.
func supportsLateTools(host, modelName string) bool {
	modelName = strings.TrimPrefix(modelName, "ft:") // fine-tuned
	return host == "api.openai.com" && (modelName == "gpt-6" ||
		slices.ContainsFunc([]string{"gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6-"}, func(prefix string) bool { return strings.HasPrefix(modelName, prefix) }))
}

// Reveals reports whether tools can be added during a conversation; see Config.LateTools.
func (m *Model) Reveals() bool { return m.lateTools }

// withChanges returns the list for a conversation that began with the tools in l.
func (l *toolList) withChanges(changes []*model.ToolChange) (*toolList, error) {
	if len(changes) == 0 {
		return l, nil
	}
	late := &toolList{initial: l, changes: changes, names: map[string]string{}}
	for _, c := range changes {
		for _, t := range c.Add {
			name := wireName(t.Name)
			if l.names[name] == t.Name || late.names[name] == t.Name { // the tool was removed and is added again
				continue
			}
			if err := provider.CheckName(late.names, name, t.Name); err != nil {
				return nil, err
			}
			if err := provider.CheckName(l.names, name, t.Name); err != nil {
				return nil, err
			}
			late.names[name] = t.Name
		}
	}
	return late, nil
}

// isLate reports whether a change adds the tool, and the list at the start of the conversation lacks it.
func (l *toolList) isLate(wire string) bool { return l.initial != nil && l.names[wire] != "" }

// continues reports whether a request with the tools in l can continue c, a conversation of n messages. The changes in c
// must be the first changes in l, and all other changes must come after the n messages. They must not add a tool that
// the messages call, since that would change the namespace of the calls.
func (l *toolList) continues(c *conversation, n int) bool {
	encoded := len(c.changes)
	if encoded > len(l.changes) || !slices.Equal(c.changes, l.changes[:encoded]) {
		return false
	}
	added := map[string]bool{}
	for _, change := range l.changes[encoded:] {
		if change.At < n {
			return false
		}
		for _, t := range change.Add {
			if name := wireName(t.Name); l.isLate(name) && !l.addedBefore(name, encoded) {
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

// addChanges appends the changes before message n, beginning with the change at index next. It returns the index of the
// first change that was not appended.
func (e *encoder) addChanges(next, n int) (int, error) {
	for ; next < len(e.tools.changes) && e.tools.changes[next].At <= n; next++ {
		if err := e.addChange(next); err != nil {
			return 0, err
		}
	}
	return next, nil
}

// addChange appends the items for the n-th change.
func (e *encoder) addChange(n int) error {
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
		e.addItem(inputMessage(sdk.ChatMessageRoleDeveloper, closedTools+strings.Join(closed, ", ")))
	}
	if reopened != nil {
		e.addItem(inputMessage(sdk.ChatMessageRoleDeveloper, reopenedTools+strings.Join(reopened, ", ")))
	}
	if item.Tools != nil {
		e.addItem(item)
	}
	return e.err
}
