package agent

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
)

// A sent has the parts of the last request to the model, in the order in which a provider's cache sees them. The
// next [event.ModelStart] reports only those that differ.
type sent struct {
	parts []event.Part
	of    []any // what each part was made of, comparable: the same needs no new digest

	text []byte // for addBlocks, with the number of images and files in data
	data int
}

// A sentTool identifies a tool in the list with a digest.
type sentTool struct {
	list string
	at   int
}

// recordRequest puts into start how the request differs from the one before, for a session that is saved.
func (r *run) recordRequest(req *model.Request, start *event.ModelStart) {
	if r.cfg.Save == nil {
		return
	}
	if r.st.sent == nil {
		r.st.sent = new(sent)
	}
	s, same, differs := r.st.sent, 0, false
	put := func(of any, part func() event.Part) {
		if !differs && same < len(s.parts) {
			if s.of[same] == of {
				same++
				return
			}
			if part() == s.parts[same] {
				s.of[same] = of
				same++
				return
			}
		}
		if !differs {
			differs = true
			s.parts, s.of = s.parts[:same], s.of[:same]
		}
		s.parts, s.of = append(s.parts, part()), append(s.of, of)
	}
	tools, digest, changes := req.Tools, req.Digest, []*model.ToolChange(nil)
	if v := req.Reveal; v != nil {
		tools, digest, changes = v.Head, v.Digest, v.Changes
	}
	for i := range tools {
		t := &tools[i]
		put(sentTool{digest, i}, func() event.Part {
			text := slices.Concat([]byte(t.Name), []byte{0}, []byte(t.Description), []byte{0}, t.Input)
			return event.Part{Kind: "tool", Name: t.Name, Digest: hash(text), Bytes: len(text) - 2}
		})
	}
	put(req.System, func() event.Part { return r.partOf("system", "", []byte(req.System)) })
	for i, m := range req.Messages {
		for len(changes) > 0 && changes[0].At <= i {
			put(changes[0], func() event.Part { return r.partOfChange(changes[0]) })
			changes = changes[1:]
		}
		put(m, func() event.Part { return r.partOfMessage(m) })
	}
	for _, c := range changes {
		put(c, func() event.Part { return r.partOfChange(c) })
	}
	if !differs { // it is the beginning of the one before
		s.parts, s.of = s.parts[:same], s.of[:same]
	}
	start.Same, start.Parts = same, slices.Clone(s.parts[same:])
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
func (s *sent) addBlocks(blocks message.Blocks) {
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

// partOfChange is the part for tools that the model was told of late.
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
