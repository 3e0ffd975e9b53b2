package shell

import (
	"maps"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// A walker goes through a parsed command in the order in which bash runs it.
// What it cannot prove harmless it denies; it goes on all the same, because
// deny rules and the danger analysis want every command there is.
type walker struct {
	walk
	scratch
}

// A walk is what a walker knows of one command.
type walk struct {
	findings
	at       *pathrule.Place
	src      string
	deep     bool // nested too deep to go on
	long     bool // a command has too many options
	alarms   []Danger
	vars     map[string]binding
	shared   map[string]bool   // variables that may change at any time
	blind    bool              // any variable may: code that is not seen has run
	fragile  bool              // an error may have ended a line, so that an assignment may not have run
	copied   int               // bytes of values in words
	cwds     []string          // where the next command may run; empty: not known
	expanded int               // words that came from braces
	secret   string            // the last secret variable that was expanded
	spilled  string            // one that was expanded anywhere
	cut      bool              // what the command reads is split otherwise than at blanks
	inflow   source            // what the last process substitution prints
	secrets  map[string]string // variables to which one was assigned
	in       scope
	args     slab[arg]     // those of cmds
	reads    slab[operand] // those of cmds
}

// findings are what is kept of a walk.
type findings struct {
	cmds       []command
	why        string // the first reason why the whole is not read-only
	loose      bool   // there is something that no rule can cover
	background bool
	facts      []fact // what was looked at in directories
	listed     []arg  // what loops go through, defaults and here-strings
	origins    []origin
	lost       bool // at the end, the current directory cannot be known any more
}

// scratch is memory that one walk after the other uses: nothing that is kept
// may point to it. It is most of what a walk needs, so that a verdict does not
// cost more than the parsing of a command.
type scratch struct {
	ops     slab[roleArg]
	given   slab[given]
	closers slab[parsed]
	trees   reader
	printer
}

// start makes the walker ready for src. What is kept of the walk goes to room as
// far as there is some.
func (w *walker) start(s *site, src string, room *small) {
	w.walk = walk{}
	w.at, w.src, w.cwds, w.lost = &s.at, src, s.cwds, s.cwds == nil
	w.cmds, w.origins = room.cmds[:0], room.origins[:0]
	w.args.array = room.args[:]
	w.reads.array = room.reads[:]
	w.ops.reset()
	w.given.reset()
	w.closers.reset()
	w.trees.reset()
}

// A scope is what surrounds a command.
type scope struct {
	dynamic string       // the innermost construct that decides whether or how often it runs
	depth   int32        // of constructs and wrappers around it
	wrapper int32        // with opaque: index of the outermost such command
	inputs  int32        // with piped: index of the first command that feeds it
	piped   bool         // reads the output of the commands before it
	wrapped bool         // another command runs it
	fed     *syntax.Stmt // with a pipe: what brings the standard input
	input   source       // what the standard input brings
	names   bool         // of what it shows only names of variables are seen, and values that are no secret
	opaque  bool         // … and not as if it stood there alone
}

// A command is a simple command, or a redirection without one, and what the
// analysis needs of it.
type command struct {
	args    []arg  // empty: a redirection
	name    string // without directory; "" if it is not literal; the operator of a redirection
	text    string // as written
	Reason  string // see [Command]
	in      scope
	cwds    []string
	targets []operand // paths it writes or deletes, by operands and redirections
	reads   []operand
	secret  string
	effects effects
	edit    bool     // one of the file edits of accept-edits, understood completely
	named   []string // options that a rule must name
	whole   bool     // a rule must be the whole of it
	anyWord bool     // changes what its words name, and nobody knows which of them
	links   bool     // copies or moves what may be a symbolic link
	redirs  bool     // writes through a redirection
	doubt   bool     // a word may be an option, and that is all
	mayShow bool     // it may show a secret, and that is all
	looked  bool     // what it may run was looked for in a directory
}

// An operand is a path as a command gets it.
type operand struct {
	arg
	delete bool
}

func (w *walker) raw(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from > to || to > len(w.src) {
		return ""
	}
	return w.src[from:to]
}

// refuse records why the whole is not read-only.
func (w *walker) refuse(why string) {
	if w.why == "" {
		w.why = why
	}
}

// deny is refuse for what no allow rule can speak of.
func (w *walker) deny(why string) {
	w.refuse(why)
	w.loose = true
}

// denyDynamic is deny for what evaluates values: nobody can see at a glance
// what it does, so a person must.
func (w *walker) denyDynamic(why string) {
	w.deny(why)
	w.alarm(Dynamic, why)
}

func (w *walker) alarm(kind Kind, reason string) {
	w.alarms = append(w.alarms, Danger{kind, reason})
}

// inner walks the substitutions inside a node that is not understood.
func (w *walker) inner(n syntax.Node) {
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			w.nested(n.Stmts, "a command substitution")
			return false
		case *syntax.ProcSubst:
			w.nested(n.Stmts, "a process substitution")
			return false
		}
		return true
	})
}

// nested walks statements that run in a shell of their own: what they assign
// and where they go is forgotten after them.
func (w *walker) nested(stmts []*syntax.Stmt, construct string) {
	in, vars, cwds, lost := w.in, maps.Clone(w.vars), w.cwds, w.lost
	if !w.deeper() {
		return
	}
	if construct != "" {
		w.in.dynamic = construct
	}
	w.in.names = false
	w.stmts(stmts)
	w.in, w.vars, w.cwds, w.lost = in, vars, cwds, lost
}

// maxDepth is how deep commands may be inside others: deeper than people write
// them, and less than the stack bears, for each level is several calls and eval
// can begin again in a string. Deeper ones are not looked at, and the whole counts
// as unreadable.
const maxDepth = 40

// deeper notes one more construct or wrapper around what follows.
func (w *walker) deeper() bool {
	if w.in.depth++; w.in.depth > maxDepth {
		w.deep = true
	}
	return !w.deep
}

// under walks statements of a construct in the current shell that may run or not.
func (w *walker) under(construct string, stmts []*syntax.Stmt) {
	w.maybe(func() { w.body(construct, stmts) })
}

func (w *walker) body(construct string, stmts []*syntax.Stmt) {
	in := w.in
	if !w.deeper() {
		return
	}
	w.in.dynamic = construct
	w.stmts(stmts)
	w.in = in
}

func (w *walker) stmts(list []*syntax.Stmt) {
	for _, s := range list {
		w.stmt(s)
	}
}

func (w *walker) stmt(s *syntax.Stmt) {
	if w.deep {
		return
	}
	if s.Background || s.Coprocess || s.Disown {
		w.background = true
		w.refuse("a command in the background goes on after the call")
	}
	// Where a file cannot be opened, nothing of the statement runs.
	if s.Background || slices.ContainsFunc(s.Redirs, opens) {
		w.maybe(func() { w.foreground(s) })
		return
	}
	w.foreground(s)
}

// opens reports whether a redirection may fail.
func opens(r *syntax.Redirect) bool {
	return r.Op != syntax.Hdoc && r.Op != syntax.DashHdoc && r.Op != syntax.WordHdoc
}

func (w *walker) foreground(s *syntax.Stmt) {
	fed := w.in.fed
	if fed != nil && takesInput(s) {
		w.in.fed = nil
		defer func() { w.in.fed = fed }()
	}
	if takesInput(s) {
		input := w.in.input
		w.in.input = w.origin(origin{}) // the redirection says it, which is walked after the command
		defer func() { w.in.input = input }()
	}
	first := len(w.cmds)
	if call, ok := s.Cmd.(*syntax.CallExpr); ok {
		w.call(s, call)
	} else {
		w.compound(s.Cmd)
		w.redirects(s, first)
	}
}

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
		w.word(c.Word)
		for _, item := range c.Items {
			for _, p := range item.Patterns {
				w.word(p)
			}
			w.under("a case", item.Stmts)
		}
	case *syntax.TestClause:
		if why := w.test(c.X); why != "" {
			w.denyDynamic(why)
			w.inner(c)
		}
	case *syntax.TimeClause:
		t := w.add()
		t.args, t.name, t.text = []arg{literal("time")}, "time", "time"
		if c.Stmt != nil {
			w.inside(len(w.cmds)-1, func() { w.stmt(c.Stmt) })
		}
	case *syntax.FuncDecl:
		w.deny("a function definition changes what names mean")
		if c.Body != nil {
			if c.Name != nil && calls(c.Body, c.Name.Value) {
				w.alarm(Destructive, "the function "+c.Name.Value+" calls itself")
			}
			// It runs later, with the values of then, and what it sets is set then.
			seen := w.takeCensus(c)
			w.share(seen.functions)
			vars := w.vars
			w.vars = nil
			w.nested([]*syntax.Stmt{c.Body}, "a function")
			w.vars = vars
		}
	case *syntax.DeclClause:
		if args := listing(c); args != nil {
			w.simple(args, w.raw(c), "")
			return
		}
		w.declaration(c)
	case *syntax.CoprocClause:
		w.deny("a coprocess")
		w.nested([]*syntax.Stmt{c.Stmt}, "a coprocess")
	case *syntax.ArithmCmd:
		if !w.counted(c.X) {
			w.denyDynamic("a command that evaluates values")
			w.declare(c)
			w.inner(c)
		}
	default: // LetClause, and what later versions of the parser add
		w.denyDynamic("a command that evaluates values")
		w.declare(c)
		w.inner(c)
	}
}

// listing returns the words of a declaration that declares nothing: declare -p PATH. The
// tables know which options it may have.
func listing(c *syntax.DeclClause) []arg {
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
	if len(args) < 2 || !args[1].option() || !strings.ContainsAny(args[1].text, "pfF") || slices.ContainsFunc(args[2:], func(a arg) bool { return a.option() }) {
		return nil
	}
	return args
}

// calls reports whether n calls a command by this name.
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

// declare forgets the variables that a declaration names.
func (w *walker) declare(n syntax.Node) {
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
	in := w.in
	switch c.Op {
	case syntax.AndStmt, syntax.OrStmt:
		before := w.cwds
		w.stmt(c.X)
		after := w.cwds
		moved, ok := cdOf(c.X)
		if ok && !w.lost {
			// The right side knows whether the cd before it worked.
			w.cwds = before
			if c.Op == syntax.AndStmt {
				w.cwds = w.resolveAll(before, moved)
			}
			right := w.cwds
			w.maybe(func() { w.stmt(c.Y) })
			if slices.Equal(w.cwds, right) {
				w.cwds = after
			} else {
				w.moved(after)
			}
		} else {
			w.maybe(func() { w.stmt(c.Y) })
		}
	default:
		from := int32(len(w.cmds))
		if in.piped {
			from = in.inputs
		}
		_, simple := c.X.Cmd.(*syntax.CallExpr)
		_, listed := c.X.Cmd.(*syntax.DeclClause)
		w.in.names = (simple || listed) && len(c.X.Redirs) == 0 && onlyNames(c.Y)
		w.maybe(func() { w.stmt(c.X) })
		w.in.names = in.names
		w.in.piped, w.in.inputs, w.in.fed = true, from, c.X
		w.in.input = w.printedBy(int(from))
		w.maybe(func() { w.stmt(c.Y) })
	}
	w.in = in
}

// moved adds directories to those where the next command may run.
func (w *walker) moved(dirs []string) {
	if w.lost {
		return
	}
	for _, d := range dirs {
		if !slices.Contains(w.cwds, d) {
			w.cwds = append(slices.Clone(w.cwds), d)
		}
	}
	// Every later path is judged from all of them: after a few, "cd a; cd b; …"
	// would double the work of each, so the place counts as lost.
	if len(w.cwds) > 8 {
		w.cwds, w.lost = nil, true
	}
}

func (w *walker) resolveAll(dirs []string, to string) []string {
	var out []string
	for _, d := range dirs {
		if p := resolve(d, to); !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

func resolve(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Clean(dir + "/" + name)
}

// cdOf returns where a statement changes to if it is a plain cd to a literal
// directory: in "cd d && rm x" the path is d/x, and not x as well.
func cdOf(s *syntax.Stmt) (string, bool) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) != 2 || len(c.Assigns) > 0 || len(s.Redirs) > 0 || s.Negated || c.Args[0].Lit() != "cd" {
		return "", false
	}
	to := c.Args[1].Lit()
	return to, to != "" && !strings.ContainsAny(to, `\*?[{~-`)
}

// cd notes that the current directory may have changed to a.
func (w *walker) cd(a arg) {
	if !a.known || a.text == "-" || w.lost {
		w.cwds, w.lost = nil, true
		return
	}
	w.moved(w.resolveAll(w.cwds, a.text))
}

// test returns why a [[ … ]] may evaluate more than it compares, or "".
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
			if !w.numeral(x.X) || !w.numeral(x.Y) {
				return "a numeric comparison in [[ ]] evaluates its operands"
			}
		case syntax.TsReMatch: // bash looks for the end of a parenthesis, in brackets too
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

func (w *walker) numeral(x syntax.TestExpr) bool {
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
