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

// while walks a while or until loop. A loop that never ends needs approval, because the call would not return.
func (w *walker) while(c *syntax.WhileClause) {
	if w.forgetAssigned(c) {
		w.loseCwd()
	}
	if endless(c.Cond) {
		w.denyDynamic("an infinite loop")
	}
	// The body sees the variables that the condition sets.
	w.conditional("a loop", slices.Concat(c.Cond, c.Do))
}

// endless reports whether the last command of a condition may have the same result each time.
func endless(cond []*syntax.Stmt) bool {
	switch c := cond[len(cond)-1].Cmd.(type) {
	case *syntax.ArithmCmd:
		_, compares := c.X.(*syntax.BinaryArithm)
		return !compares
	case *syntax.CallExpr:
		return len(c.Args) == 0 || len(c.Args) == 1 && slices.Contains([]string{"true", ":", "false", "/bin/true"}, c.Args[0].Lit())
	}
	return true
}

func (w *walker) forClause(c *syntax.ForClause) {
	moves := w.forgetAssigned(c)
	loseCwdIfMoved := func() {
		if moves {
			w.loseCwd()
		}
	}
	if count, ok := c.Loop.(*syntax.CStyleLoop); ok && !c.Select && w.counts(count, c.Do) {
		loseCwdIfMoved()
		w.conditional("a loop", c.Do)
		return
	}
	iter, ok := c.Loop.(*syntax.WordIter)
	if !ok || c.Select {
		loseCwdIfMoved()
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
	} else if w.canRepeat(items, c.Do) {
		for _, a := range items {
			w.bodyForWord(name, a.text, c.Do)
		}
		return
	}
	loseCwdIfMoved()
	w.maybe(func() {
		w.set(name, b)
		w.body("a loop", c.Do)
	})
}

// maxRepeated is how many statements of a line may be walked in the bodies of loops over literal words.
const maxRepeated = 256

// canRepeat reports whether the body of a loop can be walked once for each word: the words are known, and the body is
// small. It counts the statements.
func (w *walker) canRepeat(items []arg, body []*syntax.Stmt) bool {
	if len(items) == 0 || len(items) > maxValues || slices.ContainsFunc(items, func(a arg) bool { return !a.known }) {
		return false
	}
	stmts := 0
	for _, s := range body {
		syntax.Walk(s, func(n syntax.Node) bool {
			if _, ok := n.(*syntax.Stmt); ok {
				stmts++
			}
			return true
		})
	}
	w.repeated += stmts * len(items)
	return w.repeated <= maxRepeated
}

// bodyForWord walks the body of a loop for one word. The body may end early, or not run at all.
func (w *walker) bodyForWord(name, word string, body []*syntax.Stmt) {
	w.maybe(func() {
		construct := w.in.dynamic
		w.set(name, bindValues(word))
		if vals := w.lookup(name).vals; len(vals) != 1 || vals[0] != word {
			construct = "a loop" // the commands depend on other values, too
		}
		w.body(construct, body)
	})
}

// loopValues returns what is known about the variable of a loop over items.
func (w *walker) loopValues(items []arg) binding {
	b := binding{vals: []string{}, noDash: true, numeric: len(items) > 0, identifiers: true, noSlash: true} // without items the variable keeps its value
	for _, a := range items {
		b.identifiers = b.identifiers && a.class != anyText
		b.numeric = b.numeric && a.known && isNumber(a.text)
		if !a.known {
			b.noDash, b.noSlash, b.vals = b.noDash && a.noDash, b.noSlash && a.noSlash, nil
			continue
		}
		b.noDash = b.noDash && !strings.HasPrefix(a.text, "-")
		b.noSlash = b.noSlash && !strings.HasPrefix(a.text, "/")
		if b.vals != nil {
			b.vals = append(b.vals, a.text)
		}
	}
	if b.vals == nil {
		b.from = w.origin(origin{args: items})
	}
	return b
}

// forgetAssigned drops the values of variables that a loop assigns, as its body runs more than once, and reports whether
// the loop may change the current directory. Numeric variables that stay numeric remain so.
func (w *walker) forgetAssigned(loop syntax.Node) (moves bool) {
	assigned := w.collectAssigned(loop)
	w.markVolatile(assigned.functions)
	for _, a := range assigned.names {
		if !a.number {
			w.set(a.name, binding{})
		}
	}
	for _, a := range assigned.names { // afterwards: another assignment in the loop may not be of a number
		if a.number {
			old := w.lookup(a.name)
			w.set(a.name, binding{numeric: old.numeric, printed: old.printed})
		}
	}
	w.anyChanged = w.anyChanged || assigned.unknown
	return assigned.moves || assigned.unknown
}

// staysNumber reports whether a variable is numeric before and after the assignment a.
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

// counts reports whether a C-style loop only counts with a variable that the body does not change, and records that the
// variable is numeric.
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
		assigned := w.collectAssigned(s)
		if assigned.unknown || slices.ContainsFunc(assigned.names, func(a assignment) bool { return a.name == name }) {
			return false
		}
	}
	w.set(name, binding{numeric: true})
	if !w.lookup(name).numeric || !w.arithmetic(c.Cond) { // the variable may be volatile
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

// harmlessArithmetic reports whether (( x )) only compares numbers, or counts with a variable of the line.
func (w *walker) harmlessArithmetic(x syntax.ArithmExpr) bool {
	name, by := counter(x)
	switch {
	case name == "":
		return w.arithmetic(x)
	case !lowerName().MatchString(name) || unsafeVariable(name) != "" || !w.lookup(name).numeric || by != nil && !w.arithmetic(by):
		return false
	}
	w.set(name, binding{numeric: true})
	return true
}

// counter returns the variable that x counts with, or "", and by how much; nil means one.
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

// arithmWord returns the literal of which x consists, or "".
func arithmWord(x syntax.ArithmExpr) string {
	word, ok := x.(*syntax.Word)
	if !ok {
		return ""
	}
	return word.Lit()
}
