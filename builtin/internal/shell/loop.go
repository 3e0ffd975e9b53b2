package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// The body of a loop or branch may run never, once or several times, so its effects on variables and on the
// current directory are unknown in the next iteration and afterwards.

func (w *walker) ifClause(c *syntax.IfClause) {
	for ; c != nil; c = c.Else {
		w.conditional("an if", c.Cond)
		w.conditional("an if", c.Then)
	}
}

func (w *walker) caseClause(c *syntax.CaseClause) {
	w.word(c.Word)
	for _, item := range c.Items {
		for _, p := range item.Patterns {
			w.word(p)
		}
		w.conditional("a case", item.Stmts)
	}
}

// while walks a while or until loop. A loop that never ends is denied, because the model did not mean it or the
// call would never return.
func (w *walker) while(c *syntax.WhileClause) {
	if w.forgetVariables(c) {
		w.loseCwd()
	}
	if endless(c.Cond) {
		w.denyDynamic("an infinite loop")
	}
	// The body sees the variables that the condition sets.
	w.conditional("a loop", slices.Concat(c.Cond, c.Do))
}

func endless(cond []*syntax.Stmt) bool {
	if c, ok := cond[len(cond)-1].Cmd.(*syntax.ArithmCmd); ok {
		_, compares := c.X.(*syntax.BinaryArithm)
		return !compares
	}
	call, ok := cond[len(cond)-1].Cmd.(*syntax.CallExpr)
	return !ok || len(call.Args) == 0 || slices.Contains([]string{"true", ":", "false", "/bin/true"}, call.Args[0].Lit()) &&
		len(call.Args) == 1
}

func (w *walker) forClause(c *syntax.ForClause) {
	moves := w.forgetVariables(c)
	lost := func() {
		if moves {
			w.loseCwd()
		}
	}
	if count, ok := c.Loop.(*syntax.CStyleLoop); ok && !c.Select && w.counts(count, c.Do) {
		lost()
		w.conditional("a loop", c.Do)
		return
	}
	iter, ok := c.Loop.(*syntax.WordIter)
	if !ok || c.Select {
		lost()
		w.denyDynamic("a loop with an arithmetic condition, or a menu")
		w.inner(c.Loop)
		w.conditional("a loop", c.Do)
		return
	}
	in := w.in
	w.in.dynamic = "a loop"
	w.secret = ""
	items := w.words(iter.Items)
	if !iter.InPos.IsValid() {
		items = []arg{anything(`"$@"`)}
	}
	w.listed = append(w.listed, items...)
	name := iter.Name.Value
	b := w.loopValues(items)
	w.keepSecret(name)
	w.in = in
	if why := unsafeVariable(name); why != "" {
		w.deny(why)
	} else if w.mayRepeat(items, c.Do) {
		for _, a := range items {
			w.bodyFor(name, a.text, c.Do)
		}
		return
	}
	lost()
	w.maybe(func() {
		w.set(name, b)
		w.body("a loop", c.Do)
	})
}

// maxRepeated is how many commands may be walked in total for the bodies of loops over literal words, once for
// each word.
const maxRepeated = 256

// mayRepeat reports whether the words of a loop are known and its body is small. The body is then walked for
// each word as if it were written out.
func (w *walker) mayRepeat(items []arg, body []*syntax.Stmt) bool {
	if len(items) == 0 || len(items) > maxValues || slices.ContainsFunc(items, func(a arg) bool { return !a.known }) {
		return false
	}
	calls := 0
	for _, s := range body {
		syntax.Walk(s, func(n syntax.Node) bool {
			if _, ok := n.(*syntax.Stmt); ok {
				calls++
			}
			return true
		})
	}
	w.repeated += calls * len(items)
	return w.repeated <= maxRepeated
}

// bodyFor walks the body of a loop for one word. The body may end early, or not run at all.
func (w *walker) bodyFor(name, word string, body []*syntax.Stmt) {
	w.maybe(func() {
		construct := w.in.dynamic
		w.set(name, bindValues(word))
		if vals := w.lookup(name).vals; len(vals) != 1 || vals[0] != word {
			construct = "a loop"
		}
		w.body(construct, body)
	})
}

func (w *walker) loopValues(items []arg) binding {
	b := binding{vals: []string{}, noDash: true, numeric: true, identifiers: true, noSlash: true}
	for _, a := range items {
		b.identifiers = b.identifiers && a.class != anyText
		b.noSlash = b.noSlash && (a.noSlash || a.known && !strings.HasPrefix(a.text, "/"))
		switch {
		case a.known && b.vals != nil:
			b.vals = append(b.vals, a.text)
			b.numeric = b.numeric && isNumber(a.text)
			b.noDash = b.noDash && !strings.HasPrefix(a.text, "-")
		case a.known:
			b.noDash = b.noDash && !strings.HasPrefix(a.text, "-")
		default:
			b.vals, b.numeric = nil, false
			b.noDash = b.noDash && a.noDash
		}
	}
	b.numeric = b.numeric && len(b.vals) > 0 // without words the variable keeps its value
	if b.vals == nil {
		b.from = w.origin(origin{args: items})
	}
	return b
}

// forgetVariables drops the bindings of variables that a loop assigns, as its body runs more than once, and reports
// whether the loop may change the current directory. Numeric variables that stay numeric are kept as numeric.
func (w *walker) forgetVariables(loop syntax.Node) (moves bool) {
	seen := w.collectAssigned(loop)
	w.markVolatile(seen.functions)
	for _, s := range seen.names {
		if !s.number {
			w.set(s.name, binding{})
		}
	}
	for _, s := range seen.names {
		if s.number {
			old := w.lookup(s.name)
			w.set(s.name, binding{numeric: old.numeric, printed: old.printed})
		}
	}
	w.anyChanged = w.anyChanged || seen.unknown
	return seen.moves || seen.unknown
}

// staysNumber reports whether a numeric variable is still numeric after a.
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

// counts reports whether a C-style loop only counts with a variable that its body does not change.
func (w *walker) counts(c *syntax.CStyleLoop, body []*syntax.Stmt) bool {
	init, ok := c.Init.(*syntax.BinaryArithm)
	if !ok || init.Op != syntax.Assgn || c.Cond == nil || c.Post == nil || !w.arithmetic(init.Y) {
		return false
	}
	name := arithmWord(init.X)
	if !lowerName().MatchString(name) || unsafeVariable(name) != "" {
		return false
	}
	for _, s := range body {
		seen := w.collectAssigned(s)
		if seen.unknown || slices.ContainsFunc(seen.names, func(s assignment) bool { return s.name == name }) {
			return false
		}
	}
	w.set(name, binding{numeric: true})
	if !w.lookup(name).numeric || !w.arithmetic(c.Cond) {
		return false
	}
	switch post := c.Post.(type) {
	case *syntax.UnaryArithm:
		return (post.Op == syntax.Inc || post.Op == syntax.Dec) && arithmWord(post.X) == name
	case *syntax.BinaryArithm:
		return (post.Op == syntax.AddAssgn || post.Op == syntax.SubAssgn) && arithmWord(post.X) == name && w.arithmetic(post.Y)
	}
	return false
}

// counted reports whether (( x )) only compares numbers, or counts with a variable of the line.
func (w *walker) counted(x syntax.ArithmExpr) bool {
	name, by := counter(x)
	switch {
	case name == "":
		return w.arithmetic(x)
	case !lowerName().MatchString(name) || unsafeVariable(name) != "" || !w.lookup(name).numeric || by != nil && !w.arithmetic(by):
		return false
	}
	w.set(name, binding{numeric: true})
	return w.lookup(name).numeric
}

// counter returns the variable that an expression counts, or "", and the increment; nil is one.
func counter(x syntax.ArithmExpr) (name string, by syntax.ArithmExpr) {
	switch x := x.(type) {
	case *syntax.UnaryArithm:
		if x.Op == syntax.Inc || x.Op == syntax.Dec {
			return arithmWord(x.X), nil
		}
	case *syntax.BinaryArithm:
		if x.Op == syntax.AddAssgn || x.Op == syntax.SubAssgn || x.Op == syntax.MulAssgn {
			return arithmWord(x.X), x.Y
		}
	}
	return "", nil
}

func arithmWord(x syntax.ArithmExpr) string {
	word, ok := x.(*syntax.Word)
	if !ok {
		return ""
	}
	return word.Lit()
}
