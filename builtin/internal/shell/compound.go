package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

func (w *walker) compound(cmd syntax.Command) {
	switch c := cmd.(type) {
	case nil:
	case *syntax.BinaryCmd:
		w.binary(c)
	case *syntax.Block:
		w.stmts(c.Stmts)
	case *syntax.Subshell:
		w.nested(c.Stmts, "a subshell")
	case *syntax.IfClause:
		w.ifClause(c)
	case *syntax.WhileClause:
		w.while(c)
	case *syntax.ForClause:
		w.forClause(c)
	case *syntax.CaseClause:
		w.caseClause(c)
	case *syntax.TestClause:
		if why := w.test(c.X); why != "" {
			w.denyDynamic(why)
			w.inner(c)
		}
	case *syntax.TimeClause:
		t := w.addCommand()
		t.args, t.name, t.text = []arg{literal("time")}, "time", "time"
		if c.Stmt != nil {
			w.inside(len(w.cmds)-1, func() { w.stmt(c.Stmt) })
		}
	case *syntax.FuncDecl:
		w.function(c)
	case *syntax.DeclClause:
		if args := shownNames(c); args != nil {
			w.simpleCommand(args, w.raw(c), "")
			return
		}
		w.declaration(c)
	case *syntax.CoprocClause:
		w.deny("a coprocess")
		w.nested([]*syntax.Stmt{c.Stmt}, "a coprocess")
	default: // LetClause, ArithmCmd, and nodes of later versions of the parser
		if arithm, ok := c.(*syntax.ArithmCmd); ok && w.harmlessArithmetic(arithm.X) {
			return
		}
		w.denyDynamic("a command that evaluates values")
		w.dropNamed(c)
		w.inner(c)
	}
}

// function walks the body of a function. The body runs when the function is called, with the variables of that
// time, and may set variables.
func (w *walker) function(c *syntax.FuncDecl) {
	w.deny("a function definition changes the meaning of names")
	if c.Body == nil {
		return
	}
	if c.Name != nil && calls(c.Body, c.Name.Value) {
		w.alarm(Destructive, "the function "+c.Name.Value+" calls itself")
	}
	seen := w.collectAssigned(c)
	w.markVolatile(seen.functions)
	w.anyChanged = w.anyChanged || seen.unknown
	vars := w.vars
	w.vars = nil
	w.nested([]*syntax.Stmt{c.Body}, "a function")
	w.vars = vars
}

// shownNames returns the words of a declaration that only shows variables or functions, such as declare -p PATH, or
// nil. The tables say which options are allowed.
func shownNames(c *syntax.DeclClause) []arg {
	args := []arg{literal(c.Variant.Value)}
	for _, a := range c.Args {
		switch {
		case !a.Naked || a.Index != nil:
			return nil
		case a.Name != nil:
			args = append(args, literal(a.Name.Value))
		case a.Value.Lit() == "":
			return nil
		default:
			args = append(args, literal(a.Value.Lit()))
		}
	}
	// -p, -f and -F show; any other option must be in the same word.
	if len(args) < 2 || !args[1].option() || !strings.ContainsAny(args[1].text, "pfF") || slices.ContainsFunc(args[2:], func(a arg) bool { return a.option() }) {
		return nil
	}
	return args
}

// calls reports whether n calls a command of this name.
func calls(n syntax.Node, name string) bool {
	found := false
	syntax.Walk(n, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 {
			found = found || c.Args[0].Lit() == name
		}
		return !found
	})
	return found
}

// dropNamed drops the bindings of all variables whose names occur in n, which may assign to them.
func (w *walker) dropNamed(n syntax.Node) {
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil {
				w.set(n.Name.Value, binding{})
			}
		case *syntax.Lit:
			w.set(n.Value, binding{})
		}
		return true
	})
}

func (w *walker) binary(c *syntax.BinaryCmd) {
	if c.Op != syntax.AndStmt && c.Op != syntax.OrStmt {
		w.pipe(c)
		return
	}
	in, before := w.in, w.cwds
	defer func() { w.in = in }()
	w.stmt(c.X)
	after := w.cwds
	name, isCd := cdOperand(c.X)
	if !isCd || w.cwdLost {
		w.maybe(func() { w.stmt(c.Y) })
		return
	}
	// The right side only runs if the cd succeeded, or only if it failed.
	right := before
	if c.Op == syntax.AndStmt {
		right = resolveAll(before, name)
	}
	w.cwds = right
	w.maybe(func() { w.stmt(c.Y) })
	if slices.Equal(w.cwds, right) { // the right side does not change the directory
		w.cwds = after
	} else {
		w.addCwds(after)
	}
}

func (w *walker) pipe(c *syntax.BinaryCmd) {
	in := w.in
	first := int32(len(w.cmds))
	if in.piped {
		first = in.inputs
	}
	_, simple := c.X.Cmd.(*syntax.CallExpr)
	_, declares := c.X.Cmd.(*syntax.DeclClause)
	w.in.noValue = (simple || declares) && len(c.X.Redirs) == 0 && onlyNames(c.Y)
	w.maybe(func() { w.stmt(c.X) })
	w.in.noValue = in.noValue
	w.in.piped, w.in.inputs, w.in.fed = true, first, c.X
	w.in.input = w.printedBy(int(first))
	w.maybe(func() { w.stmt(c.Y) })
	w.in = in
}

// test returns why a [[ … ]] may evaluate its operands, or "".
func (w *walker) test(x syntax.TestExpr) string {
	switch x := x.(type) {
	case *syntax.Word:
		w.word(x)
	case *syntax.ParenTest:
		return w.test(x.X)
	case *syntax.UnaryTest:
		if x.Op == syntax.TsVarSet || x.Op == syntax.TsRefVar {
			return "a test of a variable's name evaluates it"
		}
		return w.test(x.X)
	case *syntax.BinaryTest:
		switch x.Op {
		case syntax.TsEql, syntax.TsNeq, syntax.TsLeq, syntax.TsGeq, syntax.TsLss, syntax.TsGtr:
			if !w.isNumeric(x.X) || !w.isNumeric(x.Y) {
				return "a numeric comparison in [[ ]] evaluates its operands"
			}
		case syntax.TsReMatch: // bash also counts parentheses inside brackets
			if raw := w.raw(x.Y); strings.Count(raw, "(") != strings.Count(raw, ")") {
				return "a regular expression whose parentheses do not match"
			}
		}
		if why := w.test(x.X); why != "" {
			return why
		}
		return w.test(x.Y)
	}
	return ""
}

// isNumeric reports whether an operand of a numeric comparison, perhaps in double quotes, has nothing that bash evaluates.
func (w *walker) isNumeric(x syntax.TestExpr) bool {
	word, ok := x.(*syntax.Word)
	if !ok {
		return false
	}
	if len(word.Parts) == 1 {
		if q, ok := word.Parts[0].(*syntax.DblQuoted); ok && !q.Dollar {
			word = &syntax.Word{Parts: q.Parts}
		}
	}
	return w.arithmetic(word)
}
