package shell

import (
	"maps"
	"slices"
	"strings"
)

// parsed contains the arguments of a command as one line of a table describes them. It is in the walker's memory.
type parsed struct {
	spec        *spec     // the line; nil for an unknown command
	args        []arg     // without the command's name
	ops         []roleArg // operands, and values of options that have a role
	given       []given
	effects     effects
	rest        int  // if the command is a wrapper: index in args of the command inside; -1 if there is none
	whole       bool // only a rule that has all words of the command may allow it
	maybeOption bool // the only problem is an unknown word that may be an option
}

// A roleArg is an argument with its role, see [role].
type roleArg struct {
	arg
	kind     byte
	ofOption bool // the value of an option, or a file that a check adds to the operands
}

// A given is an option that was found, by its name in the table. The zero value means none.
type given struct {
	name  string
	value arg
}

// parse parses args, which do not include the command's name. It returns why they do not match the line s, or "".
func (s *spec) parse(w *walker, args []arg) (*parsed, string) {
	const most = 16 // more operands or options are rare, and need memory of their own
	room := min(len(args), most)
	p := w.parsed.one()
	*p = parsed{spec: s, args: args, effects: s.effects, rest: -1, ops: w.ops.take(room), given: w.given.take(room)}
	operands := make([]int, 0, most) // indexes in args
	operandsFrom := func(i int) {
		for ; i < len(args); i++ {
			operands = append(operands, i)
		}
	}
	for i := 0; i < len(args); i++ {
		a := &args[i]
		switch {
		case a.known && a.text == "--":
			operandsFrom(i + 1)
			i = len(args)
		case s.early && len(operands) > 0 && a.option():
			return p, "option " + a.raw + " comes after an operand"
		case a.known && s.number(a.text):
		case !a.option():
			if operands = append(operands, i); s.stop || s.follows(len(operands)) { // the rest are arguments of another command
				operandsFrom(i + 1)
				i = len(args)
			}
		case !a.known && !strings.HasPrefix(a.text, "-"):
			// An unknown word may be an option that the table does not list. That is only acceptable if all options of the
			// command are harmless.
			if !s.dyn {
				p.maybeOption = true
				return p, a.raw + " may be an option"
			}
			operands = append(operands, i)
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
	return p, s.assign(p, operands)
}

// number reports whether text is a number that this command accepts as an option.
func (s *spec) number(text string) bool {
	return s.minusNum && len(text) > 1 && text[0] == '-' && strings.Trim(text[1:], "0123456789") == ""
}

// follows reports whether the n-th operand begins a command or a script, which has options of its own.
func (s *spec) follows(n int) bool {
	return n <= len(s.roles) && strings.IndexByte("xsc", s.roles[n-1].kind) >= 0
}

// optionAt parses the option at args[i]. It returns how many further arguments the option takes, and why the line s does
// not accept it, or "".
func (s *spec) optionAt(p *parsed, args []arg, i int) (further int, why string) {
	if s.single || strings.HasPrefix(args[i].prefix(), "--") {
		return s.longOption(p, args, i)
	}
	return s.shortOptions(p, args, i)
}

// longOption is optionAt for an option with a name of several letters.
func (s *spec) longOption(p *parsed, args []arg, i int) (further int, why string) {
	a := &args[i]
	name, value, eq := strings.Cut(a.prefix(), "=")
	valueAt := len(name) + 1
	o, ok := s.options[name]
	// Programs in Go treat two dashes like one.
	if !ok && s.single && strings.HasPrefix(name, "--") {
		name = name[1:]
		o, ok = s.options[name]
	}
	if !ok && (s.any || s.wraps() || s.effects&executing != 0) && len(name) > 3 {
		name, o, ok = s.abbreviated(name)
	}
	switch {
	case !ok && s.any:
		return 0, ""
	case !ok:
		return 0, "option " + a.String() + " is not known to be read-only"
	case !a.known && (!eq || !a.field && !s.dyn):
		return 0, "option " + a.String() + " is not literal"
	// In Go -x=false turns off a flag, which must not be one that makes the command harmless.
	case eq && o.value == 0 && !(s.single && (value == "true" || value == "false" && !slices.Contains(s.need, name))):
		return 0, "option " + name + " takes no value"
	case eq || o.value != '=':
		p.addOption(name, o, valueOf(*a, valueAt, eq))
		return 0, ""
	}
	return s.nextValue(p, args, i, name, o)
}

// shortOptions is optionAt for options of one letter, which may be combined in one word.
func (s *spec) shortOptions(p *parsed, args []arg, i int) (further int, why string) {
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
			p.addOption(name, o, arg{})
		case last && a.known && o.value == '=':
			return s.nextValue(p, args, i, name, o)
		default:
			if !a.known && !a.field && !s.dyn {
				return 0, "option " + a.String() + " is not literal"
			}
			p.addOption(name, o, valueOf(*a, j+1, true))
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

// valueOf returns the value of an option a, its text from byte n, or the zero arg if it has none.
func valueOf(a arg, n int, has bool) arg {
	if !has {
		return arg{}
	}
	a.text = a.text[n:]
	return a
}

// nextValue is optionAt for an option whose value is the next argument.
func (s *spec) nextValue(p *parsed, args []arg, i int, name string, o option) (further int, why string) {
	if i+1 >= len(args) {
		return 0, "option " + name + " has no value"
	}
	v := &args[i+1]
	if !v.known && !v.field && !s.dyn {
		return 0, "the value of " + name + " may be several words"
	}
	// In another version of the program the option may take no value, so that this word is an option. Code is never harmless.
	if o.role.kind != 't' && o.role.kind != 's' && !s.any && looksLikeOption(v.prefix()) {
		return 0, "the value of " + name + " looks like an option"
	}
	p.addOption(name, o, *v)
	return 1, ""
}

// abbreviated returns the first option with an effect or a role that name is short for.
func (s *spec) abbreviated(name string) (full string, o option, ok bool) {
	for _, full := range slices.Sorted(maps.Keys(s.options)) {
		if o := s.options[full]; strings.HasPrefix(full, name) && (o.effects != 0 || o.role.kind != 0) {
			return full, o, true
		}
	}
	return name, option{}, false
}

// looksLikeOption reports whether text is an option, and neither a dash nor a negative number.
func looksLikeOption(text string) bool {
	return len(text) > 1 && text[0] == '-' && (text[1] == '-' || isWordByte(text[1]) && text[1] > '9')
}

// addOption records an option, and one without a value only once.
func (p *parsed) addOption(name string, o option, value arg) {
	p.effects |= o.effects
	if !value.present() && p.has(name) {
		return
	}
	p.given = append(p.given, given{name, value})
	if value.present() && o.role.kind != 0 {
		p.ops = append(p.ops, roleArg{value, o.role.kind, true})
	}
}

// present reports whether the argument exists: the raw text of an empty argument is quotes.
func (a *arg) present() bool { return a.raw != "" || a.text != "" }

// mayVanish reports whether the command gets no argument if the unknown text is empty.
func (a *arg) mayVanish() bool {
	return !a.known && strings.Trim(a.text, hole) == "" && !strings.HasPrefix(a.raw, `"`)
}

// has reports whether one of the options is given.
func (p *parsed) has(names ...string) bool {
	return slices.ContainsFunc(p.given, func(o given) bool { return slices.Contains(names, o.name) })
}

// value returns the last value of an option. ok is false if there is none.
func (p *parsed) value(name string) (value arg, ok bool) {
	for _, o := range slices.Backward(p.given) {
		if o.name == name && o.value.present() {
			return o.value, true
		}
	}
	return arg{}, false
}

// furtherReads reports whether all operands after that with the role at index i are files that are read. If the operand
// expands to several words, these are read, too.
func (s *spec) furtherReads(i int) bool {
	last := len(s.roles) - 1
	return i == last-1 && s.roles[last] == role{kind: 'r', star: true}
}

// assign gives the operands, which are indexes in p.args, their roles. A role with a star takes all operands that the
// roles after it do not need. assign returns why the operands do not have these roles, or "".
func (s *spec) assign(p *parsed, operands []int) string {
	star := slices.IndexFunc(s.roles, func(r role) bool { return r.star })
	k := 0
	for i := 0; i < len(s.roles) && k < len(operands); i++ {
		r := s.roles[i]
		if strings.IndexByte("xsc", r.kind) >= 0 {
			p.rest = operands[k]
			return ""
		}
		n := 1
		if r.star {
			n = max(len(operands)-k-(len(s.roles)-1-i), 0)
		}
		for ; n > 0; n-- {
			a := &p.args[operands[k]]
			k++
			if r.kind == '+' && !strings.HasPrefix(a.prefix(), "+") {
				return "operand " + a.String() + " does not start with +"
			}
			p.ops = append(p.ops, roleArg{arg: *a, kind: r.kind})
			if severalWords := !a.known && !a.field; severalWords && (star < 0 || i < star) {
				if !s.furtherReads(i) {
					return a.raw + " may be several words"
				}
				p.ops = append(p.ops, roleArg{arg: *a, kind: 'r'})
			}
		}
	}
	if k < len(operands) {
		return "operand " + p.args[operands[k]].String() + " is unexpected"
	}
	// In "cp a b $(cat f)" the last operand is b if the file f is empty.
	if last := len(s.roles) - 1; star >= 0 && !s.roles[last].star {
		for i := len(operands) - 1; i > 0 && p.args[operands[i]].mayVanish(); i-- {
			p.ops = append(p.ops, roleArg{arg: p.args[operands[i-1]], kind: s.roles[last].kind})
		}
	}
	return ""
}
