package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// harmlessVariables may be set in front of a command without changing what it
// runs or writes.
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

// variable returns why assigning to the shell variable called name may change
// what later commands do, or "". Names in lower case are the script's own.
func variable(name string) string {
	if name == strings.ToLower(name) && !strings.HasSuffix(name, "_proxy") && name != "_" {
		return ""
	}
	return "setting " + name + " may change what runs after it"
}

// call walks a simple command with its assignments and redirections.
func (w *walker) call(s *syntax.Stmt, c *syntax.CallExpr) {
	first := len(w.cmds)
	w.secret = ""
	args := w.words(c.Args)
	changed := ""
	for _, as := range c.Assigns {
		value := w.value(as)
		name := as.Name.Value
		if len(args) > 0 {
			reading := name == "IFS" && args[0].known && args[0].text == "read"
			if why := prefix(name, value); !reading && (why != "" || as.Append || as.Index != nil) {
				changed = "setting " + name + " may change what runs"
			}
			continue
		}
		if why := variable(name); why != "" {
			w.deny(why)
		}
		b := binding{lead: value.lead, numeric: w.staysNumber(as) || value.known && isNumber(value.text)}
		if value.known && !w.in.uncertain && !as.Append && as.Array == nil && as.Index == nil {
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
		for _, el := range as.Array.Elems {
			if el.Index != nil {
				w.denyDynamic("an array index that is evaluated")
				w.inner(el.Index)
			}
			if el.Value != nil {
				w.fields(el.Value)
			}
		}
		return anything("")
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

// set notes what is known of a variable. Of too many nothing is noted, which
// is what a variable that is not there means; the ones that lookup knows more
// of are always noted.
func (w *walker) set(name string, b binding) {
	if w.vars == nil {
		w.vars = map[string]binding{}
	}
	if _, ok := w.vars[name]; !ok && len(w.vars) > maxVariables && name == strings.ToLower(name) {
		return
	}
	w.vars[name] = b
}

const maxVariables = 100

// standardDirs are where a command named with its path is the one that its
// name says.
var standardDirs = []string{"/bin", "/usr/bin", "/sbin", "/usr/sbin"}

func (w *walker) add(c command) *command {
	c.in, c.cwds = w.in, w.cwds
	w.cmds = append(w.cmds, c)
	return &w.cmds[len(w.cmds)-1]
}

// simple analyses one simple command, and what it wraps after it.
func (w *walker) simple(args []arg, text, secret string) {
	argv := make([]string, len(args))
	for i, a := range args {
		argv[i] = a.String()
	}
	head := args[0]
	at := len(w.cmds)
	c := w.add(command{Command: Command{Argv: argv}, args: args, text: text, secret: secret})
	if !head.known || head.text == "" {
		w.conclude(at, parsed{}, "the command's name is not literal")
		return
	}
	c.name = path.Base(head.text)
	p, why := w.understand(c, c.name, args[1:])
	if strings.Contains(head.text, "/") && !slices.Contains(standardDirs, path.Dir(head.text)) {
		why = head.text + " is not a command of the system"
	}
	w.conclude(at, p, why)
	if p.spec != nil {
		w.follow(at, p, why)
	}
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
		if a.known && len(specs()[path.Base(a.text)]) > 0 && !strings.HasPrefix(a.text, "-") {
			w.simple(args[i:], joinRaw(args[i:]), "")
			return
		}
	}
}

// transparent wrappers change nothing that a rule for the command inside would
// want to know.
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
		w.in.opaque, w.in.wrapper = true, i
	}
	f()
	w.in = in
}

// understand finds the line of the tables that understands all of a command,
// a harmless one first. If none does, it returns the best guess and why.
func (w *walker) understand(c *command, name string, args []arg) (parsed, string) {
	lines := specs()[name]
	if len(args) > 0 && args[0].known && parents()[name] && !hasSubcommands(name) {
		if full := name + " " + args[0].text; len(specs()[full]) > 0 {
			p, why := w.understand(c, full, args[1:])
			if why == "" || len(lines) == 0 {
				return p, why
			}
		}
	}
	if len(lines) == 0 {
		return parsed{rest: -1}, name + " is not a command that is known"
	}
	var guess parsed
	why, found := "", false
	for _, s := range lines {
		p, bad := s.parse(args)
		if bad == "" && len(s.roles) > 0 && s.roles[len(s.roles)-1].kind == 'c' {
			p, bad = w.subcommand(c, name, p)
		} else if bad == "" && s.fn != nil {
			p, bad = w.closer(s, c, p)
		}
		switch {
		case bad == "" && p.harmless():
			return p, ""
		case bad == "" && !found:
			guess, why, found = p, "", true
		case why == "" && !found:
			guess, why = p, bad
		}
	}
	return guess, why
}

// closer calls the function that looks closer.
func (w *walker) closer(s *spec, c *command, p parsed) (parsed, string) {
	why := s.fn(w, c, &p)
	return p, why
}

// harmless reports whether nothing is known against the command.
func (p *parsed) harmless() bool {
	eff := p.effects &^ effect(Read)
	if p.spec.remote {
		eff &^= effect(Network)
	}
	return eff == 0 && !slices.ContainsFunc(p.ops, func(op roleArg) bool { return strings.IndexByte("wds", op.kind) >= 0 })
}

// hasSubcommands reports whether a command's second word says what it does.
func hasSubcommands(name string) bool {
	return slices.ContainsFunc(specs()[name], func(s *spec) bool {
		return len(s.roles) > 0 && s.roles[len(s.roles)-1].kind == 'c'
	})
}

// subcommand goes on with the line of a subcommand.
func (w *walker) subcommand(c *command, name string, p parsed) (parsed, string) {
	if p.rest < 0 {
		if p.spec.fn != nil {
			return w.closer(p.spec, c, p)
		}
		return p, ""
	}
	sub := p.args[p.rest]
	if !sub.known {
		return p, "the subcommand of " + name + " is not literal"
	}
	if p.spec.fn != nil {
		var why string
		if p, why = w.closer(p.spec, c, p); why != "" {
			return p, why
		}
	}
	outer := p
	q, why := w.understand(c, name+" "+sub.text, p.args[p.rest+1:])
	q.effects |= outer.effects
	q.ops = append(slices.Clone(outer.ops), q.ops...)
	return q, why
}

// conclude turns what is understood of the command at index i into effects.
func (w *walker) conclude(i int, p parsed, why string) {
	c := &w.cmds[i]
	eff := p.effects
	if why != "" || p.spec == nil {
		eff |= effect(Unknown)
	}
	if p.spec != nil {
		c.edit = p.spec.edit && why == ""
		c.links = p.spec.links
	}
	for _, op := range p.ops {
		switch op.kind {
		case 'r':
			eff |= effect(Read)
			c.reads = append(c.reads, operand{arg: op.arg})
		case 'w':
			if w.sink(op.arg) {
				continue
			}
			eff |= effect(Write)
			c.targets = append(c.targets, operand{arg: op.arg})
		case 'd':
			eff |= effect(Delete)
			c.targets = append(c.targets, operand{arg: op.arg, delete: true})
		case 'x', 's':
			eff |= effect(Exec)
		}
	}
	if p.spec != nil && !p.spec.pure && why == "" && (eff == 0 || p.spec.remote) {
		eff |= effect(Read)
	}
	c.Effects = eff.list()
	if c.edit && why == "" && len(c.targets) == 0 && p.spec.fn == nil {
		why = c.String() + " names nothing to change"
	}
	harmless := effect(Read)
	if p.spec != nil && p.spec.remote {
		harmless |= effect(Network)
	}
	if why == "" && eff&^harmless != 0 {
		why = c.String() + " does more than read"
	}
	if why != "" && c.Reason == "" {
		c.Reason = why
	}
}

// String names the command for a message.
func (c *command) String() string {
	s := []rune(strings.ReplaceAll(strings.Join(c.Argv, " "), "\n", "⏎"))
	if len(s) > 60 {
		return string(s[:59]) + "…"
	}
	return string(s)
}

// sink reports whether writing to a changes nothing.
func (w *walker) sink(a arg) bool {
	return a.known && slices.Contains([]string{"/dev/null", "/dev/stdout", "/dev/stderr"}, a.text)
}

// wrapped analyses what a wrapper runs.
func (w *walker) wrapped(name string, p parsed) {
	rest := p.args[p.rest:]
	if slices.ContainsFunc(p.spec.roles, func(r role) bool { return r.kind == 's' }) {
		w.script(rest)
		return
	}
	if extra, ok := fed[name]; ok {
		rest = extra(p, rest)
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
	file, err := parse(b.String())
	if err != nil {
		w.denyDynamic("shell source that cannot be read: " + err.Error())
		return
	}
	src := w.src
	w.src = b.String()
	w.nested(file.Stmts, "")
	w.src = src
}

// redirects judges the redirections of a statement whose commands start at
// index first.
func (w *walker) redirects(s *syntax.Stmt, first int) {
	for _, r := range s.Redirs {
		w.redirect(r, first, s)
	}
}

func (w *walker) redirect(r *syntax.Redirect, first int, s *syntax.Stmt) {
	if r.N != nil && strings.HasPrefix(r.N.Value, "{") {
		w.deny("a redirection that sets a variable")
	}
	switch r.Op {
	case syntax.Hdoc, syntax.DashHdoc:
		if r.Hdoc == nil {
			return
		}
		text := arg{}
		if lit, ok := soleLit(r.Hdoc); ok && quotedDelimiter(r.Word) {
			text = literal(lit)
		} else {
			text = w.word(r.Hdoc)
		}
		w.typed(first, text)
		return
	case syntax.WordHdoc:
		w.typed(first, w.word(r.Word))
		return
	}
	fields := w.fields(r.Word)
	a := fields[0]
	if len(fields) > 1 {
		a = anything(a.raw)
	}
	switch r.Op {
	case syntax.DplIn, syntax.DplOut:
		if a.known && strings.Trim(strings.TrimSuffix(a.text, "-"), "0123456789") == "" && a.text != "" {
			return
		}
	case syntax.RdrIn:
		w.input(a, first)
		return
	}
	if w.sink(a) {
		return
	}
	w.deny("the redirection to " + a.raw + " writes")
	target := operand{arg: a}
	if _, simple := s.Cmd.(*syntax.CallExpr); simple && first < len(w.cmds) {
		c := &w.cmds[first]
		c.redirs = true
		c.targets = append(c.targets, target)
		c.Effects = addEffect(c.Effects, Write)
		if c.Reason == "" {
			c.Reason = "it writes to " + a.raw
		}
		return
	}
	w.add(command{
		Command: Command{Argv: []string{r.Op.String(), a.String()}, Effects: []Effect{Write}, Reason: "it writes to " + a.raw},
		text:    w.raw(r), targets: []operand{target}, redirs: true,
	})
}

func soleLit(word *syntax.Word) (string, bool) {
	if len(word.Parts) != 1 {
		return "", false
	}
	lit, ok := word.Parts[0].(*syntax.Lit)
	if !ok {
		return "", false
	}
	return lit.Value, true
}

// typed analyses a text that a shell reads as its input.
func (w *walker) typed(first int, text arg) {
	if last := len(w.cmds) - 1; first <= last && slices.Contains(shells, w.cmds[last].name) {
		w.inside(last, func() { w.script([]arg{text}) })
	}
}

func addEffect(list []Effect, e Effect) []Effect {
	var set effects
	for _, have := range list {
		set |= effect(have)
	}
	return (set | effect(e)).list()
}

// input judges what a command reads through "<".
func (w *walker) input(a arg, first int) {
	p := a.prefix()
	if strings.HasPrefix(p, "/dev/tcp") || strings.HasPrefix(p, "/dev/udp") {
		w.deny("a connection to another machine")
		w.alarm(RemoteCode, "it opens a connection to another machine")
		return
	}
	if !a.known && (p == "" || strings.HasPrefix(p, "/dev")) && !a.lead {
		w.deny("input from a file that is not known")
		return
	}
	if first < len(w.cmds) {
		w.cmds[first].reads = append(w.cmds[first].reads, operand{arg: a})
	}
}
