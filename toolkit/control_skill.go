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

// A skillViewer is the tool Skill: it shows the skills of the basic group and of open groups. The tool is always listed
// if any granted group has skills, so that opening a group does not move the other tools in the list.
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
		page, err := v.tk.skillPage(ctx, v.scope, q)
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
	all, err := OpenedSkills(ctx)
	if err != nil {
		return "" // the next call of Skill reports the error
	}
	var opened []*skill.Skill
	for _, o := range all {
		// Leave out a skill that was removed, or whose group was closed.
		if page, err := v.tk.skillPage(ctx, v.scope, skill.Query{Skill: o.Name}); err == nil {
			opened = append(opened, page.Skill)
		}
	}
	return skill.Reminder(opened)
}

// An OpenedSkill is a skill that the model has read in a session.
type OpenedSkill struct {
	Name         string   `json:"name"`
	AllowedTools []string `json:"allowed_tools,omitempty"` // see [skill.Skill.AllowedTools]

	// Manifest is the digest of the manifest of a remote skill; empty for a local skill.
	Manifest string `json:"manifest,omitempty"`
}

var openedSkills = toolstate.NewKey[[]OpenedSkill]("skills")

// OpenedSkills returns the skills that the model has read, in the order in which it first read them. They are stored
// in the [toolstate.State] of ctx; if ctx has no State the result is empty. It fails if a saved State cannot be read.
func OpenedSkills(ctx context.Context) (all []OpenedSkill, err error) {
	if toolstate.From(ctx) == nil {
		return nil, nil
	}
	err = openedSkills.Update(ctx, func(saved *[]OpenedSkill) error {
		all = slices.Clone(*saved)
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

// skillPage returns a page of a skill of an open group. Unlike the prompt, skillPage loads the skills again, so that the
// model reads the latest text. For a skill of a closed group the error says how to open the group.
func (tk *Toolkit) skillPage(ctx context.Context, s *Scope, q skill.Query) (*skill.Page, error) {
	c, r := tk.reachable(s)
	var open []*skill.Skill
	var loadErr error
	var closed []string // groups that have the skill but are not open
	for g := range c.grantedWithSkills(r) {
		isClosed := g.index >= 0 && !r.open[g.index]
		if isClosed && c.rules.opaque { // its skills must look unknown
			continue
		}
		skills, _, err := c.loadSkills(ctx, g, isClosed)
		loadErr = errors.Join(loadErr, err)
		if !isClosed {
			open = mergeSkills(open, skills)
		} else if slices.ContainsFunc(skills, func(sk *skill.Skill) bool { return sk.Name == q.Skill }) {
			closed = append(closed, g.Name)
		}
	}
	page, err := skill.View(ctx, open, q)
	// This is the answer, unless the skill is missing and may be in a closed group or in one that failed to load.
	if nf, ok := errors.AsType[*skill.NotFoundError](err); !ok || nf.Kind != "skill" || loadErr == nil && len(closed) == 0 {
		return page, err
	}
	if len(closed) == 0 {
		return nil, fmt.Errorf("%w; not all skills could be read, tell the user if the task needs one of those: %w", err, loadErr)
	}
	return nil, fmt.Errorf("skill %q is in %s", q.Skill, c.closedText("", closed, nil, r, true))
}

// reachable returns the catalogue, and the scope's state, in which every group counts as open with [Discover] and
// LabelsOnly: the scope can then use the skills of all granted groups.
func (tk *Toolkit) reachable(s *Scope) (*catalogue, *scopeState) {
	c := tk.current.Load()
	r := c.callState(c.stateOf(s))
	if c.cfg.LabelsOnly {
		r = c.allOpen(r)
	}
	return c, r
}

// groupsWithSkills returns the groups that have skills, the basic group first.
func (c *catalogue) groupsWithSkills() []*group {
	return slices.DeleteFunc(c.allGroups(), func(g *group) bool { return len(g.Skills) == 0 })
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
// the basic group and of every open group, in this order. groups has the name of each skill's group,
// empty for the basic group. Of two skills with the same name Skills returns the first. If the
// skills of some groups cannot be loaded, Skills returns the others and an error.
func (tk *Toolkit) Skills(ctx context.Context, s *Scope) (skills []*skill.Skill, groups []string, err error) {
	c, r := tk.reachable(s)
	for g := range c.grantedWithSkills(r) {
		if g.index >= 0 && !r.open[g.index] {
			continue
		}
		loaded, _, loadErr := c.loadSkills(ctx, g, false)
		err = errors.Join(err, loadErr)
		skills = mergeSkills(skills, loaded)
		for len(groups) < len(skills) { // once for each skill that is new
			groups = append(groups, g.Name)
		}
	}
	return skills, groups, err
}

// Reachable returns the names of the groups whose tools and skills the scope can use now, in order of registration:
// the open groups that the ceiling grants; with [Discover] and [Config.LabelsOnly] all groups that the ceiling grants.
// The basic group, if granted, comes first, as "".
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
