package toolkit

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

const skillTool = "Skill"

//go:embed text/skill.txt
var skillText string

// A skillViewer is the tool Skill: it shows the skills of the basic group and of open groups. It is always listed
// if any group has skills, so that opening a group does not move the other tools in the list.
type skillViewer struct {
	tk    *Toolkit
	scope *Scope
}

// skillInfo is the same for every scope.
var skillInfo = tool.Info{Name: skillTool, Description: skillText, Control: true, ReadOnly: true, Parallel: true,
	Input: schema([]string{"skill"},
		prop("skill", `"type":"string"`, "The name of the skill, or a few words about the task to find one."),
		prop("section", `"type":"string"`, "Only this section: its title or anchor in the outline."),
		prop("file", `"type":"string"`, "A file of the skill instead of its text, relative to its folder."))}

func (v *skillViewer) Info() tool.Info { return skillInfo }

func (v *skillViewer) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) {
		var q skill.Query
		if err := json.Unmarshal(call.Input, &q); err != nil {
			yield(tool.Chunk{}, fmt.Errorf("the arguments do not match the schema: %w", err))
			return
		}
		page, err := v.tk.page(ctx, v.scope, q)
		if err == nil {
			err = recordSkill(ctx, page.Skill, q.File)
		}
		switch {
		case err != nil:
			yield(tool.Chunk{}, err)
		case page.Data != nil:
			yield(tool.Chunk{Block: &message.Data{Name: q.File, MediaType: page.MediaType, Bytes: page.Data}}, nil)
		default:
			yield(tool.Chunk{Block: &message.Text{Text: page.Text}, Pinned: true}, nil)
		}
	}
}

// Remind lists the skills that were opened, with their outlines; see [tool.Reminder].
func (v *skillViewer) Remind(ctx context.Context) string {
	var opened []*skill.Skill
	all, err := OpenedSkills(ctx)
	if err != nil {
		return ""
	}
	for _, o := range all {
		// Leave out a skill that was removed, or whose group was closed.
		if page, err := v.tk.page(ctx, v.scope, skill.Query{Skill: o.Name}); err == nil {
			opened = append(opened, page.Skill)
		}
	}
	return skill.Reminder(opened)
}

// An OpenedSkill is a skill that the model has read in a session.
type OpenedSkill struct {
	Name         string   `json:"name"`
	AllowedTools []string `json:"allowed_tools,omitempty"` // see [skill.Skill.AllowedTools]

	// Manifest is the digest of the manifest of a skill that is not on this machine.
	Manifest string `json:"manifest,omitempty"`
}

var openedSkills = toolstate.NewKey[[]OpenedSkill]("skills")

// OpenedSkills returns the skills that the model has read, in the order in which it first read them. They are stored
// in the [toolstate.State] of ctx; without one the result is empty. It fails if a saved state cannot be read.
func OpenedSkills(ctx context.Context) (all []OpenedSkill, err error) {
	if toolstate.From(ctx) == nil {
		return nil, nil
	}
	err = openedSkills.Update(ctx, func(kept *[]OpenedSkill) error {
		all = slices.Clone(*kept)
		return nil
	})
	return all, err
}

// recordSkill records in the session's state that s, or a file of it, was read. It fails for a file of a remote skill
// that has changed since its text was read: the model must not follow old instructions with new files.
func recordSkill(ctx context.Context, s *skill.Skill, file string) error {
	if toolstate.From(ctx) == nil {
		return nil
	}
	now := OpenedSkill{Name: s.Name, AllowedTools: s.AllowedTools}
	if s.Remote != nil {
		now.Manifest = skill.Digest(fmt.Append(nil, s.Remote.Manifest()))
	}
	return openedSkills.Update(ctx, func(all *[]OpenedSkill) error {
		i := slices.IndexFunc(*all, func(o OpenedSkill) bool { return o.Name == s.Name })
		switch {
		case i < 0:
			*all = append(*all, now)
		case file != "" && (*all)[i].Manifest != now.Manifest:
			return fmt.Errorf("skill %q has changed since it was read; read its text again, without file", s.Name)
		default:
			(*all)[i] = now
		}
		return nil
	})
}

// page returns a page of a skill of an open group. Unlike the prompt, it loads the skills again, so that the model
// reads the latest text. For a skill of a closed group the error says how to open the group.
func (tk *Toolkit) page(ctx context.Context, s *Scope, q skill.Query) (*skill.Page, error) {
	c, r := tk.reachable(s)
	var open []*skill.Skill
	var failed error
	var closed []string // groups that have the skill but are not open
	for g := range c.grantedWithSkills(r) {
		isClosed := g.index >= 0 && !r.open[g.index]
		if isClosed && c.rules.opaque {
			continue
		}
		skills, _, err := c.loadSkills(ctx, g, isClosed)
		failed = errors.Join(failed, err)
		named := func(s *skill.Skill) bool { return s.Name == q.Skill }
		if isClosed {
			if slices.ContainsFunc(skills, named) {
				closed = append(closed, g.Name)
			}
			continue
		}
		open = mergeSkills(open, skills)
	}
	page, err := skill.View(ctx, open, q)
	if err == nil || failed == nil && len(closed) == 0 {
		return page, err
	}
	if nf, ok := errors.AsType[*skill.NotFoundError](err); !ok || nf.Kind != "skill" {
		return nil, err
	}
	if len(closed) == 0 {
		return nil, fmt.Errorf("%w; not all skills could be read, tell the user if the task needs one of those: %w", err, failed)
	}
	return nil, fmt.Errorf("skill %q is in %s", q.Skill, c.closedText("", closed, nil, r, true))
}

// reachable returns the catalogue, and the scope's state in which a group is open if the scope can use its skills:
// with [Discover] and LabelsOnly every group.
func (tk *Toolkit) reachable(s *Scope) (*catalogue, *scopeState) {
	c := tk.current.Load()
	r := c.callable(c.current(s))
	if c.cfg.LabelsOnly {
		r = c.allOpen(r)
	}
	return c, r
}

// groupsWithSkills returns the groups that have skills, the basic group first.
func (c *catalogue) groupsWithSkills() []*group {
	return slices.DeleteFunc(c.all(), func(g *group) bool { return len(g.Skills) == 0 })
}

// grantedWithSkills yields the groups with skills that the ceiling grants.
func (c *catalogue) grantedWithSkills(r *scopeState) iter.Seq[*group] {
	return func(yield func(*group) bool) {
		for _, g := range c.groupsWithSkills() {
			granted := c.grantsBasic(r.ceiling)
			if g.index >= 0 {
				granted = c.grantsGroup(g.index, r.ceiling)
			}
			if granted && !yield(g) {
				return
			}
		}
	}
}

// Skills returns the skills that the scope can read now with the tool Skill: those of
// the basic group and of every open group, in this order. For each it returns the name of its
// group, empty for the basic group. Of two skills with the same name it returns the first. If the
// skills of some groups cannot be loaded, Skills returns the others and an error.
func (tk *Toolkit) Skills(ctx context.Context, s *Scope) (skills []*skill.Skill, groups []string, err error) {
	c, r := tk.reachable(s)
	for g := range c.grantedWithSkills(r) {
		if g.index >= 0 && !r.open[g.index] {
			continue
		}
		more, _, failed := c.loadSkills(ctx, g, false)
		err = errors.Join(err, failed)
		skills = mergeSkills(skills, more)
		for len(groups) < len(skills) {
			groups = append(groups, g.Name)
		}
	}
	return skills, groups, err
}

// Reachable returns the names of the groups whose members the scope can use now, in order of registration: the
// open groups that its ceiling grants; with [Discover] and [Config.LabelsOnly] all groups that it grants. The basic group,
// if granted, comes first, as "".
func (tk *Toolkit) Reachable(s *Scope) []string {
	c, r := tk.reachable(s)
	var names []string
	if c.grantsBasic(r.ceiling) {
		names = append(names, "")
	}
	for i, g := range c.groups {
		if r.open[i] && c.grantsGroup(i, r.ceiling) {
			names = append(names, g.Name)
		}
	}
	return names
}
