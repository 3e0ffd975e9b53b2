package toolkit

import "slices"

// Select expands what a person or a host picks to a ceiling: the named groups
// and, down to depth-1 steps, the groups they contain, which are those that
// name them as a parent. Contained are the names of these and of the groups one
// step further, which a client may offer to open next, sorted. A depth of 0 has
// no limit. Groups that contain each other are harmless; names that no group
// has are returned and grant nothing.
//
// This is how a client filters by MCP's labels. It is a choice, not a boundary:
// the ceiling becomes one when the host sets it on a scope.
func (tk *Toolkit) Select(groups []string, depth int) (ceiling Ceiling, contained, unknown []string) {
	c := tk.now.Load()
	var level, granted []int
	for _, name := range groups {
		i, ok := c.index[name]
		switch {
		case !ok:
			unknown = append(unknown, name)
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
					contained = append(contained, c.groups[child].Name)
				}
			}
		}
		if step == depth {
			break
		}
		level = next
	}
	slices.Sort(contained)
	return Only(c.names(granted)...), contained, unknown
}
