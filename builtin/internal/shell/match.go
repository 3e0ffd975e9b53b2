package shell

import (
	"maps"
	"slices"
	"strings"
)

// A parsed contains a command's arguments as parsed by one line of a table. It is in the walker's memory.
type parsed struct {
	spec        *spec
	args        []arg
	ops         []roleArg // operands, and values of options that have a role
	given       []given
	effects     effects
	rest        int // index in args of the command of a wrapper; -1 if there is none
	whole       bool
	maybeOption bool // the only problem is an unknown word that may be an option
}

type roleArg struct {
	arg
	kind byte
	opt  bool // the value of an option
}

// A given is an option that was found, by its name in the table. The zero value means none.
type given struct {
	name  string
	value arg
}

// parse parses args, which do not include the command's name. It returns why it cannot parse them, or "".
func (s *spec) parse(w *walker, args []arg) (*parsed, string) {
	room := min(len(args), 16)
	p := w.parsed.one()
	*p = parsed{spec: s, args: args, effects: s.effects, rest: -1, ops: w.ops.take(room), given: w.given.take(room)}
	plain := make([]int, 0, 16)
	for i := 0; i < len(args); i++ {
		a := &args[i]
		switch {
		case a.known && a.text == "--":
			for i++; i < len(args); i++ {
				plain = append(plain, i)
			}
		case s.early && len(plain) > 0 && a.option():
			return p, "option " + a.raw + " comes after an operand"
		case a.known && s.number(a.text):
		case !a.option():
			plain = append(plain, i)
			// The rest are arguments of another command.
			if s.stop || s.follows(len(plain)) {
				for i++; i < len(args); i++ {
					plain = append(plain, i)
				}
			}
		case !a.known && !strings.HasPrefix(a.text, "-"):
			// An unknown word may be an option that the table does not list, or its operand. That is only acceptable if all
			// options of the command are harmless.
			if !s.dyn {
				p.maybeOption = true
				return p, a.raw + " may be an option"
			}
			plain = append(plain, i)
		default:
			n, why := s.optionAt(p, args, i)
			if why != "" {
				return p, why
			}
			i += n
		}
	}
	if len(s.need) > 0 && !slices.ContainsFunc(p.given, func(o given) bool { return slices.Contains(s.need, o.name) }) {
		return p, "without one of the options " + strings.Join(s.need, ", ") + " it changes something"
	}
	return p, s.assign(p, plain)
}

// number reports whether text is a number that this command accepts as an option.
func (s *spec) number(text string) bool {
	return s.minusNum && len(text) > 1 && text[0] == '-' && strings.Trim(text[1:], "0123456789") == ""
}

// follows reports whether a command or a script, which has its own options, begins after n operands.
func (s *spec) follows(n int) bool {
	return n <= len(s.roles) && strings.IndexByte("xsc", s.roles[n-1].kind) >= 0
}

// optionAt parses the option at args[i] and returns how many further arguments it takes.
func (s *spec) optionAt(p *parsed, args []arg, i int) (int, string) {
	if s.single || strings.HasPrefix(args[i].prefix(), "--") {
		return s.longOption(p, args, i)
	}
	return s.shortOptions(p, args, i)
}

// longOption parses an option of several letters.
func (s *spec) longOption(p *parsed, args []arg, i int) (int, string) {
	a := &args[i]
	name, value, eq := strings.Cut(a.prefix(), "=")
	end := len(name)
	o, ok := s.options[name]
	// Programs in Go treat two dashes like one.
	if !ok && s.single && strings.HasPrefix(name, "--") {
		name = name[1:]
		o, ok = s.options[name]
	}
	if !ok && s.any && len(name) > 3 {
		name, o, ok = s.abbreviated(name)
	}
	switch {
	case !ok && s.any:
		return 0, ""
	case !ok:
		return 0, "option " + a.String() + " is not known to be read-only"
	case !a.known && (!eq || !a.field && !s.dyn):
		return 0, "option " + a.String() + " is not literal"
	case eq && o.value == 0 && !(s.single && (value == "true" || value == "false" && !slices.Contains(s.need, name))):
		return 0, "option " + name + " takes no value"
	case eq || o.value != '=':
		p.option(name, o, valueOf(*a, end+1, eq))
		return 0, ""
	}
	return s.nextValue(p, args, i, name, o)
}

// shortOptions parses options of one letter, which may be combined in one word.
func (s *spec) shortOptions(p *parsed, args []arg, i int) (int, string) {
	a := &args[i]
	text := a.prefix()
	for j := 1; j < len(text); j++ {
		name := letters[text[j]]
		o, ok := s.options[name]
		last := j == len(text)-1
		switch {
		case !ok && s.any:
			continue
		case !ok:
			return 0, "option " + name + " in " + a.String() + " is not known to be read-only"
		case o.value == 0:
			p.option(name, o, arg{})
		case last && a.known && o.value == '=':
			return s.nextValue(p, args, i, name, o)
		default:
			if !a.known && !a.field && !s.dyn {
				return 0, "option " + a.String() + " is not literal"
			}
			p.option(name, o, valueOf(*a, j+1, true))
			return 0, ""
		}
	}
	if !a.known && !s.any {
		return 0, "option " + a.String() + " is not literal"
	}
	return 0, ""
}

// letters contains the names of the options with one letter.
var letters = func() (names [256]string) {
	for i := range names {
		names[i] = string([]byte{'-', byte(i)})
	}
	return names
}()

// valueOf returns the text after the first n bytes of an option.
func valueOf(a arg, n int, has bool) arg {
	if !has || n > len(a.text) {
		return arg{}
	}
	a.text = a.text[n:]
	return a
}

func (s *spec) nextValue(p *parsed, args []arg, i int, name string, o option) (int, string) {
	if i+1 >= len(args) {
		return 0, "option " + name + " has no value"
	}
	v := &args[i+1]
	if !v.known && !v.field && !s.dyn {
		return 0, "the value of " + name + " may be several words"
	}
	// In another version of the program the option may take no value, so that this word is an option.
	if o.role.kind != 't' && !s.any && looksLikeOption(v.prefix()) {
		return 0, "the value of " + name + " looks like an option"
	}
	p.option(name, o, *v)
	return 1, ""
}

// abbreviated returns the option with an effect that name is short for.
func (s *spec) abbreviated(name string) (string, option, bool) {
	for _, full := range slices.Sorted(maps.Keys(s.options)) {
		if o := s.options[full]; strings.HasPrefix(full, name) && (o.effects != 0 || o.role.kind != 0) {
			return full, o, true
		}
	}
	return name, option{}, false
}

// looksLikeOption distinguishes an option from a dash and from a negative number.
func looksLikeOption(text string) bool {
	return len(text) > 1 && text[0] == '-' && (text[1] == '-' || isWordByte(text[1]) && text[1] > '9')
}

func (p *parsed) option(name string, o option, value arg) {
	p.effects |= o.effects
	if !value.present() && p.has(name) {
		return // recorded already
	}
	p.given = append(p.given, given{name, value})
	if value.present() && o.role.kind != 0 {
		p.ops = append(p.ops, roleArg{value, o.role.kind, true})
	}
}

// present reports whether the argument exists. An existing empty one is written as quotes.
func (a *arg) present() bool { return a.raw != "" || a.text != "" }

// mayVanish reports whether the argument is not there if its unknown text is empty.
func (a *arg) mayVanish() bool {
	return !a.known && strings.Trim(a.text, hole) == "" && !strings.HasPrefix(a.raw, `"`)
}

func (p *parsed) has(names ...string) bool {
	return slices.ContainsFunc(p.given, func(o given) bool { return slices.Contains(names, o.name) })
}

// value returns the last value of an option.
func (p *parsed) value(name string) (arg, bool) {
	for _, o := range slices.Backward(p.given) {
		if o.name == name && o.value.present() {
			return o.value, true
		}
	}
	return arg{}, false
}

// furtherReads reports whether all operands after the one with this role are files that are read: if it expands to
// several words, these are too.
func (s *spec) furtherReads(ri int) bool {
	last := len(s.roles) - 1
	return ri == last-1 && s.roles[last] == role{kind: 'r', star: true}
}

// assign assigns roles to the operands. A role with a star takes all operands that the roles after it do not need.
func (s *spec) assign(p *parsed, plain []int) string {
	after := 0
	starred := false
	for _, r := range s.roles {
		if r.star {
			starred, after = true, 0
		} else if starred {
			after++
		}
	}
	k := 0
	for ri := 0; ri < len(s.roles) && k < len(plain); ri++ {
		r := s.roles[ri]
		if strings.IndexByte("xsc", r.kind) >= 0 {
			p.rest = plain[k]
			return ""
		}
		n := 1
		if r.star {
			n = max(len(plain)-k-after, 0)
		}
		for ; n > 0; n-- {
			a := &p.args[plain[k]]
			k++
			if r.kind == '+' && !(strings.HasPrefix(a.prefix(), "+")) {
				return "operand " + a.String() + " does not start with +"
			}
			p.ops = append(p.ops, roleArg{arg: *a, kind: r.kind})
			if !a.known && !a.field && !slices.ContainsFunc(s.roles[:ri+1], func(r role) bool { return r.star }) {
				if !s.furtherReads(ri) {
					return a.raw + " may be several words"
				}
				p.ops = append(p.ops, roleArg{arg: *a, kind: 'r'})
			}
		}
	}
	if k < len(plain) {
		return "operand " + p.args[plain[k]].String() + " is unexpected"
	}
	// In "cp a b $(cat f)" the last operand is b if the file f is empty.
	if last := len(s.roles) - 1; starred && !s.roles[last].star {
		for i := len(plain) - 1; i > 0 && p.args[plain[i]].mayVanish(); i-- {
			p.ops = append(p.ops, roleArg{arg: p.args[plain[i-1]], kind: s.roles[last].kind})
		}
	}
	return ""
}
