package toolkit

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strconv"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
)

// A Control is how a model opens and closes groups: tools, and what the toolkit has to know about them. The package
// has [ResetTools], [EnableDisable], [PerGroup] and [Discover]. The zero Control has no tools, so that only the host
// opens groups. The functions must be safe for concurrent use. A nil function counts as a function with an empty result.
type Control struct {
	// Tools returns the control tools for a scope, which is nil if only their names matter. groups are those that
	// the scope's ceiling grants; the tools must not name other groups. The tools call [Toolkit.Enable],
	// [Toolkit.Disable] or [Toolkit.Set]; their Info must have Control set. Tools that are not read-only run after
	// the other calls of the same model answer; see [View.ChangesGroups].
	Tools func(tk *Toolkit, s *Scope, groups []GroupInfo) []tool.Tool

	// Static says that the Info of the tools depends on which groups exist, but not on
	// which groups are open. The toolkit then caches the Info.
	Static bool

	// Hint says how the model opens the groups in want, in order, while those in active stay open; with a Caller, how
	// it calls the named tool. The result is an imperative phrase, such as `call open with {"group":"db"}`, or empty
	// if the model cannot do that.
	Hint func(tool string, active, want []string) string

	// Opens returns the groups that a call of the named control tool asks to open, with
	// arguments as the model sent them; nil if they are invalid. See [View.Opens].
	Opens func(tk *Toolkit, s *Scope, name string, input json.RawMessage) []string

	// Caller is the name of the control tool that calls other tools, such as call_tool; empty if there is none.
	// The Caller never runs: [View.Resolve] returns the tool that Forward names. For these calls every group that
	// the ceiling grants counts as open.
	Caller string

	// Forward returns the call that the arguments of Caller describe. The error is for the
	// model. Forward must be set if Caller is set.
	Forward func(input json.RawMessage) (name string, args json.RawMessage, err error)
}

func (c *Control) hint(name string, active, want []string) string {
	if c.Hint == nil {
		return ""
	}
	return c.Hint(name, active, want)
}

// check returns an error if the fields contradict each other.
func (c *Control) check() error {
	switch {
	case (c.Caller == "") != (c.Forward == nil):
		return errors.New("Control: Caller and Forward must be set together")
	case c.Tools == nil && (c.Caller != "" || c.Opens != nil || c.Hint != nil):
		return errors.New("Control: Tools is nil, but other fields are set; set Tools too")
	}
	return nil
}

// Report returns the answer of a control tool after a transition: the open groups, the groups that were closed, the
// sources that could not be listed, and the tools, instructions and skills of the groups that were opened.
func (tk *Toolkit) Report(ctx context.Context, s *Scope, out Outcome) (*tool.Result, error) {
	a, err := tk.report(ctx, s, out, reportOptions{newOnly: true})
	return a.result(), err
}

// ReportAll is like Report, for a control whose calls name all groups that should be open: it
// includes the instructions and skills of all open groups, and their tools too if nothing has changed.
func (tk *Toolkit) ReportAll(ctx context.Context, s *Scope, out Outcome) (*tool.Result, error) {
	a, err := tk.report(ctx, s, out, reportOptions{closesOmitted: true, allTools: !out.Changed()})
	return a.result(), err
}

func (a answer) result() *tool.Result {
	return &tool.Result{Blocks: []message.Block{&message.Text{Text: a.text}}, Structured: a.data}
}

// controlTools returns the tool Skill and the tools of the Control, bound to the scope, without those that the host
// replaced or hid. The Control has no tools if the ceiling grants no group.
func (tk *Toolkit) controlTools(c *catalogue, s *Scope, r *scopeState) []tool.Tool {
	var out []tool.Tool
	if c.hasSkills(r.ceiling) {
		out = append(out, &skillViewer{tk, s})
	}
	if groups := c.groupInfos(r); len(groups) > 0 && c.control.Tools != nil {
		out = append(out, c.control.Tools(tk, s, groups)...)
	}
	return slices.DeleteFunc(out, func(t tool.Tool) bool {
		name := t.Info().Name
		return len(c.named(name)) > 0 || slices.Contains(c.cfg.Hidden, name)
	})
}

// maxCeilings is the number of ceilings at which the cache of controlInfos is cleared.
const maxCeilings = 256

// controlInfos returns the definitions of controlTools. For a static control it caches them
// by ceiling and by whether there are skills, since a schema of fifty groups costs more than the rest of a view.
func (tk *Toolkit) controlInfos(c *catalogue, s *Scope, r *scopeState) []tool.Info {
	key := strconv.FormatBool(c.hasSkills(r.ceiling)) + r.ceiling.String()
	if c.control.Static {
		if cached, ok := c.static.Load(key); ok {
			return cached.([]tool.Info)
		}
	}
	var out []tool.Info
	for _, t := range tk.controlTools(c, s, r) {
		out = append(out, t.Info())
	}
	if c.control.Static {
		if c.staticSize.Add(1) > maxCeilings { // a caller may use a new ceiling each time
			c.static.Clear()
			c.staticSize.Store(0)
		}
		c.static.Store(key, out)
	}
	return out
}

// A controlTool is a control tool of this package.
type controlTool struct {
	info  tool.Info
	scope *Scope
	run   func(ctx context.Context, s *Scope, input json.RawMessage) (answer, error)
}

// An answer is the result of a control tool: text for the model, and the same content as structured data.
type answer struct {
	text   string
	data   any
	failed bool // everything that the call asked for was refused
}

func (t *controlTool) Info() tool.Info { return t.info }

func (t *controlTool) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		a, err := t.run(ctx, t.scope, call.Input)
		if err != nil {
			yield(tool.Chunk{}, err)
			return
		}
		chunk := tool.Text(a.text)
		chunk.Failed = a.failed
		if a.data != nil {
			data, err := strictjson.Encode(a.data) // which leaves < as it is: models read \u003c badly
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

// schema returns the JSON Schema of an object with these properties, in this order, so that equal schemas have equal
// bytes. The object may have other members, so that an unknown name reaches the tool, whose error lists the known names.
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

// prop returns a property; kind is the content of its schema without the description.
func prop(name, kind, description string) property {
	b := append([]byte("{"), kind...)
	b = append(b, `,"description":`...)
	return property{name, append(appendJSON(b, description), '}')}
}

func appendJSON(b []byte, s string) []byte { return append(b, mustJSON(s)...) }

// mustJSON encodes a string or a list of strings, which cannot fail.
func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
