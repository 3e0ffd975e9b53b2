package toolkit

import (
	"slices"
	"sync"
)

// A Change is something that happened to a toolkit or to one scope of it.
type Change struct {
	// Scope is the scope whose view has changed; nil if the catalogue has, and
	// with it possibly every view.
	Scope *Scope

	Opened, Closed []string // of a scope

	// Tools and Groups say which list has changed: that of the tools, for a
	// scope those that it shows, and that of the groups.
	Tools, Groups bool
}

type listeners struct {
	mu   sync.Mutex
	next int
	fns  map[int]func(Change)
	ids  []int
}

// OnChange calls fn after every change, once per transition or change of the
// catalogue, in the goroutine that made it, when it is in effect and no lock
// is held. Call stop to end it. Phases and ceilings that the host sets are not
// reported.
func (tk *Toolkit) OnChange(fn func(Change)) (stop func()) {
	l := &tk.listeners
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fns == nil {
		l.fns = map[int]func(Change){}
	}
	id := l.next
	l.next++
	l.fns[id] = fn
	l.ids = append(l.ids, id)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.fns, id)
		l.ids = slices.DeleteFunc(l.ids, func(i int) bool { return i == id })
	}
}

// tell reports a change unless nothing has.
func (tk *Toolkit) tell(ev Change) {
	if !ev.Tools && !ev.Groups {
		return
	}
	l := &tk.listeners
	l.mu.Lock()
	fns := make([]func(Change), 0, len(l.ids))
	for _, id := range l.ids {
		fns = append(fns, l.fns[id])
	}
	l.mu.Unlock()
	for _, fn := range fns {
		fn(ev)
	}
}

func (tk *Toolkit) watched() bool {
	tk.listeners.mu.Lock()
	defer tk.listeners.mu.Unlock()
	return len(tk.listeners.ids) > 0
}

// watch looks at what the scope shows and returns a function that makes the
// change of it.
func (tk *Toolkit) watch(c *catalogue, s *Scope) func(Outcome) Change {
	if !tk.watched() {
		return func(Outcome) Change { return Change{} }
	}
	digest := func() string {
		st, _ := s.snapshot(c)
		r := c.resolve(st)
		c.hold(r)
		_, sum := tk.show(c, s, r)
		return sum()
	}
	before := digest()
	return func(out Outcome) Change {
		ev := Change{Scope: s, Opened: out.Opened, Closed: out.Closed}
		ev.Tools = out.Changed() && c.cfg.Policy.NotifyAlways || digest() != before
		return ev
	}
}
