package toolkit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/near"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
)

// A HiddenError means that a call names a tool that is hidden or does not exist. The text is for the model; with
// [Tmcp] and [TrustGraph] the text does not tell which of the two. The fields are for the host.
type HiddenError struct {
	Tool    string
	Known   bool     // the tool exists, and the ceiling grants it
	Groups  []string // granted groups that have the tool, sorted; empty if one of them is open
	Phase   string   // the current phase, if it hides the tool
	Nearest []string // visible tools with similar names, if the tool is not known
	Active  []string // the open groups that the ceiling grants, in order of activation

	text string
}

func (e *HiddenError) Error() string { return e.text }

// Resolve returns the tool that a call runs, and its arguments. A call of call_tool ([Discover]) runs the tool that
// its arguments name. The error is a [*HiddenError], or says what is wrong with the arguments of call_tool; its text
// is for the model. With [Discover] Resolve may list sources that were never listed, until ctx ends.
//
// Opening names the groups that other calls of the same model answer will open; see [View.Opens].
// The error for a tool of these groups asks the model to call it in its next answer.
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
	e := b.hidden(name, opening)
	if !e.Known && v.hasSkill(ctx, name) {
		e.text = fmt.Sprintf(`%q is a skill, not a tool; read it with %s {"skill":%s}`, name, skillTool, mustJSON(name))
	}
	return nil, nil, e
}

func (v *View) hasSkill(ctx context.Context, name string) bool {
	skills, _, _ := v.tk.Skills(ctx, v.scope) // despite an error it returns the skills that can be loaded
	return slices.ContainsFunc(skills, func(s *skill.Skill) bool { return s.Name == name })
}

// Opens returns the groups that a call of the named tool asks to open, with arguments
// as the model sent them; nil if the tool is not a control tool or the arguments are invalid.
func (v *View) Opens(name string, input json.RawMessage) []string {
	opens := v.body.c.control.Opens
	if opens == nil || v.controlTool(name) == nil {
		return nil
	}
	return opens(v.tk, v.scope, name, input)
}

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
// granted sources and looks the tool up again, under the same rules.
func (v *View) forward(ctx context.Context, input json.RawMessage) (tool.Tool, json.RawMessage, error) {
	b := v.body
	name, args, err := b.c.control.Forward(input)
	if err != nil {
		return nil, nil, err
	}
	if e, ok := b.c.find(name, b.c.callState(b.r)); ok {
		return e.tool, args, nil
	}
	if v.controlTool(name) != nil {
		return nil, nil, fmt.Errorf("tool %q is in your list; call it directly, not with %s", name, b.c.control.Caller)
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
	for _, t := range b.c.named(name) {
		if b.c.granted(t, b.r) {
			e.Known = true
			b.addReasons(e, t)
		}
	}
	if e.Known && !b.c.rules.opaque {
		e.text = b.hiddenText(e, opening)
		return e
	}
	e.Nearest = b.nearest(name)
	e.text = b.unknownText(e, opening)
	return e
}

// unknownText returns the error text for a name that no tool has, or only tools that the model must not learn of.
func (b *body) unknownText(e *HiddenError, opening []string) string {
	if err := b.withheld(e.Tool); err != nil {
		return fmt.Sprintf("tool %q cannot be used: %v", e.Tool, err)
	}
	unlisted, certainty := b.c.unlisted(e.Tool, b.r)
	switch {
	case certainty == certain:
		return fmt.Sprintf("tool %q is in %s", e.Tool, b.c.closedText(e.Tool, unlisted, opening, b.r, true))
	case certainty == likely || len(unlisted) > 0 && len(e.Nearest) == 0:
		text := fmt.Sprintf("tool %q is not in your list; it may be in %s", e.Tool, b.c.closedText(e.Tool, unlisted, opening, b.r, len(unlisted) == 1))
		// The text has no hint for several groups, since the first may not have the tool. So suggest only to look.
		isOpening := slices.ContainsFunc(unlisted, func(g string) bool { return slices.Contains(opening, g) })
		if hint := b.c.control.hint(e.Tool, e.Active, unlisted[:1]); len(unlisted) > 1 && !isOpening && hint != "" {
			text += fmt.Sprintf("; to look into %s, %s", unlisted[0], hint)
		}
		return text
	}
	text := fmt.Sprintf("there is no tool %q", e.Tool)
	failures := b.c.grantedFailures(b.r)
	switch similar, group := b.nearestClosed(e.Tool); {
	case len(e.Nearest) > 0:
		text += "; did you mean " + joinOr(e.Nearest) + "?"
		if len(failures) > 0 {
			text += " It may also be one of those that could not be listed: " + strings.Join(failures, "; ")
		}
	case similar != "":
		text += fmt.Sprintf("; did you mean %s? It is in %s", similar, b.c.closedText(similar, []string{group}, opening, b.r, true))
	case len(failures) > 0:
		text += "; it may be one of those that could not be listed: " + strings.Join(failures, "; ")
	case b.c.control.Caller != "":
		text += "; look for one with " + searchTool
	default:
		text += "; use one from your list"
	}
	return text
}

// withheld returns the reason for which a source of a granted group does not list the tool, or nil; see [Group.Sources].
func (b *body) withheld(name string) error {
	for _, g := range b.c.allGroups() {
		isGranted := g.index < 0 || b.c.grantsGroup(g.index, b.r.ceiling) // basic tools may be in any group
		if b.c.rules.opaque || !isGranted {
			continue
		}
		for _, s := range g.sources {
			if w, ok := s.inner.(interface{ Withheld(string) error }); ok {
				if err := w.Withheld(name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// joinOr joins names with commas and a final "or".
func joinOr(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// activeNames returns the names of the open groups that the ceiling grants, in order of activation.
func (c *catalogue) activeNames(r *scopeState) []string {
	return c.onlyGranted(c.names(r.order), r.ceiling)
}

// addReasons records in e why t is hidden.
func (b *body) addReasons(e *HiddenError, t *entry) {
	if !b.c.inPhase(t, b.r) {
		e.Phase = b.r.phase
	}
	if b.c.inOpenGroup(t, b.r) {
		return
	}
	e.Groups = append(e.Groups, b.c.grantedNames(t, b.r)...)
	slices.Sort(e.Groups)
	e.Groups = slices.Compact(e.Groups)
}

// hiddenText returns the error text for a known tool that is hidden: where it is, and how to open its group.
func (b *body) hiddenText(e *HiddenError, opening []string) string {
	if len(e.Groups) == 0 {
		if e.Phase != "" {
			return fmt.Sprintf("tool %q is not available in the current phase, %q; use the tools in your list until the phase changes", e.Tool, e.Phase)
		}
		return fmt.Sprintf("tool %q is not available at the moment; use those in your list", e.Tool)
	}
	if c := b.c.control; c.Caller != "" {
		return fmt.Sprintf("tool %q is not in your list; %s", e.Tool, c.hint(e.Tool, nil, nil))
	}
	return fmt.Sprintf("tool %q is in %s", e.Tool, b.c.closedText(e.Tool, e.Groups, opening, b.r, true))
}

// closedText describes closed groups, one of which must be open for the tool: if this model answer opens one, only that
// group, otherwise all. With withHint it adds how to open the first group, after its parents. The hint includes the
// groups that are open now, since a control that takes the full state would otherwise close them.
func (c *catalogue) closedText(name string, groups, opening []string, r *scopeState, withHint bool) string {
	for _, g := range groups {
		if slices.Contains(opening, g) {
			return fmt.Sprintf("the group %q, which opens after this step: call it again then", g)
		}
	}
	text := fmt.Sprintf("the group %q, which is closed", groups[0])
	if len(groups) > 1 {
		text = fmt.Sprintf("one of the groups %s, which are closed", strings.Join(groups, ", "))
	}
	if !withHint {
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
	if hint := c.control.hint(name, c.onlyGranted(c.names(stay), r.ceiling), c.onlyGranted(c.names(want), r.ceiling)); hint != "" {
		text += ": " + hint + " first"
	}
	return text
}

// How certain it is that a closed group has a tool.
const (
	possible = iota
	likely
	certain
)

// unlisted returns the closed groups that may have the tool in a source that was never listed. The first of these sets
// that is not empty counts: groups whose source had the tool in an earlier run; groups whose name, or whose source's
// name, begins the tool's name; groups with a source whose tools are not known.
func (c *catalogue) unlisted(name string, r *scopeState) (groups []string, certainty int) {
	if c.control.Caller != "" || c.rules.opaque {
		return nil, possible
	}
	bare := strings.TrimPrefix(name, "mcp__") // an MCP server's tools have names such as mcp__SERVER__TOOL
	for i, g := range c.groups {
		if r.open[i] || !c.grantsGroup(i, r.ceiling) {
			continue
		}
		level := -1 // the group does not have the tool
		for _, s := range g.sources {
			switch {
			case c.listings[s] != nil: // the tool would be known
			case s.known != nil:
				if slices.Contains(s.known, name) {
					level = certain
				}
			case strings.HasPrefix(bare, g.Name) || strings.HasPrefix(bare, s.name):
				level = max(level, likely)
			default:
				level = max(level, possible)
			}
		}
		if level > certainty {
			groups, certainty = nil, level
		}
		if level == certainty {
			groups = append(groups, g.Name)
		}
	}
	return groups, certainty
}

// nearest returns up to three visible tools whose names resemble name, the most similar first. For a name
// that suggests reading, such as get_x, it leaves out tools that may write.
func (b *body) nearest(name string) []string {
	var names []string
	for _, i := range b.infos {
		if i.ReadOnly || mayReplace(name, i.Name) {
			names = append(names, i.Name)
		}
	}
	return near.Names(name, names, 3)
}

// nearestClosed returns the tool of a closed group whose name is most similar to name, and the group.
func (b *body) nearestClosed(name string) (toolName, groupName string) {
	c := b.c
	if c.control.Caller != "" || c.rules.opaque {
		return "", ""
	}
	var names []string
	groupOf := map[string]string{}
	add := func(tool string, g *group) {
		if groupOf[tool] == "" && mayReplace(name, tool) {
			names, groupOf[tool] = append(names, tool), g.Name
		}
	}
	for i, g := range c.groups {
		if b.r.open[i] || !c.grantsGroup(i, b.r.ceiling) {
			continue
		}
		for _, e := range g.entries {
			add(e.name, g)
		}
		for _, s := range g.sources {
			if c.listings[s] == nil {
				for _, tool := range s.known {
					add(tool, g)
				}
			}
		}
	}
	similar := near.Names(name, names, 1)
	if len(similar) == 0 {
		return "", ""
	}
	return similar[0], groupOf[similar[0]]
}

// mayReplace reports whether a tool may be suggested for a name. For a name that suggests reading, such as db_get_x,
// the tool's name must begin in the same way, but may have another plain verb, as in db_list_x.
func mayReplace(name, tool string) bool {
	want, have := readingPrefix(name), readingPrefix(tool)
	if want == nil || slices.Equal(want, have) {
		return true
	}
	last := len(want) - 1
	return last == len(have)-1 && slices.Equal(want[:last], have[:last]) && slices.Contains(plainVerbs, want[last]) && slices.Contains(plainVerbs, have[last])
}

// plainVerbs are the readingVerbs that rarely mean something else, as check does in "check out".
var plainVerbs = []string{"read", "get", "list", "show", "view", "find", "search", "describe", "fetch"}

// readingVerbs are words in the names of tools that only read.
var readingVerbs = []string{"read", "get", "list", "show", "view", "find", "search", "query", "fetch", "look", "lookup",
	"describe", "inspect", "check", "count", "grep", "glob", "cat", "stat"}

// readingPrefix returns the words of a tool's name up to and including the first reading verb; nil if there is none.
func readingPrefix(name string) []string {
	ws := words(name)
	at := slices.IndexFunc(ws, func(w string) bool { return slices.Contains(readingVerbs, w) })
	if at < 0 {
		return nil
	}
	return ws[:at+1]
}
