package toolkit

import (
	"cmp"
	"slices"
)

// Import prepares groups of a third party, such as those of an MCP server, for a [Config]. It removes unknown
// parents and those that would make a group its own ancestor, which MCP allows. It keeps the first group of each
// name and drops groups without a name. A group without a description gets its title or name as one.
func Import(groups []Group) []Group {
	index := map[string]int{}
	var out []Group
	for _, g := range groups {
		if _, ok := index[g.Name]; ok || g.Name == "" || g.Name == basicLabel {
			continue
		}
		index[g.Name] = len(out)
		g = g.clone()
		g.Description = cmp.Or(g.Description, g.Title, g.Name)
		out = append(out, g)
	}
	parents := make([][]string, len(out))
	// Visit each group once, although many paths may lead to it.
	var reaches func(from, to string, seen map[string]bool) bool
	reaches = func(from, to string, seen map[string]bool) bool {
		if from == to || seen[from] {
			return from == to
		}
		seen[from] = true
		return slices.ContainsFunc(parents[index[from]], func(p string) bool { return reaches(p, to, seen) })
	}
	for i, g := range out {
		for _, p := range g.Parents {
			if _, ok := index[p]; ok && !reaches(p, g.Name, map[string]bool{}) && !slices.Contains(parents[i], p) {
				parents[i] = append(parents[i], p)
			}
		}
		out[i].Parents = parents[i]
	}
	return out
}
