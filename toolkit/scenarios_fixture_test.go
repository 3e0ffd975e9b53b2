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

// A fixture is a toolkit under the rules of one system, and a record of what has happened to
// it. Adapters build it and translate the steps into calls of the package.
type fixture struct {
	t      testing.TB
	sc     groupcase.Scenario
	tk     *toolkit.Toolkit
	err    error // of New
	scope  *toolkit.Scope
	ops    map[string]func(groupcase.Step) outcome
	hidden func(*toolkit.HiddenError) string // the error text of the system

	mu      sync.Mutex
	changes []toolkit.Change // since the step began
	ran     []string         // hooks that ran since the step began
	flags   map[string]bool
	cursor  string
}

// An outcome is the result of a step.
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

func newFixture(t testing.TB, sc groupcase.Scenario, cfg toolkit.Config, err error) *fixture {
	w := &fixture{t: t, sc: sc, scope: new(toolkit.Scope), flags: map[string]bool{}}
	w.hidden = func(e *toolkit.HiddenError) string { return e.Error() }
	w.build(cfg, err)
	return w
}

func (w *fixture) build(cfg toolkit.Config, err error) {
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

func (w *fixture) begin() { w.changes, w.ran = nil, []string{} }

func (w *fixture) view() *toolkit.View {
	v, err := w.tk.View(context.Background(), w.scope)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *fixture) visible() []string {
	names := []string{}
	for _, i := range w.view().Tools() {
		names = append(names, i.Name)
	}
	return names
}

func (w *fixture) active() []string {
	names := []string{}
	for _, g := range w.tk.Groups(w.scope) {
		if g.Active {
			names = append(names, g.Name)
		}
	}
	return names
}

func (w *fixture) flag(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flags[name]
}

// call resolves and runs a call. Unlike an agent it does not repair arguments, since
// some scenarios expect an error for them.
func (w *fixture) call(name string, input json.RawMessage) outcome {
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

func (w *fixture) callStep(s groupcase.Step) outcome {
	return w.call(groupcase.Arg[string](w.t, s, "tool"), json.RawMessage("{}"))
}

// list is the op that lists tools or describes one.
func (w *fixture) list(s groupcase.Step) outcome {
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
func (w *fixture) unregister(s groupcase.Step) outcome {
	name := groupcase.Arg[string](w.t, s, "name", "tool")
	before := w.view().Digest()
	out := outcome{err: w.tk.Remove(name)}
	if w.view().Digest() != before {
		out.value, out.changed = name, 1
	}
	return out
}

// construct is the op that returns the error of New.
func (w *fixture) construct(groupcase.Step) outcome { return outcome{err: w.err} }

func (w *fixture) methods() []string {
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

// listChanges counts the changes of the list of tools. Opening a group is a change
// too, but a client is only notified of the list.
func (w *fixture) listChanges() int {
	n := 0
	for _, c := range w.changes {
		n += btoi(c.Tools)
	}
	return n
}

// capabilities returns what a server would declare for the toolkit.
func (w *fixture) capabilities() map[string]any {
	if len(w.tk.Groups(nil)) == 0 {
		return map[string]any{}
	}
	return map[string]any{"groups": map[string]any{"listChanged": true}}
}

var errNoMethod = errors.New("the server has no groups")

// listGroups is the op groups/list.
func (w *fixture) listGroups(s groupcase.Step) outcome {
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

// A fake is a tool that answers with a text, or fails.
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
			yield(tool.Chunk{}, errors.New("failed"))
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

// hook returns a hook that records that it ran, and fails if kind is "fail".
func (w *fixture) hook(sign, group, kind string) func(context.Context) error {
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
