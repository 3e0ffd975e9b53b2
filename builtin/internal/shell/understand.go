package shell

import (
	"slices"
	"strings"
)

// matchTables finds the line of the tables that accepts the whole command, preferably a harmless one. If no line
// accepts it, matchTables returns the best guess and the reason. f has the lines for the command's name and for its
// subcommands; it is nil if no table has the name.
func (w *walker) matchTables(c *command, f *family, name string, args []arg) (*parsed, string) {
	if f == nil {
		p := w.parsed.one()
		*p = parsed{rest: -1}
		return p, name + " is not a known command"
	}
	// Some commands only have lines for a few of their subcommands. If these do not match, the lines of the command
	// itself may.
	if len(args) > 0 && args[0].known && !f.hasSubcommands {
		if sub := f.subs[args[0].text]; sub != nil && len(sub.lines) > 0 {
			p, why := w.matchTables(c, sub, sub.name, args[1:])
			if why == "" || len(f.lines) == 0 {
				return p, why
			}
		}
	}
	if len(f.lines) == 0 {
		return w.matchTables(c, nil, f.name, args)
	}
	var guess *parsed
	// accepted: guess is from a line that accepts the whole command
	why, accepted, whole, maybeOption := "", false, false, false
	for _, s := range f.lines {
		p, bad := s.parse(w, args)
		given, noSubcommand := p.given, s.takesSubcommand() && p.rest < 0
		if bad == "" && s.takesSubcommand() {
			p, bad = w.subcommand(c, f, p)
		} else if bad == "" && s.fn != nil {
			bad = s.fn(w, c, p)
		}
		if bad == "" && len(s.takes) > 0 && p.harmless() {
			bad = w.tableDirectoryRuns(c, s, given, noSubcommand)
		}
		maybeOption = maybeOption || p.maybeOption && p.spec != nil && f.lines[0].idle() && p.spec.idle() && p.harmless()
		whole = whole || p.whole || s.whole && bad != ""
		switch {
		case bad == "" && p.harmless():
			return p, ""
		// Use the first line that accepts all, in preference to lines that do not.
		case bad == "" && !accepted:
			guess, why, accepted = p, "", true
		case accepted:
		case why == "":
			guess, why = p, bad
		case s.wraps() && (guess.spec == nil || !guess.spec.wraps()):
			guess = p // needed for the commands that it may run
		}
	}
	if !accepted {
		guess.whole, guess.maybeOption = whole, maybeOption // from any line that has them
	}
	return guess, why
}

// harmless reports whether the command has no known effect.
func (p *parsed) harmless() bool {
	eff := p.effects &^ reading
	if p.spec.remote {
		eff &^= networking
	}
	if eff != 0 {
		return false
	}
	for i := range p.ops {
		switch p.ops[i].kind {
		case 'w', 'd', 's':
			return false
		}
	}
	return true
}

// subcommand continues with the lines of a subcommand.
func (w *walker) subcommand(c *command, f *family, p *parsed) (*parsed, string) {
	var sub *arg
	if p.rest >= 0 {
		sub = &p.args[p.rest]
	}
	if sub != nil && !sub.known {
		return p, "the subcommand of " + f.name + " is not literal"
	}
	if p.spec.fn != nil {
		if why := p.spec.fn(w, c, p); why != "" {
			return p, why
		}
	}
	if sub == nil {
		return p, ""
	}
	subFamily := f.subs[sub.text]
	name := ""
	if subFamily == nil {
		name = f.name + " " + sub.text
	}
	parsedSub, why := w.matchTables(c, subFamily, name, p.args[p.rest+1:])
	parsedSub.effects |= p.effects
	parsedSub.whole = parsedSub.whole || p.whole
	if len(p.ops) > 0 {
		parsedSub.ops = append(p.ops[:len(p.ops):len(p.ops)], parsedSub.ops...)
	}
	return parsedSub, why
}

// setEffects sets the effects of the command at index i from its parsed arguments.
func (w *walker) setEffects(i int, p *parsed, why string) {
	c := &w.cmds[i]
	eff := p.effects
	if why != "" || p.spec == nil {
		eff |= unknown
	}
	if p.spec != nil && p.maybeOption && why != "" {
		c.maybeOption = true
		c.named = namedBy(p.spec)
	}
	if p.spec != nil {
		c.edit = p.spec.edit && why == ""
		c.links = p.spec.links
		c.anyWord = p.spec.words
		c.whole = p.whole
		if p.rest >= 0 && (p.spec.joins() || c.name == "parallel") {
			c.joined = p.rest + 1
		}
		for _, o := range p.given {
			if p.spec.options[o.name].named {
				c.named = append(c.named, o.name)
			}
		}
	}
	eff |= w.recordOperands(c, p.ops)
	// Most commands read something, at least the directory; do not report that for commands that do not.
	if p.spec != nil && !p.spec.pure && why == "" && (eff == 0 || p.spec.remote) {
		eff |= reading
	}
	c.effects = eff
	if c.edit && why == "" && len(c.targets) == 0 && p.spec.fn == nil {
		why = c.String() + " has no operand to change"
	}
	harmless := reading
	if p.spec != nil && p.spec.remote {
		harmless |= networking
	}
	if why == "" && eff&^harmless != 0 {
		why = c.String() + " does more than read"
	}
	if why != "" && c.Reason == "" {
		c.Reason = why
	}
}

// recordOperands records the files that a command reads and changes, and returns the effects of that.
func (w *walker) recordOperands(c *command, ops []roleArg) (eff effects) {
	reads := 0
	for i := range ops {
		if ops[i].kind == 'r' {
			reads++
		}
	}
	namesInFile := slices.ContainsFunc(c.args, func(a arg) bool { return strings.HasPrefix(a.text, "--files0") })
	if namesInFile {
		reads++
	}
	c.reads = w.reads.take(reads)
	if namesInFile {
		c.reads = append(c.reads, operand{arg: anything("…")})
	}
	for i := range ops {
		switch op := &ops[i]; op.kind {
		case 'r':
			eff |= reading
			c.reads = append(c.reads, operand{arg: op.arg})
		case 'w':
			if sink(op.arg) && !slices.Contains(replacing, c.name) {
				continue
			}
			eff |= writing
			c.targets = append(c.targets, operand{arg: op.arg})
		case 'd':
			eff |= deleting
			c.targets = append(c.targets, operand{arg: op.arg, delete: true})
		case 'x', 's':
			eff |= executing
		}
	}
	return eff
}

// words returns the Argv of the [Command].
func (c *command) words() []string {
	if len(c.args) == 0 {
		words := []string{c.name}
		for _, op := range append(c.targets[:len(c.targets):len(c.targets)], c.reads...) {
			words = append(words, op.String())
		}
		return words
	}
	words := make([]string, len(c.args))
	for i := range c.args {
		words[i] = c.args[i].String()
	}
	return words
}

// String names the command for a message.
func (c *command) String() string {
	s := []rune(strings.ReplaceAll(strings.Join(c.words(), " "), "\n", "⏎"))
	if len(s) > 60 {
		return string(s[:59]) + "…"
	}
	return string(s)
}

// replacing are commands that replace a file such as /dev/null by another one instead of writing to it.
var replacing = []string{"ln", "link", "install", "mv", "rsync"}

// sink reports whether writing to a has no effect. /dev/tty is not a sink, because text on it could ask for a
// password.
func sink(a arg) bool {
	return a.known && (a.text == "/dev/null" || a.text == "/dev/stdout" || a.text == "/dev/stderr")
}

// namedBy returns the options of a command's lines that a rule must name.
func namedBy(s *spec) []string {
	var named []string
	for _, name := range s.names {
		for _, line := range specs()[name] {
			for option, o := range line.options {
				if o.named && !slices.Contains(named, option) {
					named = append(named, option)
				}
			}
		}
	}
	slices.Sort(named)
	return named
}

// idle reports whether the line describes commands without an effect, whatever their operands are.
func (s *spec) idle() bool {
	eff := s.effects &^ reading
	if s.remote {
		eff &^= networking
	}
	return eff == 0 && !slices.ContainsFunc(s.roles, func(r role) bool { return strings.IndexByte("wdxs", r.kind) >= 0 })
}
