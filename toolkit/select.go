package toolkit

import "slices"

// Select returns the ceiling of the named groups and, for depth-1 levels, of the groups that they contain, which
// are those that name them as a parent. A depth of 0 means all levels. Contained is sorted: the groups that the
// ceiling grants in addition to the named ones, and those one level deeper, which a client may offer next. Unknown
// has the names without a group. Cycles are allowed.
//
// A client filters by MCP's groups in this way. The ceiling has no effect until the host sets it on a scope.
func (tk *Toolkit) Select(groups []string, depth int) (ceiling Ceiling, contained, unknown []string) {
	c := tk.current.Load()
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
