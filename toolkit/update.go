package toolkit

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/kitbag-go/kitbag/skill"
	"github.com/kitbag-go/kitbag/tool"
)

// Update changes the catalogue while it is in use: change edits a copy of the configuration, which is then checked
// and atomically replaces the old one. If there is an error nothing changes. Existing views stay as they are.
// Listeners are called once. The function change must not call the toolkit. The sources in the copy wrap the
// registered sources.
func (tk *Toolkit) Update(change func(*Config) error) error {
	made, err := tk.update(change)
	tk.notify(made)
	return err
}

// update is Update without notifying, which must not happen while tk.mu is locked.
func (tk *Toolkit) update(change func(*Config) error) (Change, error) {
	tk.mu.Lock()
	defer tk.mu.Unlock()
	old := tk.current.Load()
	cfg := old.cfg.clone()
	if err := change(&cfg); err != nil {
		return Change{}, err
	}
	if err := tk.replace(cfg); err != nil {
		return Change{}, err
	}
	if cfg.Preset.quietUpdates {
		return Change{}, nil // which notify ignores
	}
	return tk.current.Load().changesSince(old), nil
}

// Config returns a copy of the current configuration. What its slices point to is shared
// and must not be changed; use [Toolkit.Update].
func (tk *Toolkit) Config() Config { return tk.current.Load().cfg.clone() }

// changesSince returns a Change that says which lists of c differ from the lists of old.
func (c *catalogue) changesSince(old *catalogue) Change {
	change := Change{
		Groups: !slices.EqualFunc(c.groups, old.groups, sameGroup),
		Tools:  !slices.EqualFunc(c.entries, old.entries, sameEntry),
		Skills: !slices.EqualFunc(c.groupsWithSkills(), old.groupsWithSkills(), sameSkills),
	}
	if change.Groups && c.control.Tools != nil || !slices.Equal(c.cfg.Hidden, old.cfg.Hidden) {
		change.Tools = true // the control tools describe the groups
	}
	return change
}

// sameGroup reports whether Toolkit.Groups describes two groups in the same way, except for their tools.
func sameGroup(a, b *group) bool {
	return a.Name == b.Name && a.Title == b.Title && a.Description == b.Description &&
		a.Instructions == b.Instructions && slices.Equal(a.Parents, b.Parents) && len(a.Skills) == len(b.Skills)
}

// sameSkills reports whether two groups have the same name and loaders. Loaders that cannot be compared count as
// different.
func sameSkills(a, b *group) bool {
	return a.Name == b.Name && slices.EqualFunc(a.Skills, b.Skills, func(x, y skill.Loader) bool {
		return reflect.ValueOf(x).Comparable() && reflect.ValueOf(y).Comparable() && x == y
	})
}

// sameEntry reports whether two entries have the same definition and visibility. Two predicates
// cannot be compared and count as equal.
func sameEntry(a, b *entry) bool {
	return (sameTool(a.tool, b.tool) || *a.sum() == *b.sum()) && slices.Equal(a.labels, b.labels) &&
		slices.Equal(a.setting.Phases, b.setting.Phases) && a.setting.Next == b.setting.Next &&
		a.setting.Always == b.setting.Always && (a.setting.When == nil) == (b.setting.When == nil)
}

// Add registers tools in the named group, or in the basic group if group is empty.
func (tk *Toolkit) Add(group string, tools ...tool.Tool) error {
	return tk.Update(func(cfg *Config) error {
		if group == "" {
			cfg.Basic.Tools = append(cfg.Basic.Tools, tools...)
			return nil
		}
		i := slices.IndexFunc(cfg.Groups, func(g Group) bool { return g.Name == group })
		if i < 0 {
			return fmt.Errorf("toolkit: add tools to group %q: the group does not exist", group)
		}
		cfg.Groups[i].Tools = append(cfg.Groups[i].Tools, tools...)
		return nil
	})
}

// AddGroup registers a group.
func (tk *Toolkit) AddGroup(g Group) error {
	return tk.Update(func(cfg *Config) error {
		cfg.Groups = append(cfg.Groups, g)
		return nil
	})
}

// Remove removes the named tools and their settings from all groups, and hides control
// tools. Unknown names are ignored; a tool that a source lists cannot be removed.
func (tk *Toolkit) Remove(names ...string) error {
	isRemoved := func(t tool.Tool) bool { return slices.Contains(names, t.Info().Name) }
	return tk.Update(func(cfg *Config) error {
		c := tk.current.Load()
		for _, n := range names {
			if c.isListed(n) {
				return fmt.Errorf("toolkit: remove tool %q: a source lists it; remove the source, or have it omit the tool", n)
			}
			if c.reserved[n] && len(c.named(n)) == 0 { // a control tool that the host has not replaced
				cfg.Hidden = append(cfg.Hidden, n)
			}
		}
		cfg.Basic.Tools = slices.DeleteFunc(cfg.Basic.Tools, isRemoved)
		for i := range cfg.Groups {
			cfg.Groups[i].Tools = slices.DeleteFunc(cfg.Groups[i].Tools, isRemoved)
		}
		cfg.Settings = slices.DeleteFunc(cfg.Settings, func(s Setting) bool { return slices.Contains(names, s.Tool) })
		return nil
	})
}

// RemoveGroup removes a group, its tools that are in no other group, and their settings. It also removes the group
// from exclusion sets, settings and initial groups. A group that is a parent of other groups cannot be removed. In
// scopes in which the group is open, its name has no effect; see [Scope].
func (tk *Toolkit) RemoveGroup(name string) error {
	return tk.Update(func(cfg *Config) error {
		isGroup := func(n string) bool { return n == name }
		i := slices.IndexFunc(cfg.Groups, func(g Group) bool { return g.Name == name })
		if i < 0 || name == "" {
			return fmt.Errorf("toolkit: remove group %q: the group does not exist", name)
		}
		removed := cfg.Groups[i].Tools
		cfg.Groups = slices.Delete(cfg.Groups, i, i+1)
		cfg.Settings = slices.DeleteFunc(cfg.Settings, func(s Setting) bool {
			return hasTool(removed, s.Tool) && !hasTool(cfg.Basic.Tools, s.Tool) &&
				!slices.ContainsFunc(cfg.Groups, func(g Group) bool { return hasTool(g.Tools, s.Tool) })
		})
		cfg.Initial = slices.DeleteFunc(cfg.Initial, isGroup)
		for i := range cfg.Exclusive { // clone the sets, which cfg shares with the current configuration
			cfg.Exclusive[i] = slices.DeleteFunc(slices.Clone(cfg.Exclusive[i]), isGroup)
		}
		cfg.Exclusive = slices.DeleteFunc(cfg.Exclusive, func(set []string) bool { return len(set) < 2 })
		for i, s := range cfg.Settings {
			if s.Groups != nil {
				cfg.Settings[i].Groups = slices.DeleteFunc(slices.Clone(s.Groups), isGroup)
			}
		}
		return nil
	})
}

func hasTool(tools []tool.Tool, name string) bool {
	return slices.ContainsFunc(tools, func(t tool.Tool) bool { return t.Info().Name == name })
}
