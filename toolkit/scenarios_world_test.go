package toolkit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/kitbag-go/kitbag/internal/groupcase"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A world is a toolkit under the rules of one system, and what has happened to
// it. Adapters build it and translate the steps into calls of the package.
type world struct {
	t      testing.TB
	sc     groupcase.Scenario
	tk     *toolkit.Toolkit
	err    error // of the construction
	scope  *toolkit.Scope
	ops    map[string]func(groupcase.Step) outcome
	hidden func(*toolkit.HiddenError) string // in the system's own words

	mu      sync.Mutex
	changes []toolkit.Change // since the step began
	ran     []string         // hooks, since the step began
	flags   map[string]bool
	cursor  string
}

// An outcome is what a step did, as far as the world itself cannot tell.
type outcome struct {
	err     error
	failed  bool // the tool ran and its result is an error
	changed int  // transitions that changed something
	text    string
	result  map[string]any
	value   any
	visible []string
	groups  any
	names   []string
	unknown []string
}

func newWorld(t testing.TB, sc groupcase.Scenario, cfg toolkit.Config, err error) *world {
	w := &world{t: t, sc: sc, scope: new(toolkit.Scope), flags: map[string]bool{}}
	w.hidden = func(e *toolkit.HiddenError) string { return e.Error() }
	w.build(cfg, err)
	return w
}

func (w *world) build(cfg toolkit.Config, err error) {
	if err == nil {
		w.tk, err = toolkit.New(cfg)
	}
	if w.err = err; err != nil {
		return
	}
	w.tk.OnChange(func(c toolkit.Change) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changes = append(w.changes, c)
	})
}

func (w *world) begin() { w.changes, w.ran = nil, []string{} }

func (w *world) view() *toolkit.View {
	v, err := w.tk.View(context.Background(), w.scope)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) visible() []string {
	names := []string{}
	for _, i := range w.view().Tools() {
		names = append(names, i.Name)
	}
	return names
}

func (w *world) active() []string {
	names := []string{}
	for _, g := range w.tk.Groups(w.scope) {
		if g.Active {
			names = append(names, g.Name)
		}
	}
	return names
}

func (w *world) flag(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flags[name]
}

// call resolves and runs a call. Arguments are not repaired before, which would
// make good what some rows want refused.
func (w *world) call(name string, input json.RawMessage) outcome {
	v := w.view()
	tl, input, err := v.Resolve(context.Background(), name, input)
	if err != nil {
		return outcome{err: err}
	}
	c := tool.Call{ID: "1", Name: tl.Info().Name, Input: input}
	var cause error
	keep := func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				for chunk, err := range next(ctx, t, call) {
					cause = errors.Join(cause, err)
					if !yield(chunk, err) {
						return
					}
				}
			}
		}
	}
	col := tool.NewCollector(c)
	for chunk, err := range tool.Run(context.Background(), tl, c, keep) {
		if err != nil {
			return outcome{err: err}
		}
		col.Add(chunk)
	}
	res := col.Result()
	out := outcome{err: cause, failed: res.Outcome == message.OutcomeError}
	for _, b := range res.Blocks {
		if text, ok := b.(*message.Text); ok {
			out.text += text.Text
		}
	}
	if len(res.Structured) > 0 {
		groupcase.Decode(w.t, res.Structured, &out.result)
	}
	return out
}

func (w *world) callStep(s groupcase.Step) outcome {
	return w.call(groupcase.Arg[string](w.t, s, "tool"), json.RawMessage("{}"))
}

// list is the op that looks at the tools.
func (w *world) list(s groupcase.Step) outcome {
	if name := groupcase.Arg[string](w.t, s, "describe"); name != "" {
		for _, i := range w.view().Tools() {
			if i.Name == name {
				return outcome{text: i.Description}
			}
		}
		return outcome{err: errors.New(name + " is not listed")}
	}
	items, next, err := w.view().Page(groupcase.Arg[string](w.t, s, "cursor"), 0)
	w.cursor = next
	out := outcome{err: err}
	for _, i := range items {
		out.visible = append(out.visible, i.Name)
	}
	return out
}

// unregister removes a tool; its value is the tool's name if it was there.
func (w *world) unregister(s groupcase.Step) outcome {
	name := groupcase.Arg[string](w.t, s, "name", "tool")
	before := w.view().Digest()
	out := outcome{err: w.tk.Remove(name)}
	if w.view().Digest() != before {
		out.value, out.changed = name, 1
	}
	return out
}

// construct is the step that only asks whether the construction went well.
func (w *world) construct(groupcase.Step) outcome { return outcome{err: w.err} }

func (w *world) methods() []string {
	out := []string{}
	for _, c := range w.changes {
		if c.Groups {
			out = append(out, "notifications/groups/list_changed")
		}
		if c.Tools {
			out = append(out, "notifications/tools/list_changed")
		}
	}
	return out
}

// listChanges counts the changes of the list of tools: a group that is opened is a change
// too, but none that a client hears of.
func (w *world) listChanges() int {
	n := 0
	for _, c := range w.changes {
		n += btoi(c.Tools)
	}
	return n
}

// capabilities are what a server would declare for the toolkit.
func (w *world) capabilities() map[string]any {
	if len(w.tk.Groups(nil)) == 0 {
		return map[string]any{}
	}
	return map[string]any{"groups": map[string]any{"listChanged": true}}
}

var errNoMethod = errors.New("the server does not know groups")

// listGroups is groups/list.
func (w *world) listGroups(s groupcase.Step) outcome {
	if len(w.tk.Groups(nil)) == 0 && len(w.sc.Groups) == 0 {
		return outcome{err: errNoMethod}
	}
	cursor := groupcase.Arg[string](w.t, s, "cursor")
	if cursor == "$next" {
		cursor = w.cursor
	}
	page, next, err := w.tk.PageGroups(nil, cursor, w.sc.Config.PageSize)
	w.cursor = next
	out := outcome{err: err, names: []string{}}
	var rows []map[string]string
	for _, g := range page {
		out.names = append(out.names, g.Name)
		row := map[string]string{"name": g.Name}
		for key, v := range map[string]string{"title": g.Title, "description": g.Description} {
			if v != "" {
				row[key] = v
			}
		}
		rows = append(rows, row)
	}
	out.groups = rows
	slices.Sort(out.names)
	return out
}

// A fake is a tool that says its name, or fails.
type fake struct {
	name, text string
	fail       *bool
	labels     []string
}

func (f *fake) Info() tool.Info {
	return tool.Info{Name: f.name, Description: "Does " + f.name + ".", Input: json.RawMessage(`{"type":"object"}`)}
}

func (f *fake) Labels() []string { return f.labels }

func (f *fake) Call(context.Context, tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		if f.fail != nil && *f.fail {
			yield(tool.Chunk{}, errors.New("it went wrong"))
			return
		}
		yield(tool.Text(f.text), nil)
	}
}

func fakes(names ...string) []tool.Tool {
	var out []tool.Tool
	for _, n := range names {
		out = append(out, &fake{name: n, text: n})
	}
	return out
}

// hook returns a hook that notes that it ran, and fails if it is to.
func (w *world) hook(sign, group, kind string) func(context.Context) error {
	if kind == "" {
		return nil
	}
	return func(context.Context) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ran = append(w.ran, sign+group)
		if kind == "fail" {
			return fmt.Errorf("hook failed: %s%s", sign, group)
		}
		return nil
	}
}
