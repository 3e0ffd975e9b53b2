package toolkit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/skill"
)

// A prompt is the part of the system prompt about the basic group. Its skills are
// read once, since later edits would change the prefix of every request.
type prompt struct {
	mu      sync.Mutex
	done    bool
	text    string
	skipped []Skipped
}

// fillPrompt sets prompt, reminder and skipped of b. Skills that cannot be
// read are skipped. It fails only if the context has ended.
func (c *catalogue) fillPrompt(ctx context.Context, b *body) error {
	p := c.prompt
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		skills, skipped, err := c.loadSkills(ctx, c.basic, false)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("load the skills: %w", context.Cause(ctx))
			}
			p.skipped = append(p.skipped, Skipped{Reason: err.Error()})
		}
		parts := []string{strings.TrimSpace(c.basic.Instructions), strings.TrimSpace(skill.Fragment(skills, 0))}
		p.skipped = append(p.skipped, skipped...)
		p.text, p.done = strings.TrimSpace(strings.Join(parts, "\n\n")), true
	}
	b.skipped = append(b.skipped, p.skipped...)
	if c.grantsBasic(b.r.ceiling) {
		b.prompt = p.text
	}
	groups, skipped, err := c.openGroups(ctx, b.r)
	b.skipped = append(b.skipped, skipped...)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("load the skills: %w", context.Cause(ctx))
		}
		b.skipped = append(b.skipped, Skipped{Reason: err.Error()})
	}
	groups = slices.DeleteFunc(groups, func(g openGroup) bool { return g.empty })
	b.reminder = sync.OnceValue(func() string { return reminder(groups) })
	return nil
}

// loadSkills returns the skills of a group, and those that could not be loaded. Of two skills with one name it returns
// the first. A server is not contacted for a closed group.
func (c *catalogue) loadSkills(ctx context.Context, g *group, closed bool) (out []*skill.Skill, skipped []Skipped, err error) {
	for _, l := range g.Skills {
		if k, ok := l.(remoteLoader); ok && closed {
			out = mergeSkills(out, k.Known())
			continue
		}
		skills, diagnostics, err := l.Load(ctx)
		if _, ok := l.(remoteLoader); ok && err != nil && ctx.Err() == nil {
			skipped = append(skipped, Skipped{Reason: err.Error()})
			continue
		}
		if err != nil {
			return out, skipped, fmt.Errorf("skills of %s: %w", c.groupTitle(g.index), err)
		}
		for _, d := range diagnostics {
			if d.Fatal {
				skipped = append(skipped, Skipped{Reason: d.String()})
			}
		}
		out = mergeSkills(out, skills)
	}
	return out, skipped, nil
}

// mergeSkills appends the skills whose names are new.
func mergeSkills(out, more []*skill.Skill) []*skill.Skill {
	for _, s := range more {
		if !slices.ContainsFunc(out, func(o *skill.Skill) bool { return o.Name == s.Name }) {
			out = append(out, s)
		}
	}
	return out
}

// hasSkills reports whether a group that the ceiling grants has skills, open or not.
func (c *catalogue) hasSkills(ceiling Ceiling) bool {
	if c.basic.hasSkills() && c.grantsBasic(ceiling) {
		return true
	}
	return slices.ContainsFunc(c.groups, func(g *group) bool { return g.hasSkills() && c.grantsGroup(g.index, ceiling) })
}

// hasSkills reports whether the group has skills, as far as is known without contacting a server.
func (g *group) hasSkills() bool {
	return slices.ContainsFunc(g.Skills, func(l skill.Loader) bool {
		k, ok := l.(remoteLoader)
		return !ok || len(k.Known()) > 0
	})
}

// A remoteLoader contacts a server. Known returns the skills that it had when it was last contacted.
type remoteLoader interface{ Known() []*skill.Skill }
