package toolkit

import "slices"

// A scopeState is a snapshot of a scope, resolved with one catalogue. Variables of this type are called r.
type scopeState struct {
	state
	open       []bool // at the group's index: the group and all its ancestors were opened
	order      []int  // the open groups, in order of activation
	predicates []bool // the results of the predicates, at the indexes of catalogue.predicates
}

// resolve returns which groups are open in a state. It ignores unknown names, and groups without one of their
// ancestors, since the scope may have been saved with another catalogue.
func (c *catalogue) resolve(st state) *scopeState {
	r := &scopeState{state: st, open: make([]bool, len(c.groups))}
	for _, name := range st.active {
		i, ok := c.index[name]
		if !ok || r.open[i] {
			continue
		}
		// A group on a cycle is its own ancestor and never opens.
		lacks := func(a int) bool { return a == i || !slices.Contains(st.active, c.groups[a].Name) }
		if !slices.ContainsFunc(c.ancestors(i), lacks) {
			r.open[i] = true
			r.order = append(r.order, i)
		}
	}
	return r
}

// evalPredicates evaluates the predicates once for a view, so that listing and calling agree even if what a predicate
// reads changes in between. It returns the entries whose predicates panicked, which count as false.
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

// visible reports whether a tool can be listed and called. It must pass four gates: group, ceiling, phase and predicate.
func (c *catalogue) visible(e *entry, r *scopeState) bool {
	return c.inOpenGroup(e, r) && c.granted(e, r) && c.inPhase(e, r) && (e.predicate < 0 || r.predicates[e.predicate])
}

// inOpenGroup is the gate of groups.
func (c *catalogue) inOpenGroup(e *entry, r *scopeState) bool {
	if c.cfg.LabelsOnly || e.setting.Always {
		return true
	}
	if e.ungrouped {
		return c.rules.ungrouped != hiddenUngrouped
	}
	return slices.ContainsFunc(e.groups, func(g int) bool { return r.open[g] })
}

// granted is the gate of the ceiling. It is independent of inOpenGroup: a tool in two groups
// is visible if one group is open and the other is granted.
func (c *catalogue) granted(e *entry, r *scopeState) bool { return c.rules.grants(r.ceiling, e.labels) }

// inPhase is the gate of phases. A tool with nil phases is visible in all phases, a tool with
// an empty list in none. "*" is a wildcard only in the tool's list, not as the scope's phase.
func (c *catalogue) inPhase(e *entry, r *scopeState) bool {
	return e.setting.Phases == nil || slices.Contains(e.setting.Phases, "*") || slices.Contains(e.setting.Phases, r.phase)
}

// list returns the visible tools in the order in which a model gets them. Its cost depends on the number of tools
// in open groups, not of all tools. A tool in several open groups is listed with the group that was opened first.
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
				isListed := e.setting.Always || e.ungrouped || e.alsoIn(r.order[:n]) // Always and ungrouped: in c.always
				if !isListed {
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

// alsoIn reports whether e, which is in another group, is also in one of these groups.
func (e *entry) alsoIn(groups []int) bool {
	return len(e.groups) > 1 && slices.ContainsFunc(e.groups, func(g int) bool { return slices.Contains(groups, g) })
}

// labelled returns the tools that the ceiling grants, in order of registration. It needs Config.LabelsOnly.
func (c *catalogue) labelled(ceiling Ceiling) []*entry {
	names := ceiling.names
	if !ceiling.isSet {
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
		if i, ok := position[e.name]; ok {
			out[i] = e
			continue
		}
		position[e.name] = len(out)
		out = append(out, e)
	}
	return out
}

// find returns the tool that a call by this name runs: the visible tool of that name that was registered last.
func (c *catalogue) find(name string, r *scopeState) (*entry, bool) {
	for _, e := range slices.Backward(c.named(name)) {
		if c.visible(e, r) {
			return e, true
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

// onlyGranted returns the names of groups that the ceiling grants.
func (c *catalogue) onlyGranted(names []string, ceiling Ceiling) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !c.rules.grants(ceiling, []string{n}) })
}

// groupInfos describes the groups that the ceiling grants, in order of registration.
func (c *catalogue) groupInfos(r *scopeState) []GroupInfo {
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
			Instructions: c.instructions(g), Parents: c.onlyGranted(g.Parents, r.ceiling), Tools: names,
			Active: r.open[i], ByUser: slices.Contains(r.byUser, g.Name), Skills: g.hasSkills(), Failed: c.sourceFailures(g.sources), Meta: g.Meta})
	}
	return out
}
