package toolkit

import "github.com/kitbag-go/kitbag/tool"

// A Cost is what definitions of tools cost in every request.
type Cost struct {
	Name   string
	Tools  int
	Bytes  int // of the definitions as sent, escaping left aside
	Tokens int // an estimate: four bytes each
}

// Costs breaks the cost of a view down.
type Costs struct {
	Total  Cost
	Tools  []Cost // each tool of the list, in its order
	Groups []Cost // each group that the ceiling grants, open or not, as far as its tools are known
}

// bytesPerToken is the usual rule of thumb. Schemas come out a little low, prose a
// little high; providers count differently anyway.
const bytesPerToken = 4

// add counts one more definition.
func (c *Cost) add(size int) {
	c.Tools++
	c.Bytes += size
	c.Tokens = (c.Bytes + bytesPerToken - 1) / bytesPerToken
}

// costOf sums up definitions.
func costOf(name string, infos []tool.Info) Cost {
	c := Cost{Name: name}
	for _, i := range infos {
		c.add(definitionSize(i))
	}
	return c
}

// Cost says what the list costs, and what its groups cost when they are open.
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
