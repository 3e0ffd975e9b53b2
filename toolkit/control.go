package toolkit

import (
	"context"
	"encoding/json"
	"iter"
	"slices"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A Control provides the tools with which a model opens and closes groups. The package
// has [ResetTools], [EnableDisable], [PerGroup], [Discover] and [NoControl].
type Control interface {
	// Tools returns the control tools for a scope, which is nil when only their
	// names matter. Groups are those that the scope's ceiling grants: never
	// name others. The tools call [Toolkit.Enable], [Toolkit.Disable] or
	// [Toolkit.Set]; their Info must have Control set. Those that are not
	// read-only run after the other calls of an answer; see [View.ChangesGroups].
	Tools(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool

	// Hint tells the model how to open the groups named in want, in order, while
	// those named in active stay open: an imperative phrase, such as `call open with
	// {"group":"db"}`. It is empty if the model cannot open groups.
	Hint(active, want []string) string
}

// steadyControl is implemented by controls whose Info values depend only on the groups
// that the ceiling grants, not on which are open.
type steadyControl interface{ steady() bool }

// NoControl returns the control without tools: only the host opens groups.
func NoControl() Control { return noControl{} }

type noControl struct{}

func (noControl) Tools(*Toolkit, *Scope, []GroupInfo) []tool.Tool { return nil }
func (noControl) Hint(_, _ []string) string                       { return "" }
func (noControl) steady() bool                                    { return true }

// controlTools returns the control tools, bound to the scope. There are none if the
// ceiling grants no group; one that the host replaced or hid is left out.
func (tk *Toolkit) controlTools(c *catalogue, s *Scope, r *resolved) []tool.Tool {
	var out []tool.Tool
	if c.hasSkills(r.ceiling) {
		out = append(out, newSkillViewer(tk, s))
	}
	if groups := c.infos(r); len(groups) > 0 {
		out = append(out, c.control.Tools(tk, s, groups)...)
	}
	return slices.DeleteFunc(out, func(t tool.Tool) bool {
		name := t.Info().Name
		return len(c.named(name)) > 0 || slices.Contains(c.cfg.Hidden, name)
	})
}

// maxCeilings is how many ceilings controlInfos remembers before it forgets them.
const maxCeilings = 256

// controlInfos returns the definitions of controlTools. Those of a steady control are
// cached by ceiling: a schema of fifty groups costs more than the rest of a view.
func (tk *Toolkit) controlInfos(c *catalogue, s *Scope, r *resolved) []tool.Info {
	steady, ok := c.control.(steadyControl)
	keep := ok && steady.steady()
	if keep {
		if kept, ok := c.steady.Load(r.ceiling.String()); ok {
			return kept.([]tool.Info)
		}
	}
	var out []tool.Info
	for _, t := range tk.controlTools(c, s, r) {
		out = append(out, t.Info())
	}
	if keep {
		if c.kept.Add(1) > maxCeilings { // a caller may use a new ceiling each time
			c.steady.Clear()
			c.kept.Store(0)
		}
		c.steady.Store(r.ceiling.String(), out)
	}
	return out
}

// A controlTool is a control tool of this package.
type controlTool struct {
	info  tool.Info
	opens func(input json.RawMessage) []string // the groups that a call asks to open; nil for none
	run   func(ctx context.Context, input json.RawMessage) (answer, error)
}

// An answer is the result of a control tool: text for the model, and the same as
// structured data.
type answer struct {
	text string
	data any
}

func (t *controlTool) Info() tool.Info { return t.info }

func (t *controlTool) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		a, err := t.run(ctx, call.Input)
		if err != nil {
			yield(tool.Chunk{}, err)
			return
		}
		chunk := tool.Text(a.text)
		if a.data != nil {
			data, err := json.Marshal(a.data)
			if err != nil {
				yield(tool.Chunk{}, err)
				return
			}
			chunk.Structured = data
			if a.text == "" {
				chunk.Block = &message.Text{Text: string(data)}
			}
		}
		yield(chunk, nil)
	}
}

// schema returns the JSON Schema of an object with these properties, in this order, so
// that its bytes are the same every time. Further members are allowed: an unknown name
// reaches the tool, whose error lists the known ones.
func schema(required []string, properties ...property) json.RawMessage {
	b := []byte(`{"type":"object","properties":{`)
	for i, p := range properties {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(appendJSON(b, p.name), ':'), p.schema...)
	}
	b = append(b, '}')
	if len(required) > 0 {
		b = append(append(b, `,"required":`...), mustJSON(required)...)
	}
	return append(b, '}')
}

// A property of an object's schema, already encoded.
type property struct {
	name   string
	schema []byte
}

// prop returns a property; kind is the inside of its schema without the description.
func prop(name, kind, description string) property {
	b := append([]byte("{"), kind...)
	b = append(b, `,"description":`...)
	return property{name, append(appendJSON(b, description), '}')}
}

// appendJSON appends s as a JSON string.
func appendJSON(b []byte, s string) []byte { return append(b, mustJSON(s)...) }

// mustJSON encodes strings and lists of strings, which cannot fail.
func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
