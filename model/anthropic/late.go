package anthropic

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/kitbag-go/kitbag/model"
)

// This file adds and removes tools in the course of a conversation, by system messages in it ("Mid-conversation system
// messages and tool changes"). Such a message comes before an answer, or at the end.

// lateModels are prefixes of the names of models that are known to support this.
var lateModels = []string{"claude-opus-4-8", "claude-opus-5", "claude-fable-5", "claude-mythos-5", "claude-sonnet-5-5", "claude-haiku-5-5"}

func takesLateTools(name string) bool {
	return slices.ContainsFunc(lateModels, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// Reveals reports whether tools can be added at the end of a conversation; see Config.LateTools.
func (m *Model) Reveals() bool { return m.reveals }

// with returns the names of the list and of the added tools, or nil if two tools have the same name on the wire.
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

// change records a change for flush. It cannot be encoded yet, since an answer without content is not sent, and the
// change must come before an answer that is.
func (e *encoder) change(c *model.ToolChange) { e.pending = append(e.pending, c) }

// flush encodes the recorded changes. A tool that the request has defined before is added by its name alone.
func (e *encoder) flush() {
	if len(e.pending) == 0 {
		return
	}
	e.userLast()
	for _, c := range e.pending {
		for _, name := range c.Remove {
			e.addParam(roleSystem, sdk.BetaRequestToolRemovalBlockParam{Tool: sdk.BetaRequestToolRemovalBlockToolUnionParam{OfToolReference: reference(name)}})
		}
		for i := range c.Add {
			var p sdk.BetaRequestToolAdditionBlockParam
			if name := wireName(c.Add[i].Name); e.defined[name] {
				p.Tool.OfToolReference = reference(name)
			} else {
				e.defined[name] = true
				definition, err := toolParam(&c.Add[i], e.renames)
				e.err = cmp.Or(e.err, err)
				p.Tool.OfToolDefinition = &sdk.BetaToolChangeToolDefinitionParam{Definition: param.Override[sdk.BetaToolUnionParam](definition)}
			}
			e.addParam(roleSystem, p)
		}
	}
	e.pending = nil
}

func reference(name string) *sdk.BetaToolChangeToolReferenceParam {
	return &sdk.BetaToolChangeToolReferenceParam{Name: wireName(name)}
}
