package shell

import (
	"maps"
	"slices"

	"mvdan.cc/sh/v3/syntax"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// A walker walks a parsed command in the order in which bash runs it. It denies everything that is not proved
// harmless and continues, because deny rules and the danger analysis need all commands.
type walker struct {
	walk
	scratch
}

// A walk is a walker's state for one line.
type walk struct {
	*findings
	at          pathrule.Place
	src         string
	deep        bool // nested too deep to continue
	long        bool // a command has too many options
	alarms      []Danger
	vars        map[string]binding
	volatile    map[string]bool   // variables that may change at any time
	anyChanged  bool              // any variable may have changed, because unknown code has run
	mayAbort    bool              // an error may have aborted a line, so an assignment may not have run
	copied      int               // bytes of variables' values that were copied into words
	cwds        []string          // possible current directories; empty if unknown
	expanded    int               // words from brace expansion
	repeated    int               // commands in bodies of loops, counted once for each word of the loop
	secret      string            // the secret variable that the current command expanded last
	lineSecret  string            // the secret variable that the line expanded last
	customIFS   bool              // the current command has an IFS=… before it, so read may not split its input at blanks
	substSource source            // source of the last process substitution's output
	secrets     map[string]string // variables to which a secret was assigned
	in          scope
	args        slab[arg]     // for the args of cmds
	reads       slab[operand] // for the reads of cmds
}

// findings are the results of a walk, which the Analysis keeps.
type findings struct {
	cmds        []command
	why         string // the first reason why the whole line is not read-only
	uncoverable bool   // no rule can cover some part
	background  bool
	cwdLost     bool  // the current directory is unknown at the end
	listed      []arg // words of loops, defaults and here-strings
	origins     []origin
	tops        map[string]string // the tops of work trees, by the current directory of a git rev-parse
}

// scratch is memory that successive walks reuse: a value that is kept must not point to it. Most of a walk's
// memory is scratch, so that a verdict does not cost more than parsing a command.
type scratch struct {
	ops    slab[roleArg] // for the ops of parsed
	given  slab[given]   // for the given of parsed
	parsed slab[parsed]
	facts  []fact // the results of checks of directories, each made once
	trees  reader // parses plain commands
	printer
}

// start prepares the walker for src. The findings use memory as far as it is sufficient.
func (w *walker) start(at *pathrule.Place, src string, memory *analysisMemory) {
	w.walk = walk{}
	w.findings, w.src = &memory.findings, src
	w.at = *at
	w.facts = w.facts[:0]
	if w.cwdLost = at.Cwd == ""; !w.cwdLost {
		w.cwds = append(memory.cwds[:0], at.Cwd)
	}
	w.cmds, w.origins = memory.cmds[:0], memory.origins[:0]
	w.args.array = memory.args[:]
	w.reads.array = memory.reads[:]
	w.ops.reset()
	w.given.reset()
	w.parsed.reset()
	w.trees.reset()
}

// A scope is the context of a command.
type scope struct {
	dynamic string       // the innermost construct that determines whether or how often the command runs
	depth   int32        // number of constructs and wrappers around it
	wrapper int32        // if opaque: index of the outermost opaque wrapper
	inputs  int32        // if piped: index of the first command that feeds it
	piped   bool         // the command reads the output of the commands before the pipe
	wrapped bool         // another command runs the command
	fed     *syntax.Stmt // if piped: the statement that writes its input
	input   source       // source of the standard input
	noValue bool         // the reader of the pipe shows no value of a secret variable if the command prints the environment
	opaque  bool         // one of the wrappers changes what the command does
	visits  bool         // the command runs in the directory of each file that find or fd finds below a known directory
}

// A command is a simple command, or a redirection without one, with the information that the analysis needs.
type command struct {
	args        []arg  // empty for a redirection
	name        string // without directory; "" if it is not literal; for a redirection its operator
	text        string // as written
	Reason      string // see [Command]
	in          scope
	cwds        []string
	targets     []operand // paths that it writes or deletes, by operands and redirections
	reads       []operand
	secret      string
	effects     effects
	edit        bool     // one of the file edits of accept-edits, and completely understood
	named       []string // options that a rule must name
	joined      int      // index of the first word of those that it joins and runs as shell code; 0: it does not
	whole       bool     // only a rule that has all words of the command may allow it
	anyWord     bool     // any of its words may name a file that it changes
	links       bool     // it copies or moves files that may be symbolic links
	redirs      bool     // it writes through a redirection
	maybeOption bool     // the only problem is a word that may be an option
	mayShow     bool     // the only problem is that it may show a secret
	checked     bool     // a directory was checked for programs that it may run
}

// An operand is a path as the command gets it.
type operand struct {
	arg
	delete bool
	path   string // absolute, set by secretName; "" if several paths are possible
}

func (w *walker) raw(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from > to || to > len(w.src) {
		return ""
	}
	return w.src[from:to]
}

// refuse records why the whole line is not read-only.
func (w *walker) refuse(why string) {
	if w.why == "" {
		w.why = why
	}
}

// deny is refuse for reasons that no allow rule can cover.
func (w *walker) deny(why string) {
	w.refuse(why)
	w.uncoverable = true
}

// denyDynamic is deny for constructs that evaluate values. Because a user cannot see their effect, they need
// approval.
func (w *walker) denyDynamic(why string) {
	w.deny(why)
	w.alarm(Dynamic, why)
}

func (w *walker) alarm(kind Kind, reason string) {
	w.alarms = append(w.alarms, Danger{kind, reason})
}

// inner walks the substitutions inside a node that the walker does not evaluate.
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

// nested walks statements that run in a subshell: their assignments and changes of the current directory end with it.
// It returns the possible directories at the end, nil if they are unknown.
func (w *walker) nested(stmts []*syntax.Stmt, construct string) (last []string) {
	in, vars, cwds, cwdLost := w.in, maps.Clone(w.vars), w.cwds, w.cwdLost
	if !w.deeper() {
		return nil
	}
	if construct != "" {
		w.in.dynamic = construct
	}
	w.in.noValue = false
	w.stmts(stmts)
	last = w.cwds
	w.in, w.vars, w.cwds, w.cwdLost = in, vars, cwds, cwdLost
	return last
}

// maxDepth is how deep commands may be nested: deeper than people write them, and less than the stack can take,
// because each level is several calls and eval can start again in a string. Deeper commands are not analysed,
// and the whole line counts as unreadable.
const maxDepth = 40

// deeper counts one more construct or wrapper around the following commands.
func (w *walker) deeper() bool {
	if w.in.depth++; w.in.depth > maxDepth {
		w.deep = true
	}
	return !w.deep
}

// conditional walks statements of a construct in the current shell that may or may not run.
func (w *walker) conditional(construct string, stmts []*syntax.Stmt) {
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
		w.refuse("a background command continues after the call")
	}
	// If a file cannot be opened, the statement does not run.
	if s.Background || slices.ContainsFunc(s.Redirs, mayFail) {
		w.maybe(func() { w.foreground(s) })
	} else {
		w.foreground(s)
	}
}

// mayFail reports whether a redirection may fail, because it opens a file or uses a descriptor.
func mayFail(r *syntax.Redirect) bool {
	return r.Op != syntax.Hdoc && r.Op != syntax.DashHdoc && r.Op != syntax.WordHdoc
}

func (w *walker) foreground(s *syntax.Stmt) {
	if takesInput(s) {
		fed, input := w.in.fed, w.in.input
		w.in.fed, w.in.input = nil, w.origin(origin{}) // a placeholder until setInput, since redirections are walked after the command
		defer func() { w.in.fed, w.in.input = fed, input }()
	}
	first := len(w.cmds)
	if call, ok := s.Cmd.(*syntax.CallExpr); ok {
		w.call(s, call)
	} else {
		w.compound(s.Cmd)
		w.redirects(s, first)
	}
}
