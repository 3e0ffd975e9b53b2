package toolkit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/visible"
)

// An openGroup describes an open group to the model.
type openGroup struct {
	Name         string      `json:"name"`
	Opened       bool        `json:"opened,omitempty"` // by this call
	Tools        []toolLine  `json:"tools,omitempty"`  // of a group that was opened
	Failed       []string    `json:"failed,omitempty"` // its sources that could not be listed
	Instructions string      `json:"instructions,omitempty"`
	Skills       []skillLine `json:"skills,omitempty"`

	empty bool // sources failed, and the group has neither tools nor skills
}

// A toolLine is a tool in an answer, without its schema. Groups is only set by a search.
type toolLine struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups,omitempty"`
	Line   string   `json:"description,omitempty"`
}

// A skillLine is a skill in an answer.
type skillLine struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// A transitionReport is the answer of a control tool after a transition.
type transitionReport struct {
	Active      []openGroup   `json:"active"`
	Unavailable []failedGroup `json:"unavailable,omitempty"`
	Closed      []string      `json:"closed,omitempty"`
}

// A failedGroup is open but has no tools.
type failedGroup struct {
	Name   string   `json:"name"`
	Failed []string `json:"failed"` // its sources
}

// text returns the answer for the model; leftOut says that groups were closed because the call left them out.
func (o *transitionReport) text(leftOut bool) string {
	var b strings.Builder
	if len(o.Active) == 0 {
		b.WriteString("No group is open now.")
	} else {
		fmt.Fprintf(&b, "Open now: %s.", groupNames(o.Active))
	}
	if len(o.Closed) > 0 {
		b.WriteString(" Closed just now")
		if leftOut {
			b.WriteString(", because you left them out")
		}
		fmt.Fprintf(&b, ": %s.", strings.Join(o.Closed, ", "))
	}
	for _, g := range o.Unavailable {
		fmt.Fprintf(&b, "\n%s has no tools, as they could not be listed: %s. Opening it again later tries again; tell the user if the task needs it.",
			g.Name, strings.Join(g.Failed, " "))
	}
	for _, g := range o.Active {
		g.write(&b)
	}
	return b.String()
}

// reminder returns a text about the open groups: which they are, and how to use them.
func reminder(groups []openGroup) string {
	if len(groups) == 0 {
		return ""
	}
	return "These groups of tools are open: " + groupNames(groups) + "." + aboutGroups(groups)
}

// aboutGroups returns the instructions and skills of groups, without their tools and failures.
func aboutGroups(groups []openGroup) string {
	var b strings.Builder
	for _, g := range groups {
		g.Tools, g.Failed = nil, nil
		g.write(&b)
	}
	return b.String()
}

func groupNames(groups []openGroup) string {
	var names []string
	for _, g := range groups {
		names = append(names, g.Name)
	}
	return strings.Join(names, ", ")
}

// write appends what the model must know about the group, unless that is nothing.
func (g *openGroup) write(b *strings.Builder) {
	if len(g.Tools)+len(g.Failed)+len(g.Skills) == 0 && g.Instructions == "" {
		return
	}
	fmt.Fprintf(b, "\n\n<group name=%q>", g.Name)
	for _, t := range g.Tools {
		b.WriteString("\n- " + t.Name)
		if t.Line != "" {
			b.WriteString(": " + t.Line)
		}
	}
	for _, f := range g.Failed {
		b.WriteString("\nIts tools could not be listed, so some may be missing: " + f)
	}
	if g.Instructions != "" {
		b.WriteString("\n" + g.Instructions)
	}
	if len(g.Skills) > 0 {
		b.WriteString("\nSkills; read one with the tool Skill before you follow it:")
	}
	for _, s := range g.Skills {
		fmt.Fprintf(b, "\n- %s: %s", s.Name, s.Description)
	}
	b.WriteString("\n</group>")
}

// reportOptions say what the answer of a control tool includes.
type reportOptions struct {
	newOnly  bool // instructions and skills only of groups that were opened
	leftOut  bool // groups were closed because the call left them out
	allTools bool // tools of all open groups, not only of those that were opened
}

// report returns the answer of a control tool: what was opened, with a line for each tool, what failed, what was
// closed, and the instructions and skills of open groups. They are in this answer and not in the system prompt
// because the end of a conversation can change without invalidating the provider's cache. A group whose sources
// failed and that has nothing else is reported as unavailable, although it is open in the scope: its tools appear
// once a source can be listed.
func (tk *Toolkit) report(ctx context.Context, s *Scope, out Outcome, how reportOptions) (answer, error) {
	c := tk.current.Load()
	r := c.stateOf(s)
	c.evalPredicates(r)
	groups, _, err := c.openGroups(ctx, r)
	if err != nil {
		return answer{}, err
	}
	data := transitionReport{Active: []openGroup{}, Closed: c.onlyGranted(out.Closed, r.ceiling)}
	for _, g := range groups {
		g.Opened = slices.Contains(out.Opened, g.Name)
		switch {
		case g.empty:
			data.Unavailable = append(data.Unavailable, failedGroup{g.Name, g.Failed})
			continue
		case g.Opened || how.allTools:
			g.Tools = c.toolLines(c.index[g.Name], r)
		default:
			g.Failed = nil
		}
		if how.newOnly && !g.Opened {
			g.Instructions, g.Skills = "", nil
		}
		data.Active = append(data.Active, g)
	}
	return answer{text: data.text(how.leftOut), data: data}, nil
}

// openGroups describes the groups that are open and granted, in order of registration,
// and returns the skills that could not be loaded.
func (c *catalogue) openGroups(ctx context.Context, r *scopeState) (out []openGroup, skipped []Skipped, err error) {
	for i, g := range c.groups {
		if !r.open[i] || !c.grantsGroup(i, r.ceiling) {
			continue
		}
		skills, broken, err := c.loadSkills(ctx, g, false)
		if err != nil {
			return nil, skipped, err
		}
		skipped = append(skipped, broken...)
		o := openGroup{Name: g.Name, Instructions: c.instructions(g), Failed: c.sourceFailures(g.sources)}
		o.empty = len(o.Failed) > 0 && len(g.entries)+len(skills) == 0
		for _, s := range skills {
			o.Skills = append(o.Skills, skillLine{s.Name, strings.Join(strings.Fields(s.Description), " ")})
		}
		out = append(out, o)
	}
	return out, skipped, nil
}

// toolLines returns the visible tools of the group, with the first line of their descriptions.
func (c *catalogue) toolLines(g int, r *scopeState) []toolLine {
	var out []toolLine
	for _, e := range c.groups[g].entries {
		if c.visible(e, r) {
			out = append(out, toolLine{Name: e.name, Line: firstLine(e.tool.Info().Description)})
		}
	}
	return out
}

// firstLine returns the first line or sentence, of at most about 120 bytes.
func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if before, _, ok := strings.Cut(s, ". "); ok {
		s = before + "."
	}
	const limit = 120
	if len(s) <= limit {
		return s
	}
	end := strings.LastIndexByte(s[:limit], ' ')
	if end <= 0 {
		end = limit
	}
	return visible.Cut(s, end, " …")
}
