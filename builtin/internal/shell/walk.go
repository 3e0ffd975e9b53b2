package shell

import (
	"maps"
	"slices"

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
