package toolkit

import (
	"slices"
)

// A scopeState is a snapshot of a scope in terms of one catalogue; the gates are functions of it.
type scopeState struct {
	state
	open       []bool // at the group's index: the group and all its parents were opened
	order      []int  // the open groups, in order of activation
	predicates []bool // results of the predicates; see catalogue.predicates
}

// resolve returns which groups are open in a state. It ignores unknown names, and groups whose parents are not
// stored, since the scope may have been saved with another catalogue.
func (c *catalogue) resolve(st state) *scopeState {
	r := &scopeState{state: st, open: make([]bool, len(c.groups))}
	var stored []int
	for _, name := range st.active {
		if i, ok := c.index[name]; ok && !r.open[i] {
			r.open[i] = true
			stored = append(stored, i)
		}
	}
	for _, i := range stored {
		if c.gated(i, r.open) {
			r.order = append(r.order, i)
		}
	}
	if len(r.order) < len(stored) {
		clear(r.open)
		for _, i := range r.order {
			r.open[i] = true
		}
	}
	return r
}

// gated reports whether all ancestors of the group are stored. It is false for a group on a cycle.
func (c *catalogue) gated(g int, stored []bool) bool {
	if len(c.groups[g].gates) == 0 {
		return true
	}
	for _, a := range c.ancestors(g) {
		if !stored[a] || a == g {
			return false
		}
	}
	return true
}

// evalPredicates evaluates the predicates once for a view, so that listing and calling agree even if their inputs
// change in between. It returns the entries whose predicates panicked, which count as false.
func (c *catalogue) evalPredicates(r *scopeState) (panicked []*entry) {
	if len(c.predicates) == 0 {
		return nil
	}
	active := func(group string) bool {
		i, ok := c.index[group]
		return ok && (r.open[i] || c.cfg.LabelsOnly)
	}
	r.predicates = make([]bool, len(c.predicates))
	for i, e := range c.predicates {
		func() {
			defer func() {
				if recover() != nil {
					panicked = append(panicked, e)
				}
			}()
			r.predicates[i] = e.setting.When(active)
		}()
	}
	return panicked
}

// visible reports whether all four gates are open for a tool: group, ceiling, phase and predicate. Listing and calling both use it.
func (c *catalogue) visible(e *entry, r *scopeState) bool {
	return c.member(e, r) && c.granted(e, r) && c.inPhase(e, r) && (e.predicate < 0 || r.predicates[e.predicate])
}

// member is the gate of groups.
func (c *catalogue) member(e *entry, r *scopeState) bool {
	if c.cfg.LabelsOnly || e.setting.Always {
		return true
	}
	if e.ungrouped {
		return c.rules.ungrouped != hiddenUngrouped
	}
	for _, g := range e.groups {
		if r.open[g] {
			return true
		}
	}
	return false
}

// granted is the gate of the ceiling. It is independent of member: a tool in two groups
// is visible if one group is open and the other is granted.
func (c *catalogue) granted(e *entry, r *scopeState) bool { return c.rules.grants(r.ceiling, e.labels) }

// inPhase is the gate of phases. A tool with nil phases is visible in all phases, one with
// an empty list in none. A scope's phase is never a wildcard.
func (c *catalogue) inPhase(e *entry, r *scopeState) bool {
	return e.setting.Phases == nil || slices.Contains(e.setting.Phases, "*") || slices.Contains(e.setting.Phases, r.phase)
}

// list returns the visible tools in the order in which a model gets them. Its cost depends on the number of tools
// in open groups, not of all tools. A tool in several open groups is listed with the one that was opened first.
func (c *catalogue) list(r *scopeState) []*entry {
	var out []*entry
	add := func(e *entry) {
		if c.visible(e, r) {
			out = append(out, e)
		}
	}
	if c.cfg.LabelsOnly {
		for _, e := range c.labelled(r.ceiling) {
			add(e)
		}
	} else {
		for _, e := range c.always {
			add(e)
		}
		for n, g := range r.order {
			for _, e := range c.groups[g].entries {
				if !e.setting.Always && !e.ungrouped && !c.inEarlier(e, r.order[:n]) {
					add(e)
				}
			}
		}
	}
	c.rules.sort(out)
	if c.shadows {
		out = shadow(out)
	}
	return out
}

func (c *catalogue) inEarlier(e *entry, groups []int) bool {
	return len(e.groups) > 1 && slices.ContainsFunc(e.groups, func(g int) bool { return slices.Contains(groups, g) })
}

// labelled returns the tools that a ceiling may grant, each once, in order of registration.
func (c *catalogue) labelled(ceiling Ceiling) []*entry {
	names := ceiling.names
	if !ceiling.set {
		if c.rules.defaultLabel == "" {
			return c.entries
		}
		names = []string{c.rules.defaultLabel}
	}
	if slices.Contains(names, "*") {
		return c.entries
	}
	var out []*entry
	for _, n := range names {
		out = append(out, c.labels[n]...)
	}
	slices.SortFunc(out, func(a, b *entry) int { return int(a.seq - b.seq) })
	return slices.Compact(out)
}

// shadow replaces the first of two tools with one name by the second. The entries are in
// order of registration, which all presets with laterShadows use.
func shadow(entries []*entry) []*entry {
	position := map[string]int{} // in out, by name
	out := entries[:0]
	for _, e := range entries {
		i, ok := position[e.name]
		if !ok {
			position[e.name] = len(out)
			out = append(out, e)
		} else {
			out[i] = e
		}
	}
	return out
}

// find returns the tool that a call by this name runs: the visible tool of that name that was registered last.
func (c *catalogue) find(name string, r *scopeState) (*entry, bool) {
	all := c.named(name)
	for i := len(all) - 1; i >= 0; i-- {
		if c.visible(all[i], r) {
			return all[i], true
		}
	}
	return nil, false
}

func (c *catalogue) grantsBasic(ceiling Ceiling) bool {
	return c.rules.grants(ceiling, []string{c.rules.basicLabel()})
}

func (c *catalogue) grantsGroup(g int, ceiling Ceiling) bool {
	return c.rules.grants(ceiling, []string{c.groups[g].Name})
}

func (c *catalogue) grantedOf(names []string, ceiling Ceiling) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !c.rules.grants(ceiling, []string{n}) })
}

// infos describes the groups that the ceiling grants, in order of registration.
func (c *catalogue) infos(r *scopeState) []GroupInfo {
	var out []GroupInfo
	for i, g := range c.groups {
		if !c.grantsGroup(i, r.ceiling) {
			continue
		}
		names := make([]string, 0, len(g.entries))
		for _, e := range g.entries {
			names = append(names, e.name)
		}
		out = append(out, GroupInfo{Name: g.Name, Title: g.Title, Description: g.Description,
			Instructions: c.instructions(g), Parents: c.grantedOf(g.Parents, r.ceiling), Tools: names,
			Active: r.open[i], ByUser: slices.Contains(r.byUser, g.Name), Skills: g.hasSkills(), Failed: c.failed(g.sources), Meta: g.Meta})
	}
	return out
}
