package anthropic

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
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

// revealed returns the list of tools of a request, its digest, and the changes to it. If the changes cannot be sent
// the list has all tools that may be called. Without a tool at the head, the first one that is added would make
// the cache useless (see the API's documentation).
func (m *Model) revealed(req *model.Request) (head []tool.Info, digest string, changes []*model.ToolChange) {
	if !m.reveals || m.refuses.late.Load() || req.Reveal == nil || m.cfg.Extra["tools"] != nil || req.Extra["tools"] != nil {
		return req.Tools, req.Digest, nil
	}
	v := req.Revealed()
	inHead := func(t tool.Info) bool { return t.Name == req.Choice.Name }
	if len(v.Head)+len(m.cfg.ServerTools) == 0 || req.Choice.Mode == model.ChoiceNamed && !slices.ContainsFunc(v.Head, inHead) {
		return req.Tools, req.Digest, nil // a choice names a tool of the head
	}
	return v.Head, v.Digest, v.Changes
}

// with returns the names of the list and of the tools that are added, nil if two of them become one.
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

// change notes a change, for flush. The last turn is not known yet: an answer without content is not sent.
func (e *encoder) change(c *model.ToolChange) { e.pending = append(e.pending, c) }

// flush encodes the changes that were noted. A tool that was there before comes back by its name.
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
				definition, err := toolParam(&c.Add[i])
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
