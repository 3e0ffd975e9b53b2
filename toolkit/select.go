package toolkit

import "slices"

// A Selection is what a person or a host picks by containment.
type Selection struct {
	Ceiling Ceiling  // grants the selected groups and what they contain
	Groups  []string // the groups that the selected ones contain, sorted
	Unknown []string // names that no group has
}

// Select expands the named groups to a ceiling: the groups themselves and,
// down to depth-1 steps, the groups they contain, which are those that name
// them as a parent. Groups one step further are named in the Selection but
// not granted. A depth of 0 has no limit. Groups that contain each other are
// harmless, and so are unknown names, which grant nothing.
func (tk *Toolkit) Select(groups []string, depth int) Selection {
	c := tk.now.Load()
	var sel Selection
	var level, granted []int
	for _, name := range groups {
		i, ok := c.index[name]
		switch {
		case !ok:
			sel.Unknown = append(sel.Unknown, name)
		case !slices.Contains(level, i):
			level = append(level, i)
		}
	}
	seen := slices.Clone(level)
	for step := 1; len(level) > 0; step++ {
		granted = append(granted, level...)
		var next []int
		for _, g := range level {
			for _, child := range c.groups[g].children {
				if !slices.Contains(seen, child) {
					seen = append(seen, child)
					next = append(next, child)
					sel.Groups = append(sel.Groups, c.groups[child].Name)
				}
			}
		}
		if step == depth {
			break
		}
		level = next
	}
	slices.Sort(sel.Groups)
	sel.Ceiling = Only(c.names(granted)...)
	return sel
}
