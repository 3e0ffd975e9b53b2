package toolkit

import (
	"cmp"
	"slices"
)

// Import prepares groups of a third party, such as an MCP server, for a [Config]. It removes unknown parents, and
// parents that would make a group its own ancestor, which MCP allows. It drops groups without a name or with the
// reserved name "basic", and all but the first group of each name. A group without a description gets its title or name
// as the description.
func Import(groups []Group) []Group {
	index := map[string]int{}
	var out []Group
	for _, g := range groups {
		if _, ok := index[g.Name]; ok || g.Name == "" || g.Name == defaultBasicLabel {
			continue
		}
		index[g.Name] = len(out)
		g = g.clone()
		g.Description = cmp.Or(g.Description, g.Title, g.Name)
		out = append(out, g)
	}
	parents := make([][]string, len(out)) // those that are kept
	// reaches reports whether from is to, or has the ancestor to by the kept parents. Visited groups are not tried again.
	var reaches func(from, to string, visited map[string]bool) bool
	reaches = func(from, to string, visited map[string]bool) bool {
		if from == to || visited[from] {
			return from == to
		}
		visited[from] = true
		return slices.ContainsFunc(parents[index[from]], func(p string) bool { return reaches(p, to, visited) })
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
