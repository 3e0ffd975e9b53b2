package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Loops and branches: what is in them may run never, once or often, so that
// what a command there does to variables and the current directory is known
// neither in the next turn nor after them.

func (w *walker) ifClause(c *syntax.IfClause) {
	for ; c != nil; c = c.Else {
		w.under("an if", c.Cond)
		w.under("an if", c.Then)
	}
}

// while walks a while or until loop. One without an end is denied: the model
// means something else, or the call never returns.
func (w *walker) while(c *syntax.WhileClause) {
	w.forget(c)
	if endless(c.Cond) {
		w.denyDynamic("a loop without an end")
	}
	w.under("a loop", c.Cond)
	w.under("a loop", c.Do)
}

func endless(cond []*syntax.Stmt) bool {
	call, ok := cond[len(cond)-1].Cmd.(*syntax.CallExpr)
	return !ok || len(call.Args) == 0 || slices.Contains([]string{"true", ":", "false", "/bin/true"}, call.Args[0].Lit()) &&
		len(call.Args) == 1
}

func (w *walker) forClause(c *syntax.ForClause) {
	w.forget(c)
	iter, ok := c.Loop.(*syntax.WordIter)
	if !ok || c.Select {
		w.denyDynamic("a loop with an arithmetic condition, or a menu")
		w.inner(c.Loop)
		w.under("a loop", c.Do)
		return
	}
	in := w.in
	w.in.dynamic = "a loop"
	b := loopValues(w.words(iter.Items))
	w.in = in
	if why := variable(iter.Name.Value); why != "" {
		w.deny(why)
	}
	w.maybe(func() {
		w.set(iter.Name.Value, b)
		w.body("a loop", c.Do)
	})
}

func loopValues(items []arg) binding {
	b := binding{vals: []string{}, lead: true, numeric: true}
	for _, a := range items {
		switch {
		case a.known && b.vals != nil:
			b.vals = append(b.vals, a.text)
			b.numeric = b.numeric && isNumber(a.text)
			b.lead = b.lead && !strings.HasPrefix(a.text, "-")
		case a.known:
			b.lead = b.lead && !strings.HasPrefix(a.text, "-")
		default:
			b.vals, b.numeric = nil, false
			b.lead = b.lead && a.lead
		}
	}
	if len(b.vals) < 2 { // keep "one of these", not "this", for code that runs again
		b.numeric = b.numeric && len(b.vals) == 1
	}
	return b
}

// forget drops what is known of variables that a loop assigns, because its
// body runs more than once. What stays a number is one in every turn.
func (w *walker) forget(loop syntax.Node) {
	seen := w.takeCensus(loop)
	w.share(seen.functions)
	for _, s := range seen.names {
		if !s.number {
			w.set(s.name, binding{})
		}
	}
	for _, s := range seen.names {
		if s.number {
			w.set(s.name, binding{numeric: w.lookup(s.name).numeric})
		}
	}
	if seen.moves {
		w.cwds, w.lost = nil, true
	}
}

// staysNumber reports whether a variable that is a number is one after a too.
func (w *walker) staysNumber(a *syntax.Assign) bool {
	if a.Append || a.Index != nil || a.Array != nil || a.Value == nil || !w.lookup(a.Name.Value).numeric {
		return false
	}
	if len(a.Value.Parts) == 1 {
		_, ok := a.Value.Parts[0].(*syntax.ArithmExp)
		return ok || isNumber(a.Value.Lit())
	}
	return false
}
