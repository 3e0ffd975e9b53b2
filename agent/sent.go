package agent

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/toolkit"
)

// sentParts are the parts of the last request to the model, in the order in which a provider's cache sees them. The
// next [event.ModelStart] reports only those that differ.
type sentParts struct {
	parts   []event.Part
	sources []any // what each part was made of; a part of an equal source needs no new digest

	view   *toolkit.View // the view that groups describes
	groups []event.Group

	text []byte // for addBlocks, with the number of images and files in data
	data int
}

// A sentTool identifies a tool by the digest of the whole list of tools and its index in it.
type sentTool struct {
	digest string
	index  int
}

// recordRequest puts into start how the request differs from the one before, for a session that is saved.
func (r *run) recordRequest(req *model.Request, start *event.ModelStart) {
	if r.cfg.Save == nil {
		return
	}
	if r.st.sent == nil {
		r.st.sent = new(sentParts)
	}
	s, same, differs := r.st.sent, 0, false
	add := func(source any, part func() event.Part) {
		if !differs && same < len(s.parts) && (s.sources[same] == source || part() == s.parts[same]) {
			s.sources[same] = source
			same++
			return
		}
		if !differs {
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
			return event.Part{Kind: "tool", Name: t.Name, Digest: hash(text), Bytes: len(text) - 2}
		})
	}
	add(req.System, func() event.Part { return r.partOf("system", "", []byte(req.System)) })
	for i, m := range req.Messages {
		for len(changes) > 0 && changes[0].At <= i {
			add(changes[0], func() event.Part { return r.partOfChange(changes[0]) })
			changes = changes[1:]
		}
		add(m, func() event.Part { return r.partOfMessage(m) })
	}
	for _, c := range changes {
		add(c, func() event.Part { return r.partOfChange(c) })
	}
	if !differs { // the request is the beginning of the previous one
		s.parts, s.sources = s.parts[:same], s.sources[:same]
	}
	start.Same, start.Parts = same, slices.Clone(s.parts[same:])
	start.Groups = r.changedGroups()
}

// changedGroups returns all groups and who opened or closed them; nil if nothing has changed since the previous request.
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
	before, previous := s.groups, s.view
	s.groups, s.view = now, v
	if slices.Equal(before, now) {
		return nil
	}
	now = slices.Clone(now)
	if previous == nil { // the first request
		return now
	}
	became := func(name string, open bool) bool {
		is := func(g event.Group) bool { return g.Name == name && g.Open == open }
		return slices.ContainsFunc(now, is) && !slices.ContainsFunc(before, is)
	}
	asked, byModel := r.askedGroups(previous)
	exclusive := r.cfg.Toolkit.Config().Exclusive
	for i := range now {
		g := &now[i]
		forced := slices.ContainsFunc(exclusive, func(set []string) bool {
			return slices.Contains(set, g.Name) && slices.ContainsFunc(set, func(name string) bool { return became(name, true) })
		}) || slices.ContainsFunc(infos[i].Parents, func(name string) bool { return became(name, false) })
		switch {
		case !became(g.Name, g.Open):
		case !g.Open && forced:
			g.By = "rule"
		case infos[i].ByUser:
			g.By = "user"
		case byModel && (!g.Open || slices.Contains(asked, g.Name)):
			g.By = "model"
		default:
			g.By = "host"
		}
	}
	return now
}

// askedGroups returns the groups that the model's last answer opened, by control tools of its view, and whether it
// called one that opens or closes groups.
func (r *run) askedGroups(v *toolkit.View) (groups []string, called bool) {
	for _, m := range slices.Backward(r.st.Messages) {
		if m.Role == message.RoleAssistant {
			for _, c := range m.ToolCalls() {
				if v.ChangesGroups(c.Name) {
					groups, called = append(groups, v.Opens(c.Name, c.Input)...), true
				}
			}
			break
		}
	}
	return groups, called
}

// partOf makes a part of text. Its digest reveals nothing of what Config.Redact removes.
func (r *run) partOf(kind, name string, text []byte) event.Part {
	clean := text
	if r.cfg.Redact != nil {
		clean = []byte(r.cfg.Redact.Text(string(text)))
	}
	return event.Part{Kind: kind, Name: name, Digest: hash(clean), Bytes: len(text)}
}

func (r *run) partOfMessage(m *message.Message) event.Part {
	s := r.st.sent
	s.text, s.data = s.text[:0], 0
	s.addBlocks(m.Blocks)
	p := r.partOf("message", string(m.Role), s.text)
	if cap(s.text) > 1<<20 { // not kept for the rest of the conversation
		s.text = nil
	}
	if p.Data = s.data; len(m.Blocks) > 0 {
		if _, ok := m.Blocks[0].(*message.Hint); ok {
			p.Name = "hint"
		}
	}
	return p
}

// addBlocks adds to text what a model reads of blocks. It is much cheaper than JSON, and each message of a long
// conversation is written once.
func (s *sentParts) addBlocks(blocks message.Blocks) {
	add := func(kind byte, fields ...string) {
		s.text = append(s.text, kind)
		for _, f := range fields {
			s.text = append(append(s.text, f...), 0)
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
			s.data++
			add('d', b.Name, b.MediaType, b.URL, string(b.Bytes))
		case *message.ToolCall:
			add('c', b.ID, b.Name, string(b.Input))
		case *message.ToolResult:
			add('r', b.ID, b.Name, string(b.Outcome))
			s.addBlocks(b.Blocks)
		case *message.Unknown:
			data, err := json.Marshal(b)
			if err == nil { // it was JSON when it was decoded
				add('u', string(data))
			}
		}
	}
}

// partOfChange makes the part of a later change of the tools.
func (r *run) partOfChange(c *model.ToolChange) event.Part {
	var names []string
	size := 0
	for i := range c.Add {
		names = append(names, "+"+c.Add[i].Name)
		size += len(c.Add[i].Name) + len(c.Add[i].Description) + len(c.Add[i].Input)
	}
	for _, name := range c.Remove {
		names = append(names, "-"+name)
	}
	p := r.partOf("change", strings.Join(names, " "), nil)
	stored, err := json.Marshal(storedChange(c))
	if err == nil { // names and hashes always encode
		p.Digest = hash(stored)
	}
	p.Bytes = size
	return p
}
