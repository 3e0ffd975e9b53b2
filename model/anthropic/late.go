package anthropic

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
)

// This file adds and removes tools in the course of a conversation, by system messages in it
// ("Mid-conversation system messages and tool changes"). Such a message comes before an answer, or
// at the end.

// lateModels are prefixes of the names of models that are known to support this.
var lateModels = []string{
	"claude-opus-4-8", "claude-opus-5", "claude-fable-5", "claude-mythos-5", "claude-sonnet-5-5",
	"claude-haiku-5-5",
}

// betaLateTools is the beta feature that a request with such changes needs.
const betaLateTools = "inline-tools-2026-09-15"

func takesLateTools(name string) bool {
	hasPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	return slices.ContainsFunc(lateModels, hasPrefix)
}

// Reveals reports whether tools can be added at the end of a conversation; see Config.LateTools.
func (m *Model) Reveals() bool { return m.reveals }

// with returns the names of the list and of the added tools, or nil if two tools have the same name
// on the wire.
func (l *toolList) with(changes []*model.ToolChange) map[string]string {
	if len(changes) == 0 {
		return l.names
	}
	names := maps.Clone(l.names)
	for _, c := range changes {
		for i := range c.Add {
			own := c.Add[i].Name
			wire := wireName(own)
			if other, ok := names[wire]; ok && other != own {
				return nil
			}
			names[wire] = own
		}
	}
	return names
}

// change records a change for flush. It cannot be encoded yet, since an answer without content is
// not sent, and the change must come before an answer that is.
func (e *encoder) change(c *model.ToolChange) { e.pending = append(e.pending, c) }

// flush encodes the recorded changes.
func (e *encoder) flush() {
	if len(e.pending) == 0 {
		return
	}
	e.userLast()
	for _, c := range e.pending {
		for _, name := range c.Remove {
			e.add(roleSystem, marshal(wireChange{reference(name), "tool_removal"}))
		}
		for i := range c.Add {
			e.add(roleSystem, marshal(wireChange{e.added(&c.Add[i]), "tool_addition"}))
		}
	}
	e.pending = nil
}

// added returns a tool to be added: its name if the request has defined it before, otherwise its
// definition.
func (e *encoder) added(t *tool.Info) any {
	if e.defined[wireName(t.Name)] {
		return reference(t.Name)
	}
	e.defined[wireName(t.Name)] = true
	definition, err := encodeTool(t, e.renames)
	e.err = cmp.Or(e.err, err)
	return wireDefinition{definition, "tool_definition"}
}

func reference(name string) wireReference { return wireReference{wireName(name), "tool_reference"} }
