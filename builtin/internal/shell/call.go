package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// harmlessVariables may be set for a command without changing what it runs or writes. Other variables may
// change it: LD_PRELOAD, PATH, GIT_EXTERNAL_DIFF, LESSOPEN and many more make a harmless command run a file.
// For variables that may name a file unsafePrefix requires a value without a slash. TZ names a file that is
// only read as a time zone, and RUST_LOG and DEBUG have slashes in the names of modules.
var harmlessVariables = []string{
	"LANG", "LANGUAGE", "TZ", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "TERM",
	"NODE_ENV", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "RUST_LOG", "RUST_BACKTRACE", "DEBUG", "VERBOSE", "CI",
	"GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT", "GOOS", "GOARCH", "CGO_ENABLED",
}

// pagers are variables that name a program; only cat and the empty value are harmless.
var pagers = []string{"PAGER", "GIT_PAGER", "MANPAGER", "GH_PAGER", "SYSTEMD_PAGER", "BAT_PAGER", "AWS_PAGER"}

// unsafePrefix returns why an assignment before a command may change its effect, or "".
func unsafePrefix(name string, value arg) string {
	switch {
	case slices.Contains(pagers, name) && value.known && (value.text == "cat" || value.text == ""):
	case strings.HasPrefix(name, "LC_"), slices.Contains(harmlessVariables, name):
		if !value.known || strings.Contains(value.text, "/") && name != "TZ" && name != "RUST_LOG" && name != "DEBUG" {
			return name + " is not set to a plain value"
		}
	default:
		return "setting " + name + " may change the command"
	}
	return ""
}

// scriptNames are upper-case names that scripts use for their own variables, and that no read-only program uses.
var scriptNames = strings.Fields("BASE BRANCH COMMIT COUNT DIR FILE FILES HASH LAST NAME NUM OUT OUTPUT POD RES RESULT SHA SIZE SUM TAG TOTAL VALUE VERSION")

// unsafeVariable returns why assigning to a shell variable may change later commands, or "". Lower-case names
// are the script's own.
func unsafeVariable(name string) string {
	if slices.Contains(scriptNames, name) || name == strings.ToLower(name) && !strings.HasSuffix(name, "_proxy") && !strings.HasPrefix(name, "npm_") && name != "_" {
		return ""
	}
	return "setting " + name + " may change later commands"
}

// call walks a simple command with its assignments and redirections.
func (w *walker) call(s *syntax.Stmt, c *syntax.CallExpr) {
	first := len(w.cmds)
	w.secret, w.customIFS = "", false
	args := w.words(c.Args)
	// Values are walked even if the assignment is denied, because they may contain substitutions.
	changed := ""
	for _, as := range c.Assigns {
		value := w.value(as)
		name := as.Name.Value
		if len(args) == 0 {
			w.keepSecret(name)
		}
		if len(args) > 0 {
			w.customIFS = w.customIFS || name == "IFS" && value.text != ""
			// IFS before a read only determines how its line is split.
			reading := name == "IFS" && args[0].known && args[0].text == "read"
			if why := unsafePrefix(name, value); !reading && (why != "" || as.Append || as.Index != nil) {
				changed = "setting " + name + " may change the command"
			}
			continue
		}
		if why := unsafeVariable(name); why != "" {
			w.deny(why)
		}
		b := binding{from: w.originOf(value), noDash: value.noDash, numeric: w.staysNumber(as) || value.class == digits, named: value.class != anyText}
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

// value evaluates the assigned value.
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

// standardDirs are the directories in which a program is assumed to be the well-known one of its name. /usr/local
// is not one of them, because its programs may differ from those of the tables.
var standardDirs = []string{"/bin", "/usr/bin", "/sbin", "/usr/sbin"}

// add appends a new command.
func (w *walker) add() *command {
	if n := len(w.cmds); n < cap(w.cmds) {
		w.cmds = w.cmds[:n+1] // the element was not used before, so it is zero
	} else {
		w.cmds = append(w.cmds, command{})
	}
	c := &w.cmds[len(w.cmds)-1]
	c.in, c.cwds = w.in, w.cwds
	return c
}

// simple analyses one simple command, and then the command that it wraps.
func (w *walker) simple(args []arg, text, secret string) {
	head := &args[0]
	at := len(w.cmds)
	c := w.add()
	c.args, c.text, c.secret = args, text, secret
	if !head.known || head.text == "" {
		w.setEffects(at, &parsed{}, "the command's name is not literal")
		if !head.known && !head.field && len(args) > 1 { // it may expand to nothing
			w.inside(at, func() { w.simple(args[1:], joinRaw(args[1:]), "") })
		}
		w.anyChanged = true
		return
	}
	c.name = path.Base(head.text)
	if len(args) > maxOptions && tooManyOptions(args) {
		w.long = true
		return
	}
	// A program of the same name in another directory is a different program: the table is then used for deny rules
	// and alarms, but not as a proof.
	p, why := w.matchTables(c, families()[c.name], c.name, args[1:])
	if strings.Contains(head.text, "/") && !slices.Contains(standardDirs, path.Dir(head.text)) {
		why = head.text + " is not in a standard directory"
	}
	w.setEffects(at, p, why)
	if p.spec != nil {
		w.follow(at, p, why)
	}
	w.assignedBy(w.cmds[at].name, args)
}

// maxOptions is how many options of a command are checked. The limit exists because an option may change the
// meaning of all others.
const maxOptions = 500

func tooManyOptions(args []arg) bool {
	n := 0
	for i := range args {
		if args[i].option() {
			n++
		}
	}
	return n > maxOptions
}

// follow analyses the commands that the command at index i runs.
func (w *walker) follow(i int, p *parsed, why string) {
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
		w.inside(i, func() { w.guess(p.spec, p.args) })
	}
}

// wraps reports whether the command runs another command that follows it.
func (s *spec) wraps() bool {
	return slices.ContainsFunc(s.roles, func(r role) bool { return r.kind == 'x' || r.kind == 's' })
}

// guess finds the command inside a wrapper whose options are not supported, for deny rules and the danger
// analysis: the first known one, and an unknown one before it.
func (w *walker) guess(s *spec, args []arg) {
	known := slices.IndexFunc(args, func(a arg) bool {
		f := families()[path.Base(a.text)]
		return a.known && f != nil && len(f.lines) > 0 && !strings.HasPrefix(a.text, "-")
	})
	if i := s.possibleCommand(args); i >= 0 && (known < 0 || i < known) {
		w.simple(args[i:], joinRaw(args[i:]), "") // its name is unknown
	}
	if known >= 0 {
		w.simple(args[known:], joinRaw(args[known:]), "")
	}
}

// possibleCommand returns the index of the first unknown word that may be the command inside. It counts the operands
// before it, and an unquoted word may expand to all of these as well.
func (s *spec) possibleCommand(args []arg) int {
	first := slices.IndexFunc(s.roles, func(r role) bool { return r.kind == 'x' || r.kind == 's' })
	operands := 0
	for i := range args {
		switch a := &args[i]; {
		case a.known && a.option(), !a.known && strings.HasPrefix(a.text, "-"):
		case !a.known && (operands >= first || !a.field):
			return i
		default:
			operands++
		}
	}
	return -1
}

// transparent wrappers do not matter to a rule for the command inside. sudo, which gives it other rights, and
// xargs, which gives it operands, are not transparent.
var transparent = strings.Fields("time timeout nice ionice nohup stdbuf command builtin env setsid")

// inside calls f with the command at index i as a further wrapper around the commands that f finds.
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

// wrapped analyses the command inside a wrapper.
func (w *walker) wrapped(name string, p *parsed) {
	rest := p.args[p.rest:]
	// Options may also follow the name of a container.
	dashes := slices.IndexFunc(rest, func(a arg) bool { return a.known && a.text == "--" })
	if strings.HasPrefix(rest[0].text, "-") && dashes >= 0 && dashes+1 < len(rest) {
		rest = rest[dashes+1:]
	}
	if name == "trap" { // the other arguments are signals
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
	if name == "xargs" {
		rest = w.fedByXargs(p, rest)
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
			w.denyDynamic("shell code that is not literal")
			return
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(a.text)
	}
	prog, err := w.parse(b.String())
	if err != nil {
		w.denyDynamic("shell code that cannot be parsed: " + err.Error())
		return
	}
	src := w.src
	w.src = prog.src
	w.nested(prog.stmts, "")
	w.src = src
}
