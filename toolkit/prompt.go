package toolkit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/skill"
)

// A prompt is the part of the system prompt about the basic group. The group's skills are read
// once, since the prompt is in the prefix that providers cache.
type prompt struct {
	mu      sync.Mutex
	filled  bool
	text    string
	skipped []Skipped
}

// fillPrompt sets prompt, reminder and skipped of b. Skills that cannot be
// read are skipped. It fails only if the context has ended.
func (c *catalogue) fillPrompt(ctx context.Context, b *body) error {
	p := c.prompt
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.filled {
		skills, skipped, err := c.loadSkills(ctx, c.basic, false)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("load the skills: %w", context.Cause(ctx))
			}
			p.skipped = append(p.skipped, Skipped{Reason: err.Error()})
		}
		parts := []string{strings.TrimSpace(c.basic.Instructions), strings.TrimSpace(skill.Fragment(skills, 0))}
		p.skipped = append(p.skipped, skipped...)
		p.text, p.filled = strings.TrimSpace(strings.Join(parts, "\n\n")), true
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

// loadSkills returns the skills of a group, and the skills and servers that could not be loaded. Any other loader that
// fails is an error. Of two skills with one name it returns the first. A server is not contacted for a closed group.
func (c *catalogue) loadSkills(ctx context.Context, g *group, closed bool) (out []*skill.Skill, skipped []Skipped, err error) {
	for _, l := range g.Skills {
		remote, isRemote := l.(remoteLoader)
		if isRemote && closed {
			out = mergeSkills(out, remote.Known())
			continue
		}
		skills, diagnostics, err := l.Load(ctx)
		if isRemote && err != nil && ctx.Err() == nil {
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
		remote, ok := l.(remoteLoader)
		return !ok || len(remote.Known()) > 0
	})
}

// A remoteLoader contacts a server. Known returns the skills that it had when it was last contacted.
type remoteLoader interface{ Known() []*skill.Skill }
