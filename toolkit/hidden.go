package toolkit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/near"
	"github.com/kitbag-go/kitbag/tool"
)

// A HiddenError means that a call names a tool that is hidden or does not exist. Its
// text is for the model; with [Tmcp] and [TrustGraph] it is the same in both cases.
// The fields are for the host.
type HiddenError struct {
	Tool    string
	Known   bool     // the tool exists, and the ceiling grants it
	Groups  []string // granted groups that have it, sorted; empty if one of them is open
	Phase   string   // the current phase, if it hides the tool
	Nearest []string // visible tools with similar names, if the tool is not known
	Active  []string // the open groups that the ceiling grants, in order of activation

	text string
}

func (e *HiddenError) Error() string { return e.text }

// Resolve returns the tool and the arguments for a call. Both are those of the call,
// except for call_tool of [Discover], which names another tool. The error is a
// [*HiddenError], or says what is wrong with the arguments of call_tool; its text is for
// the model. With [Discover] it may list sources that were never listed, which ends with
// ctx.
//
// Opening has the groups that other calls of the same model answer open; see [View.Opens].
// The error for a tool of these groups tells the model to call it in its next answer.
func (v *View) Resolve(ctx context.Context, name string, input json.RawMessage, opening ...string) (tool.Tool, json.RawMessage, error) {
	b := v.body
	if t := v.controlTool(name); t != nil {
		if name == b.c.control.Caller {
			return v.forward(ctx, input)
		}
		return t, input, nil
	}
	if e, ok := b.c.find(name, b.r); ok {
		return e.tool, input, nil
	}
	return nil, nil, b.hidden(name, opening)
}

// Opens returns the groups that a call of the named tool asks to open, with arguments
// as the model sent them; nil if it is not a control tool or its arguments are invalid.
func (v *View) Opens(name string, input json.RawMessage) []string {
	opens := v.body.c.control.Opens
	if opens == nil || v.controlTool(name) == nil {
		return nil
	}
	return opens(v.tk, v.scope, name, input)
}

// controlTool returns the control tool of a name, or nil.
func (v *View) controlTool(name string) tool.Tool {
	for _, t := range v.control() {
		if t.Info().Name == name {
			return t
		}
	}
	return nil
}

// forward finds the tool that a call of the [Control.Caller] names. A tool that the view's
// catalogue does not have may be in a source that was never listed, so forward then lists all
// granted sources and looks the tool up again, with the same gates.
func (v *View) forward(ctx context.Context, input json.RawMessage) (tool.Tool, json.RawMessage, error) {
	b := v.body
	name, args, err := b.c.control.Forward(input)
	if err != nil {
		return nil, nil, err
	}
	if e, ok := b.c.find(name, b.c.reach(b.r)); ok {
		return e.tool, args, nil
	}
	c, r, err := v.tk.loadAll(ctx, v.scope)
	if err != nil {
		return nil, nil, err
	}
	e, ok := c.find(name, r)
	if !ok {
		return nil, nil, c.hiddenFromSearch(name, r)
	}
	return e.tool, args, nil
}

// ChangesGroups reports whether calls of the tool change which groups are open. Such calls run after
// the other calls of the same model answer, and take effect in the next View.
func (v *View) ChangesGroups(name string) bool {
	t := v.controlTool(name)
	return t != nil && name != v.body.c.control.Caller && !t.Info().ReadOnly
}

// hidden returns the error for a name that no visible tool has, in a model answer that opens
// the groups in opening. A tool that the ceiling does not grant is treated as unknown.
func (b *body) hidden(name string, opening []string) *HiddenError {
	e := &HiddenError{Tool: name, Active: b.c.activeNames(b.r)}
	for _, en := range b.c.named(name) {
		if b.c.granted(en, b.r) {
			e.Known = true
			b.explain(e, en)
		}
	}
	if e.Known && !b.c.rules.opaque {
		e.text = b.advise(e, opening)
		return e
	}
	e.Nearest = b.nearest(name)
	unlisted, likely := b.c.unlisted(name, b.r)
	switch {
	case likely || len(unlisted) > 0 && len(e.Nearest) == 0:
		e.text = fmt.Sprintf("tool %q is not in your list; it may be in %s", name, b.c.closed(name, unlisted, opening, b.r, len(unlisted) == 1))
	case len(e.Nearest) > 0:
		e.text = fmt.Sprintf("there is no tool %q; did you mean %s?", name, strings.Join(e.Nearest, " or "))
	default:
		e.text = fmt.Sprintf("there is no tool %q", name)
	}
	if failed := b.c.failedSources(b.r); len(failed) > 0 {
		e.text += "; it may be one of those that could not be listed: " + strings.Join(failed, "; ")
	}
	return e
}

// activeNames returns the open groups that the ceiling grants.
func (c *catalogue) activeNames(r *resolved) []string {
	return c.names(slices.DeleteFunc(slices.Clone(r.order), func(g int) bool { return !c.grantsGroup(g, r.ceiling) }))
}

// explain records in e which gates are closed for a tool.
func (b *body) explain(e *HiddenError, en *entry) {
	c := b.c
	if !c.inPhase(en, b.r) {
		e.Phase = b.r.phase
	}
	if c.member(en, b.r) {
		return
	}
	e.Groups = append(e.Groups, c.grantedNames(en, b.r)...)
	slices.Sort(e.Groups)
	e.Groups = slices.Compact(e.Groups)
}

// advise returns the error text for a known tool that is hidden: where it is, and how to open its group.
func (b *body) advise(e *HiddenError, opening []string) string {
	if len(e.Groups) == 0 {
		if e.Phase != "" {
			return fmt.Sprintf("tool %q is not available in the current phase, %q", e.Tool, e.Phase)
		}
		return fmt.Sprintf("tool %q is not available at the moment", e.Tool)
	}
	if c := b.c.control; c.Caller != "" {
		return fmt.Sprintf("tool %q is not in your list; %s", e.Tool, c.hint(e.Tool, nil, nil))
	}
	return fmt.Sprintf("tool %q is in %s", e.Tool, b.c.closed(e.Tool, e.Groups, opening, b.r, true))
}

// closed describes groups of which one must be open: the one that this model answer opens, or else all.
// If anyWillDo is set it adds how to open the first group, after its parents. The hint includes the
// groups that are open now, since a control that takes the full state would otherwise close them.
func (c *catalogue) closed(name string, groups, opening []string, r *resolved, anyWillDo bool) string {
	for _, g := range groups {
		if slices.Contains(opening, g) {
			return fmt.Sprintf("the group %q, which opens after this step: call it again then", g)
		}
	}
	text := fmt.Sprintf("the group %q, which is closed", groups[0])
	if len(groups) > 1 {
		text = fmt.Sprintf("one of the groups %s, which are closed", strings.Join(groups, ", "))
	}
	if !anyWillDo {
		return text
	}
	g := c.index[groups[0]]
	want := append(c.missing(g, r.order), g)
	var stay []int // groups that can stay open
	for _, i := range r.order {
		if !slices.ContainsFunc(want, func(w int) bool { return c.excludes(w, i) }) {
			stay = append(stay, i)
		}
	}
	if hint := c.control.hint(name, c.grantedOf(c.names(stay), r.ceiling), c.grantedOf(c.names(want), r.ceiling)); hint != "" {
		text += ": " + hint + " first"
	}
	return text
}

// unlisted returns the closed groups that may have a tool of the name, because they
// have sources that were never listed. If the name begins with the name of such a group or
// source, it returns only those groups, and likely is true.
func (c *catalogue) unlisted(name string, r *resolved) (groups []string, likely bool) {
	if c.control.Caller != "" || c.rules.opaque {
		return nil, false
	}
	var prefixed []string
	for i, g := range c.groups {
		if r.open[i] || !c.grantsGroup(i, r.ceiling) {
			continue
		}
		never := slices.DeleteFunc(slices.Clone(g.sources), func(s *source) bool { return c.built[s] != nil })
		if len(never) == 0 {
			continue
		}
		groups = append(groups, g.Name)
		if strings.HasPrefix(name, g.Name) || slices.ContainsFunc(never, func(s *source) bool { return strings.HasPrefix(name, s.name) }) {
			prefixed = append(prefixed, g.Name)
		}
	}
	if len(prefixed) > 0 {
		return prefixed, true
	}
	return groups, false
}

// nearest returns up to three visible tools whose names resemble the one given,
// the most similar first. For a name that suggests reading, such as get_x, it leaves out
// tools that may write.
func (b *body) nearest(name string) []string {
	verb := readingPrefix(name)
	var names []string
	for _, i := range b.infos {
		if verb == nil || i.ReadOnly || slices.Equal(readingPrefix(i.Name), verb) {
			names = append(names, i.Name)
		}
	}
	return near.Names(name, names, 3)
}

// readingVerbs are words in the names of tools that only read.
var readingVerbs = []string{"read", "get", "list", "show", "view", "find", "search", "query", "fetch", "look", "lookup",
	"describe", "inspect", "check", "count", "grep", "glob", "cat", "stat"}

// readingPrefix returns the words of a tool's name up to the first reading verb; nil if
// it has none.
func readingPrefix(name string) []string {
	ws := words(name)
	at := slices.IndexFunc(ws, func(w string) bool { return slices.Contains(readingVerbs, w) })
	if at < 0 {
		return nil
	}
	return ws[:at+1]
}
