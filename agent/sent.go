package agent

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/toolkit"
)

// sentParts are the parts of the last request to the model, in the order in which a provider's cache sees them. The
// next [event.ModelStart] reports only the parts that differ.
type sentParts struct {
	parts   []event.Part
	sources []any // what each part was made of: while the source is the same, the digest is not computed again

	view   *toolkit.View // of the last request whose groups were listed; nil before the first
	groups []event.Group // in view
}

// A sentTool identifies a tool by its place in a list of tools.
type sentTool struct {
	digest string // of the list
	index  int
}

// recordRequest puts into start how req differs from the previous request. It does so only if there is a Config.Save.
func (r *run) recordRequest(req *model.Request, start *event.ModelStart) {
	if r.cfg.Save == nil {
		return
	}
	if r.st.sent == nil {
		r.st.sent = new(sentParts)
	}
	s := r.st.sent // the parts of the previous request, until add replaces them
	same, differs := 0, false
	add := func(source any, part func() event.Part) {
		if !differs && same < len(s.parts) && (s.sources[same] == source || part() == s.parts[same]) {
			s.sources[same] = source
			same++
			return
		}
		if !differs { // the first part that differs
			differs = true
			s.parts, s.sources = s.parts[:same], s.sources[:same]
		}
		s.parts, s.sources = append(s.parts, part()), append(s.sources, source)
	}
	tools, digest, changes := req.Tools, req.Digest, []*model.ToolChange(nil)
	if v := req.Reveal; v != nil {
		tools, digest, changes = v.Head, v.Digest, v.Changes
	}
	for i := range tools {
		t := &tools[i]
		add(sentTool{digest, i}, func() event.Part {
			text := slices.Concat([]byte(t.Name), []byte{0}, []byte(t.Description), []byte{0}, t.Input)
			return event.Part{Kind: "tool", Name: t.Name, Digest: hash(text), Bytes: len(t.Name) + len(t.Description) + len(t.Input)}
		})
	}
	add(req.System, func() event.Part { return r.textPart("system", "", []byte(req.System)) })
	for i, m := range req.Messages {
		for len(changes) > 0 && changes[0].At <= i {
			add(changes[0], func() event.Part { return changePart(changes[0]) })
			changes = changes[1:]
		}
		add(m, func() event.Part { return r.messagePart(m) })
	}
	for _, c := range changes {
		add(c, func() event.Part { return changePart(c) })
	}
	if !differs { // req may be only the beginning of the previous request
		s.parts, s.sources = s.parts[:same], s.sources[:same]
	}
	start.Same, start.Parts = same, slices.Clone(s.parts[same:])
	start.Groups = r.changedGroups()
}

// changedGroups returns all groups, with who opened or closed them since the previous request; nil if nothing has changed.
func (r *run) changedGroups() []event.Group {
	s, v := r.st.sent, r.cache.view
	if v == s.view || v == nil { // the same view has the same groups
		return nil
	}
	infos, costs := r.cfg.Toolkit.Groups(&r.st.Scope), v.Cost().Groups
	now := make([]event.Group, len(infos))
	for i, g := range infos {
		now[i] = event.Group{Name: g.Name, Open: g.Active, About: len(g.Name) + len(g.Description)}
		if c := slices.IndexFunc(costs, func(c toolkit.Cost) bool { return c.Name == g.Name }); c >= 0 {
			now[i].Tools, now[i].Bytes = costs[c].Tools, costs[c].Bytes
		}
	}
	before, previousView := s.groups, s.view
	s.groups, s.view = slices.Clone(now), v // without By
	if slices.Equal(before, now) {
		return nil
	}
	if previousView == nil { // the first request
		return now
	}
	became := func(name string, open bool) bool {
		is := func(g event.Group) bool { return g.Name == name && g.Open == open }
		return slices.ContainsFunc(now, is) && !slices.ContainsFunc(before, is)
	}
	openedByModel, modelChanged := r.groupsOfLastAnswer(previousView)
	exclusive := r.cfg.Toolkit.Config().Exclusive
	for i := range now {
		g := &now[i]
		otherOpened := slices.ContainsFunc(exclusive, func(set []string) bool {
			return slices.Contains(set, g.Name) && slices.ContainsFunc(set, func(name string) bool { return became(name, true) })
		})
		parentClosed := slices.ContainsFunc(infos[i].Parents, func(name string) bool { return became(name, false) })
		switch {
		case !became(g.Name, g.Open):
		case !g.Open && (otherOpened || parentClosed):
			g.By = "rule"
		case infos[i].ByUser:
			g.By = "user"
		case modelChanged && (!g.Open || slices.Contains(openedByModel, g.Name)):
			g.By = "model"
		default:
			g.By = "host"
		}
	}
	return now
}

// groupsOfLastAnswer returns the groups that calls in the model's last answer open. changed reports whether any call opens
// or closes groups. v is the view with which the model answered.
func (r *run) groupsOfLastAnswer(v *toolkit.View) (opened []string, changed bool) {
	for _, m := range slices.Backward(r.st.Messages) {
		if m.Role == message.RoleAssistant {
			for _, c := range m.ToolCalls() {
				if v.ChangesGroups(c.Name) {
					opened, changed = append(opened, v.Opens(c.Name, c.Input)...), true
				}
			}
			break
		}
	}
	return opened, changed
}

// textPart returns the part for a text. The digest is that of the redacted text, so that nobody can guess secrets by it.
func (r *run) textPart(kind, name string, text []byte) event.Part {
	clean := text
	if r.cfg.Redact != nil {
		clean = []byte(r.cfg.Redact.Text(string(text)))
	}
	return event.Part{Kind: kind, Name: name, Digest: hash(clean), Bytes: len(text)}
}

func (r *run) messagePart(m *message.Message) event.Part {
	p := r.textPart("message", string(m.Role), appendContent(nil, m.Blocks))
	p.Data = len(window.DataIn(m.Blocks))
	if len(m.Blocks) > 0 {
		if _, ok := m.Blocks[0].(*message.Hint); ok {
			p.Name = "hint"
		}
	}
	return p
}

// appendContent appends to text what a model reads of blocks.
func appendContent(text []byte, blocks message.Blocks) []byte {
	add := func(kind byte, fields ...string) {
		text = append(text, kind)
		for _, f := range fields {
			text = append(append(text, f...), 0)
		}
	}
	for _, b := range blocks {
		switch b := b.(type) {
		case *message.Text:
			add('t', b.Text)
		case *message.Thinking:
			add('k', b.Text, string(b.Extra))
		case *message.Hint:
			add('h', b.Source, b.Text)
		case *message.Data:
			add('d', b.Name, b.MediaType, b.URL, string(b.Bytes))
		case *message.ToolCall:
			add('c', b.ID, b.Name, string(b.Input))
		case *message.ToolResult:
			add('r', b.ID, b.Name, string(b.Outcome))
			text = appendContent(text, b.Blocks)
		case *message.Unknown:
			if data, err := json.Marshal(b); err == nil { // the block was JSON, so it always encodes
				add('u', string(data))
			}
		}
	}
	return text
}

// changePart returns the part for a change of the tools.
func changePart(c *model.ToolChange) event.Part {
	p := event.Part{Kind: "change"}
	var names []string
	for i := range c.Add {
		names = append(names, "+"+c.Add[i].Name)
		p.Bytes += len(c.Add[i].Name) + len(c.Add[i].Description) + len(c.Add[i].Input)
	}
	for _, name := range c.Remove {
		names = append(names, "-"+name)
	}
	p.Name = strings.Join(names, " ")
	if data, err := json.Marshal(changeToJSON(c)); err == nil { // names and hashes always encode
		p.Digest = hash(data)
	}
	return p
}
