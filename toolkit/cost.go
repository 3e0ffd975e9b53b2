package toolkit

import (
	"slices"

	"github.com/kitbag-go/kitbag/tool"
)

// A Cost is the size of tool definitions, which every request includes.
type Cost struct {
	Name   string // of the tool or group; empty for the total
	Tools  int    // their number
	Bytes  int    // of the definitions as sent, without escaping
	Tokens int    // an estimate: four bytes per token
}

// Costs is the cost of a view by tools and groups.
type Costs struct {
	Total  Cost
	Tools  []Cost // each tool of the list, in its order
	Groups []Cost // each group that the ceiling grants, open or not, with its known tools
}

// bytesPerToken is a rule of thumb.
const bytesPerToken = 4

func (c *Cost) add(size int) {
	c.Tools++
	c.Bytes += size
	c.Tokens = (c.Bytes + bytesPerToken - 1) / bytesPerToken
}

func costOf(name string, infos []tool.Info) Cost {
	c := Cost{Name: name}
	for _, i := range infos {
		c.add(definitionSize(i))
	}
	return c
}

// Cost returns the size of the list, and of each group if it were open.
func (v *View) Cost() Costs {
	b := v.body
	out := Costs{Total: costOf("", b.infos)}
	for _, i := range b.infos {
		out.Tools = append(out.Tools, costOf(i.Name, []tool.Info{i}))
	}
	for i, g := range b.c.groups {
		if !b.c.grantsGroup(i, b.r.ceiling) {
			continue
		}
		cost := Cost{Name: g.Name}
		for _, e := range g.entries {
			cost.add(definitionSize(e.tool.Info()))
		}
		out.Groups = append(out.Groups, cost)
	}
	return out
}

// Closing returns the effect of closing an open group. saved is the cost of the tools that would leave the list.
// reread is the cost of the tools after the first of these: a provider that caches the beginning of requests would
// have to read them again, and the system prompt and the whole conversation as well. saved and reread are zero for a
// group that is not open.
func (v *View) Closing(group string) (saved, reread Cost) {
	b := v.body
	i, ok := b.c.index[group]
	if !ok || !b.r.open[i] || !b.c.grantsGroup(i, b.r.ceiling) {
		return saved, reread
	}
	leaving := map[string]bool{} // names of tools
	for _, e := range b.c.groups[i].entries {
		// A tool that is also in another open group stays in the list.
		leaving[e.name] = b.c.visible(e, b.r) && !slices.ContainsFunc(e.groups, func(g int) bool { return g != i && b.r.open[g] })
	}
	saved.Name, reread.Name = group, group
	for _, info := range b.infos {
		switch {
		case leaving[info.Name]:
			saved.add(definitionSize(info))
		case saved.Tools > 0:
			reread.add(definitionSize(info))
		}
	}
	return saved, reread
}
