package toolkit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/visible"
)

// An openGroup describes an open group to the model.
type openGroup struct {
	Name         string      `json:"name"`
	Opened       bool        `json:"opened,omitempty"` // by this call
	Tools        []toolLine  `json:"tools,omitempty"`  // nil if the answer does not list the tools of this group
	Failed       []string    `json:"failed,omitempty"` // why sources of the group could not be listed
	Instructions string      `json:"instructions,omitempty"`
	Skills       []skillLine `json:"skills,omitempty"`

	empty bool // sources failed, and the group has neither tools nor skills
}

// A toolLine is a tool in an answer, without the tool's schema.
type toolLine struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups,omitempty"`      // only in the answer of a search
	Line   string   `json:"description,omitempty"` // from firstLine
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
	Failed []string `json:"failed"` // why sources of the group could not be listed
}

// text returns the answer for the model; see reportOptions for closesOmitted.
func (t *transitionReport) text(closesOmitted bool) string {
	var b strings.Builder
	if len(t.Active) == 0 {
		b.WriteString("No group is open now.")
	} else {
		fmt.Fprintf(&b, "Open now: %s.", groupNames(t.Active))
	}
	if len(t.Closed) > 0 {
		b.WriteString(" Closed just now")
		if closesOmitted {
			b.WriteString(", because you left them out")
		}
		fmt.Fprintf(&b, ": %s.", strings.Join(t.Closed, ", "))
	}
	for _, g := range t.Unavailable {
		fmt.Fprintf(&b, "\n%s has no tools, as they could not be listed: %s. Opening it again later tries again; tell the user if the task needs it.",
			g.Name, strings.Join(g.Failed, " "))
	}
	for _, g := range t.Active {
		g.write(&b)
	}
	return b.String()
}

// reminder names the open groups for the model, with their instructions and skills.
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

// groupTag matches what a model might read as the start or the end of a group in an answer.
var groupTag = lazy.Regexp(`(?i)<(\s*/?\s*group)`)

// write appends the group's tools, failures, instructions and skills, or nothing if the group has none of these. The texts
// of a server cannot end the group, or begin another one.
func (g *openGroup) write(answer *strings.Builder) {
	if len(g.Tools)+len(g.Failed)+len(g.Skills) == 0 && g.Instructions == "" {
		return
	}
	b := new(strings.Builder)
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
	fmt.Fprintf(answer, "\n\n<group name=%q>%s\n</group>", g.Name, groupTag().ReplaceAllString(b.String(), `<\$1`))
}

// reportOptions say what the answer of a control tool includes.
type reportOptions struct {
	newOnly       bool // instructions and skills only of the groups that this call opened
	closesOmitted bool // the tool closes the groups that a call does not name, and the answer says so
	allTools      bool // tools of all open groups, not only of the groups that this call opened
}

// report returns the answer of a control tool: the open groups with their instructions and skills, the tools of the
// groups that the call opened, failures, and the groups that the call closed. Instructions and skills are in this
// answer and not in the system prompt because the end of a conversation can change without invalidating the
// provider's cache. An empty group whose sources failed is reported as unavailable, although it is open in the scope:
// its tools appear once a source can be listed.
func (tk *Toolkit) report(ctx context.Context, s *Scope, out Outcome, opts reportOptions) (answer, error) {
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
		case g.Opened || opts.allTools:
			g.Tools = c.toolLines(c.index[g.Name], r)
		default:
			g.Failed = nil // an earlier answer reported the failures
		}
		if opts.newOnly && !g.Opened {
			g.Instructions, g.Skills = "", nil
		}
		data.Active = append(data.Active, g)
	}
	return answer{text: data.text(opts.closesOmitted), data: data}, nil
}

// openGroups describes the groups that are open and granted, in order of registration,
// and returns the skills that could not be loaded.
func (c *catalogue) openGroups(ctx context.Context, r *scopeState) (groups []openGroup, skipped []Skipped, err error) {
	for i, g := range c.groups {
		if !r.open[i] || !c.grantsGroup(i, r.ceiling) {
			continue
		}
		skills, broken, err := c.loadSkills(ctx, g, false)
		if err != nil {
			return nil, skipped, err
		}
		skipped = append(skipped, broken...)
		group := openGroup{Name: g.Name, Instructions: c.instructions(g), Failed: c.sourceFailures(g.sources)}
		group.empty = len(group.Failed) > 0 && len(g.entries)+len(skills) == 0
		for _, s := range skills {
			group.Skills = append(group.Skills, skillLine{s.Name, strings.Join(strings.Fields(s.Description), " ")})
		}
		groups = append(groups, group)
	}
	return groups, skipped, nil
}

// toolLines returns the visible tools of a group, with the first lines of their descriptions.
func (c *catalogue) toolLines(group int, r *scopeState) []toolLine {
	var lines []toolLine
	for _, e := range c.groups[group].entries {
		if c.visible(e, r) {
			lines = append(lines, toolLine{Name: e.name, Line: firstLine(e.tool.Info().Description)})
		}
	}
	return lines
}

// firstLine returns the first sentence of the first line of s, cut between words to about 120 bytes.
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
	if end <= 0 { // one long word
		end = limit
	}
	return visible.Cut(s, end, " …")
}
