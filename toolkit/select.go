package toolkit

import "slices"

// Select returns the ceiling that grants the named groups and, for depth-1 levels, the groups that have a granted group
// as a parent. A depth of 0 means all levels. Contained has, sorted, the granted groups that were not named, and the
// groups one level deeper, which a client may offer next. Unknown has the names without a group. Cycles are allowed.
//
// A client filters by MCP's groups in this way. The ceiling has no effect until the host sets it on a scope.
func (tk *Toolkit) Select(groups []string, depth int) (ceiling Ceiling, contained, unknown []string) {
	c := tk.current.Load()
	var level, granted []int // level: the groups whose children are next
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
	for n := 1; len(level) > 0; n++ {
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
		if n == depth {
			break
		}
		level = next
	}
	slices.Sort(contained)
	return Only(c.names(granted)...), contained, unknown
}
