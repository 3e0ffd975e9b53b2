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

	Opened, Closed []string // of a scope

	// Tools, Groups and Skills say which lists have changed: the tools (of a scope, the visible ones), the groups,
	// and the result of [Toolkit.Skills]. Edits of a skill's files are not noticed. All are false if a group
	// without tools and skills was opened or closed.
	Tools, Groups, Skills bool
}

type listeners struct {
	mu  sync.Mutex
	fns []*func(Change)
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
// skills is a change: the host may give the group another meaning.
func (tk *Toolkit) notify(ev Change) {
	if !ev.Tools && !ev.Groups && !ev.Skills && len(ev.Opened)+len(ev.Closed) == 0 {
		return
	}
	for _, fn := range tk.listeners.all() {
		(*fn)(ev)
	}
}

// watch records what the scope shows. It returns a function that describes the change since then, given the steps
// that were carried out.
func (tk *Toolkit) watch(c *catalogue, s *Scope) func([]step) Change {
	if len(tk.listeners.all()) == 0 {
		return func([]step) Change { return Change{} }
	}
	digest := func() string {
		r := c.current(s)
		c.evalPredicates(r)
		_, sum := tk.show(c, s, r)
		return sum()
	}
	before := digest()
	return func(steps []step) Change {
		ev := Change{Scope: s}
		for _, st := range steps {
			ev.Opened, ev.Closed = append(ev.Opened, st.Opened...), append(ev.Closed, st.Closed...)
		}
		changed := slices.Concat(ev.Opened, ev.Closed)
		ev.Tools = len(changed) > 0 && c.rules.everyTransition || digest() != before
		ev.Skills = slices.ContainsFunc(changed, func(name string) bool {
			i, ok := c.index[name]
			return ok && c.groups[i].hasSkills() && c.grantsGroup(i, s.Ceiling())
		})
		return ev
	}
}
