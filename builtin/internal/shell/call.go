package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// harmlessVariables may be set in front of a command without changing what it
// runs or writes. All others may: LD_PRELOAD, PATH, GIT_EXTERNAL_DIFF, LESSOPEN and
// many more are ways to run a file by way of a harmless command. Where a variable
// may name a file, prefix wants a value without a slash; TZ names one that is only
// read as a time zone, and RUST_LOG and DEBUG have slashes in the names of modules.
var harmlessVariables = []string{
	"LANG", "LANGUAGE", "TZ", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TERM",
	"NODE_ENV", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "RUST_LOG", "RUST_BACKTRACE", "DEBUG", "VERBOSE", "CI",
	"GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT", "GOOS", "GOARCH", "CGO_ENABLED",
}

// pagers are variables that name a program; only cat, or nothing, is harmless.
var pagers = []string{"PAGER", "GIT_PAGER", "MANPAGER", "GH_PAGER", "SYSTEMD_PAGER", "BAT_PAGER", "AWS_PAGER"}

// prefix returns why the assignment in front of a command may change what the
// command does, or "".
func prefix(name string, value arg) string {
	switch {
	case slices.Contains(pagers, name) && value.known && (value.text == "cat" || value.text == ""):
	case strings.HasPrefix(name, "LC_"), slices.Contains(harmlessVariables, name):
		if !value.known || strings.Contains(value.text, "/") && name != "TZ" && name != "RUST_LOG" && name != "DEBUG" {
			return name + " is not set to a plain value"
		}
	default:
		return "setting " + name + " may change what runs"
	}
	return ""
}

// scriptNames are names in upper case that scripts use for their own, and no program that
// reads looks at.
var scriptNames = strings.Fields("BASE BRANCH COMMIT COUNT DIR FILE FILES HASH LAST NAME NUM OUT OUTPUT POD RES RESULT SHA SIZE SUM TAG TOTAL VALUE VERSION")

// variable returns why assigning to the shell variable called name may change
// what later commands do, or "". Names in lower case are the script's own.
func variable(name string) string {
	if slices.Contains(scriptNames, name) || name == strings.ToLower(name) && !strings.HasSuffix(name, "_proxy") && !strings.HasPrefix(name, "npm_") && name != "_" {
		return ""
	}
	return "setting " + name + " may change what runs after it"
}

// call walks a simple command with its assignments and redirections.
func (w *walker) call(s *syntax.Stmt, c *syntax.CallExpr) {
	first := len(w.cmds)
	w.secret, w.cut = "", false
	args := w.words(c.Args)
	// Values are walked even where the assignment is refused: they may hold
	// substitutions.
	changed := ""
	for _, as := range c.Assigns {
		value := w.value(as)
		name := as.Name.Value
		if len(args) == 0 {
			w.keepSecret(name)
		}
		if len(args) > 0 {
			w.cut = w.cut || name == "IFS" && value.text != ""
			// IFS for the time of a read only says where its line is cut.
			reading := name == "IFS" && args[0].known && args[0].text == "read"
			if why := prefix(name, value); !reading && (why != "" || as.Append || as.Index != nil) {
				changed = "setting " + name + " may change what runs"
			}
			continue
		}
		if why := variable(name); why != "" {
			w.deny(why)
		}
		b := binding{from: w.originOf(value), lead: value.lead, numeric: w.staysNumber(as) || value.class == digits, atom: value.class != anyText}
		switch {
		case as.Append || as.Index != nil:
			b = binding{}
		case as.Array != nil:
			b = binding{from: value.from}
		case value.known:
			b = bindValues(value.text)
		}
		w.set(name, b)
	}
	if len(args) > 0 {
		w.simple(args, w.raw(c), w.secret)
		if changed != "" {
			w.deny(changed)
			w.cmds[first].Reason = changed
		}
	}
	w.redirects(s, first)
}

// value evaluates what an assignment assigns.
func (w *walker) value(as *syntax.Assign) arg {
	if as.Index != nil {
		w.denyDynamic("an array index that is evaluated")
		w.inner(as.Index)
	}
	if as.Array != nil {
		var all []arg
		for _, el := range as.Array.Elems {
			if el.Index != nil {
				w.denyDynamic("an array index that is evaluated")
				w.inner(el.Index)
			}
			if el.Value != nil {
				all = append(all, w.fields(el.Value)...)
			}
		}
		return arg{text: hole, from: w.origin(origin{args: all})}
	}
	if as.Value == nil {
		return literal("")
	}
	a := w.word(as.Value)
	if a.wild && !strings.Contains(a.text, hole) {
		a.known = true // no globbing in assignments
	}
	return a
}

// standardDirs are where a command named with its path is the one that its
// name says. Not /usr/local: what is there need not be what the table is about.
var standardDirs = []string{"/bin", "/usr/bin", "/sbin", "/usr/sbin"}

// add begins a new command.
func (w *walker) add() *command {
	if n := len(w.cmds); n < cap(w.cmds) {
		w.cmds = w.cmds[:n+1] // none was there before: it is zero
	} else {
		w.cmds = append(w.cmds, command{})
	}
	c := &w.cmds[len(w.cmds)-1]
	c.in, c.cwds = w.in, w.cwds
	return c
}

// simple analyses one simple command, and what it wraps after it.
func (w *walker) simple(args []arg, text, secret string) {
	head := &args[0]
	at := len(w.cmds)
	c := w.add()
	c.args, c.text, c.secret = args, text, secret
	if !head.known || head.text == "" {
		w.conclude(at, parsed{}, "the command's name is not literal")
		w.blind = true
		return
	}
	c.name = path.Base(head.text)
	if len(args) > maxOptions && tooMany(args) {
		w.long = true
		return
	}
	// A program of the same name elsewhere is another program: what the table
	// says is good for deny rules and alarms, not for a proof.
	p, why := w.understand(c, families()[c.name], c.name, args[1:])
	if strings.Contains(head.text, "/") && !slices.Contains(standardDirs, path.Dir(head.text)) {
		why = head.text + " is not a command of the system"
	}
	w.conclude(at, p, why)
	if p.spec != nil {
		w.follow(at, p, why)
	}
	w.assignedBy(w.cmds[at].name, args)
}

// maxOptions is how many options of a command are looked at. An option may change what
// all others mean.
const maxOptions = 500

func tooMany(args []arg) bool {
	n := 0
	for i := range args {
		if args[i].option() {
			n++
		}
	}
	return n > maxOptions
}

// follow analyses what the command at index i runs.
func (w *walker) follow(i int, p parsed, why string) {
	for _, op := range p.ops {
		if op.opt && op.kind == 's' {
			w.inside(i, func() { w.script([]arg{op.arg}) })
		}
	}
	switch {
	case !p.spec.wraps():
	case p.rest >= 0:
		w.inside(i, func() { w.wrapped(w.cmds[i].name, p) })
	case why != "":
		w.inside(i, func() { w.guess(p.args) })
	}
}

// wraps reports whether the command runs another one that follows it.
func (s *spec) wraps() bool {
	return slices.ContainsFunc(s.roles, func(r role) bool { return r.kind == 'x' || r.kind == 's' })
}

// guess looks for the command that a wrapper runs whose options are not
// understood, so that deny rules and the danger analysis see it.
func (w *walker) guess(args []arg) {
	for i, a := range args {
		if f := families()[path.Base(a.text)]; a.known && f != nil && len(f.lines) > 0 && !strings.HasPrefix(a.text, "-") {
			w.simple(args[i:], joinRaw(args[i:]), "")
			return
		}
	}
	if i := slices.IndexFunc(args, func(a arg) bool { return !a.known && !strings.HasPrefix(a.text, "-") }); i >= 0 {
		w.simple(args[i:], joinRaw(args[i:]), "") // by a name that nobody knows
	}
}

// transparent wrappers change nothing that a rule for the command inside would
// want to know. Not sudo, which gives it rights, nor xargs, which gives it operands.
var transparent = strings.Fields("time timeout nice ionice nohup stdbuf command builtin env setsid")

// inside calls f with the command at index i as one more wrapper around what
// it finds.
func (w *walker) inside(i int, f func()) {
	in := w.in
	if !w.deeper() {
		return
	}
	w.in.wrapped = true
	if !in.opaque && !slices.Contains(transparent, w.cmds[i].name) {
		w.in.opaque, w.in.wrapper = true, int32(i)
	}
	f()
	w.in = in
}

// wrapped analyses what a wrapper runs.
func (w *walker) wrapped(name string, p parsed) {
	rest := p.args[p.rest:]
	// More options may follow the name of a container.
	dashes := slices.IndexFunc(rest, func(a arg) bool { return a.known && a.text == "--" })
	if strings.HasPrefix(rest[0].text, "-") && dashes >= 0 && dashes+1 < len(rest) {
		rest = rest[dashes+1:]
	}
	if name == "trap" { // signals follow
		w.script(rest[:1])
		return
	}
	if slices.ContainsFunc(p.spec.roles, func(r role) bool { return r.kind == 's' }) {
		w.script(rest)
		return
	}
	if name == "parallel" && strings.Contains(rest[0].text, " ") {
		w.script(rest[:1])
		return
	}
	if extra, ok := fed[name]; ok {
		rest = extra(w, p, rest)
	}
	w.simple(rest, joinRaw(rest), "")
}

func joinRaw(args []arg) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(a.raw)
	}
	return b.String()
}

// script analyses shell source given as arguments.
func (w *walker) script(args []arg) {
	var b strings.Builder
	for i, a := range args {
		if !a.known {
			w.denyDynamic("shell source that is not literal")
			return
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(a.text)
	}
	prog, err := w.parse(b.String())
	if err != nil {
		w.denyDynamic("shell source that cannot be read: " + err.Error())
		return
	}
	src := w.src
	w.src = prog.src
	w.nested(prog.stmts, "")
	w.src = src
}
