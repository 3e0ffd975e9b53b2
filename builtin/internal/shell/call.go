package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// harmlessVariables may be set for a command without changing what it runs or writes. Other variables may
// change it: LD_PRELOAD, PATH, GIT_EXTERNAL_DIFF, LESSOPEN and many more make a harmless command run a file.
// unsafePrefix requires values without a slash, which name no file. TZ may name a file, which is only read as a time
// zone; RUST_LOG and DEBUG have slashes in the names of modules.
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

// unsafeVariable returns why assigning to a shell variable may change later commands, or "". Lower-case names are the
// script's own, except for _, which bash sets, and those that programs read, such as http_proxy and npm_config_registry.
func unsafeVariable(name string) string {
	if slices.Contains(scriptNames, name) || name == strings.ToLower(name) && !strings.HasSuffix(name, "_proxy") && !strings.HasPrefix(name, "npm_") && name != "_" {
		return ""
	}
	return "setting " + name + " may change later commands"
}

// call walks a simple command with its assignments and redirections.
func (w *walker) call(s *syntax.Stmt, c *syntax.CallExpr) {
	w.secret, w.customIFS = "", false
	args := w.words(c.Args)
	if len(args) == 0 {
		for _, as := range c.Assigns {
			w.assign(as)
		}
		w.redirects(s, len(w.cmds))
		return
	}
	why := w.walkPrefix(c.Assigns, &args[0])
	self := len(w.cmds) // after the commands in substitutions
	w.simpleCommand(args, w.raw(c), w.secret)
	if why != "" {
		w.deny(why)
		w.cmds[self].Reason = why
	}
	w.redirects(s, self)
}

// walkPrefix walks the assignments before a command and returns why one may change what the command does, or "". head is
// the command's name.
func (w *walker) walkPrefix(assigns []*syntax.Assign, head *arg) (why string) {
	for _, as := range assigns {
		value := w.value(as) // even if the assignment is denied, because the value may contain substitutions
		name := as.Name.Value
		w.customIFS = w.customIFS || name == "IFS" && value.text != ""
		splitsLine := name == "IFS" && head.known && head.text == "read" // all that IFS does for read
		if !splitsLine && (unsafePrefix(name, value) != "" || as.Append || as.Index != nil) {
			why = "setting " + name + " may change the command"
		}
	}
	return why
}

// assign walks an assignment without a command.
func (w *walker) assign(as *syntax.Assign) {
	value := w.value(as)
	name := as.Name.Value
	w.keepSecret(name)
	if why := unsafeVariable(name); why != "" {
		w.deny(why)
	}
	var b binding
	switch {
	case as.Append || as.Index != nil: // the new value contains an old one
	case as.Array != nil:
		b.from = value.from
	case value.known:
		b = bindValues(value.text)
	default:
		b = binding{from: w.originOf(value), noDash: value.noDash, numeric: w.staysNumber(as) || value.class == digits, identifiers: value.class != anyText, printed: value.class == digits}
	}
	w.set(name, b)
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

func (w *walker) addCommand() *command {
	if n := len(w.cmds); n < cap(w.cmds) {
		w.cmds = w.cmds[:n+1] // the element was not used before, so it is zero
	} else {
		w.cmds = append(w.cmds, command{})
	}
	c := &w.cmds[len(w.cmds)-1]
	c.in, c.cwds = w.in, w.cwds
	return c
}

// simpleCommand analyses a command without its assignments and redirections, and then the commands that it runs.
func (w *walker) simpleCommand(args []arg, text, secret string) {
	head := &args[0]
	i := len(w.cmds)
	c := w.addCommand()
	c.args, c.text, c.secret = args, text, secret
	if !head.known || head.text == "" {
		w.setEffects(i, &parsed{}, "the command's name is not literal")
		if !head.known && !head.field && len(args) > 1 { // it may expand to nothing
			w.inside(i, func() { w.simpleCommand(args[1:], joinRaw(args[1:]), w.secret) })
		}
		w.anyChanged = true // the command may be eval
		return
	}
	c.name = path.Base(head.text)
	if tooManyOptions(args) {
		w.long = true
		return
	}
	// A program of the same name in another directory is a different program: the table is then used for deny rules
	// and alarms, but not as a proof.
	p, why := w.matchTables(c, families()[c.name], c.name, args[1:])
	if strings.Contains(head.text, "/") && !slices.Contains(standardDirs, path.Dir(head.text)) {
		why = head.text + " is not in a standard directory"
	}
	w.setEffects(i, p, why)
	if p.spec != nil {
		w.follow(i, p, why)
	}
	w.afterCommand(w.cmds[i].name, args)
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

// follow analyses the commands that the command at index i runs. why is not empty if the tables do not accept it.
func (w *walker) follow(i int, p *parsed, why string) {
	for _, op := range p.ops {
		if op.ofOption && op.kind == 's' { // the value of an option is shell source
			code := op.arg
			if w.cmds[i].name == "env" { // -S has further words of env
				code.text = "env " + code.text
			}
			w.inside(i, func() { w.script([]arg{code}) })
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

// joins reports whether the command joins the words after its own into shell code, like ssh and watch.
func (s *spec) joins() bool {
	return slices.ContainsFunc(s.roles, func(r role) bool { return r.kind == 's' })
}

// guess analyses the command inside a wrapper whose options are not supported, for deny rules and the danger analysis:
// the first word that is a known command's name, and an earlier word that may expand to the name.
func (w *walker) guess(s *spec, args []arg) {
	known := slices.IndexFunc(args, func(a arg) bool {
		f := families()[path.Base(a.text)]
		return a.known && f != nil && len(f.lines) > 0 && !strings.HasPrefix(a.text, "-")
	})
	if i := s.possibleCommand(args); i >= 0 && (known < 0 || i < known) {
		w.simpleCommand(args[i:], joinRaw(args[i:]), w.secret)
	}
	if known >= 0 {
		w.simpleCommand(args[known:], joinRaw(args[known:]), w.secret)
	}
}

// possibleCommand returns the index of the first word that may expand to the name of the command inside, or -1: a word
// after the wrapper's own operands, or an unquoted word, which may expand to these operands and the name.
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
	// kubectl exec POD -it -- COMMAND: options may also follow the name of a pod or container.
	dashes := slices.IndexFunc(rest, func(a arg) bool { return a.known && a.text == "--" })
	if strings.HasPrefix(rest[0].text, "-") && dashes >= 0 && dashes+1 < len(rest) {
		rest = rest[dashes+1:]
	}
	switch {
	case name == "trap", name == "parallel" && strings.Contains(rest[0].text, " "):
		w.script(rest[:1]) // signals, or inputs, follow the script
		return
	case p.spec.joins():
		last := w.script(rest)
		switch {
		case name == "eval" && last == nil:
			w.loseCwd()
		case name == "eval": // it runs in this shell
			w.addCwds(last)
		}
		return
	case name == "env" && p.has("-C", "--chdir"):
		defer func(cwds []string, lost bool) { w.cwds, w.cwdLost = cwds, lost }(w.cwds, w.cwdLost)
		for _, option := range []string{"-C", "--chdir"} {
			if dir, ok := p.value(option); ok {
				w.cd(dir)
			}
		}
	case name == "xargs":
		rest = w.xargsCommand(p, rest)
	}
	w.simpleCommand(rest, joinRaw(rest), w.secret)
}

// joinRaw returns the words as written.
func joinRaw(args []arg) string {
	raw := make([]string, len(args))
	for i := range args {
		raw[i] = args[i].raw
	}
	return strings.Join(raw, " ")
}

// script analyses shell source given as arguments. It returns the possible directories at the end, nil if they are
// unknown.
func (w *walker) script(args []arg) (last []string) {
	texts := make([]string, len(args))
	for i, a := range args {
		if !a.known {
			w.denyDynamic("shell code that is not literal")
			return nil
		}
		texts[i] = a.text
	}
	prog, err := w.parse(strings.Join(texts, " "))
	if err != nil {
		w.denyDynamic("shell code that cannot be parsed: " + err.Error())
		return nil
	}
	src := w.src
	w.src = prog.src
	last = w.nested(prog.stmts, "")
	w.src = src
	return last
}
