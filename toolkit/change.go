package toolkit

import (
	"slices"
	"sync"
)

// A Change is a change of a toolkit's catalogue or of one scope.
type Change struct {
	// Scope is the scope whose view has changed. It is nil for a change of the catalogue,
	// which may affect every view.
	Scope *Scope

	Opened, Closed []string // names of groups; nil for a change of the catalogue

	// Tools, Groups and Skills say which lists have changed: the tools (with a Scope, only the visible tools), the
	// groups, and the result of [Toolkit.Skills]. Edits of a skill's files are not noticed. All are false if a group
	// without tools and skills was opened or closed.
	Tools, Groups, Skills bool
}

type listeners struct {
	mu  sync.Mutex
	fns []*func(Change) // pointers, by which stop finds its function
}

// OnChange calls fn after every change, once per transition or change of the catalogue, on the goroutine that made
// it, after it took effect and without holding a lock. Call stop to unregister fn. Phases and ceilings that the
// host sets are not reported.
func (tk *Toolkit) OnChange(fn func(Change)) (stop func()) {
	l := &tk.listeners
	l.mu.Lock()
	defer l.mu.Unlock()
	entry := &fn
	l.fns = append(l.fns, entry)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fns = slices.DeleteFunc(slices.Clone(l.fns), func(f *func(Change)) bool { return f == entry })
	}
}

// all returns the functions to call; its result is never modified.
func (l *listeners) all() []*func(Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clip(l.fns)
}

// notify reports a change unless it is empty. Opening a group without tools and
// skills is a change, since the host may use such a group as a switch.
func (tk *Toolkit) notify(change Change) {
	if !change.Tools && !change.Groups && !change.Skills && len(change.Opened)+len(change.Closed) == 0 {
		return
	}
	for _, fn := range tk.listeners.all() {
		(*fn)(change)
	}
}

// trackChange returns a function that describes how the scope has changed since trackChange was called. steps are the
// transitions in between.
func (tk *Toolkit) trackChange(c *catalogue, s *Scope) func([]step) Change {
	if len(tk.listeners.all()) == 0 {
		return func([]step) Change { return Change{} }
	}
	listDigest := func() string {
		r := c.stateOf(s)
		c.evalPredicates(r)
		_, digest := tk.toolInfos(c, s, r)
		return digest()
	}
	before := listDigest()
	return func(steps []step) Change {
		change := Change{Scope: s}
		for _, st := range steps {
			change.Opened, change.Closed = append(change.Opened, st.Opened...), append(change.Closed, st.Closed...)
		}
		groups := slices.Concat(change.Opened, change.Closed)
		change.Tools = len(groups) > 0 && c.rules.everyTransition || listDigest() != before
		change.Skills = slices.ContainsFunc(groups, func(name string) bool {
			i, ok := c.index[name]
			return ok && c.groups[i].hasSkills() && c.grantsGroup(i, s.Ceiling())
		})
		return change
	}
}
