package shell

import (
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A binding is what is known about a shell variable. It holds for every value that the variable may have where
// it is expanded.
type binding struct {
	vals        []string // the values it may have; nil if unknown
	noDash      bool     // no value begins with "-"
	numeric     bool     // every value is a decimal number
	identifiers bool     // every value has a class other than anyText: no word of it begins with "-" or names a file
	noSlash     bool     // no value begins with "/"
	printed     bool     // if numeric: a value may also be empty or begin with zeros, because a command printed it
	from        source   // the source of the values if vals is nil
}

// Limits on known values. With x=$x$x the value doubles: without a limit a few such lines would use up the memory.
const (
	maxVariables = 100      // number of bindings, which are copied for each branch and subshell
	maxValue     = 4 << 10  // bytes of one value
	maxCopied    = 64 << 10 // bytes of values that are copied into words
	maxValues    = 64       // values of a variable that has different values after a branch
)

func bindValues(vals ...string) binding {
	b := binding{vals: vals, noDash: true, numeric: true, noSlash: true}
	for _, v := range vals {
		b.noSlash = b.noSlash && !strings.HasPrefix(v, "/")
		b.noDash = b.noDash && !strings.HasPrefix(v, "-")
		b.numeric = b.numeric && isNumber(v)
		if len(v) > maxValue {
			b.vals = nil
		}
	}
	return b
}

// staysOneWord reports whether word splitting and globbing leave all values unchanged.
func (b binding) staysOneWord() bool {
	return b.numeric || b.vals != nil && !slices.ContainsFunc(b.vals, func(v string) bool {
		return v == "" || strings.ContainsAny(v, " \t\n*?[\\")
	})
}

// or returns what is known if either b or c applies.
func (b binding) or(c binding) binding {
	both := binding{noDash: b.noDash && c.noDash, numeric: b.numeric && c.numeric, identifiers: b.identifiers && c.identifiers, noSlash: b.noSlash && c.noSlash, printed: b.printed || c.printed}
	if b.from == c.from {
		both.from = b.from
	}
	if b.vals == nil || c.vals == nil || len(b.vals)+len(c.vals) > maxValues {
		return both
	}
	both.vals = slices.Clone(b.vals)
	for _, v := range c.vals {
		if !slices.Contains(both.vals, v) {
			both.vals = append(both.vals, v)
		}
	}
	return both
}

// set records the binding of a variable. Beyond maxVariables it does not record further lower-case variables: lookup
// knows nothing about these, while preset has bindings for some upper-case ones.
func (w *walker) set(name string, b binding) {
	if w.vars == nil {
		w.vars = map[string]binding{}
	}
	w.anyChanged = w.anyChanged || name == "IFS" // from now on values are split differently
	old, ok := w.vars[name]
	if !ok && len(w.vars) > maxVariables && name == strings.ToLower(name) {
		return
	}
	switch {
	case w.volatile[name]:
		b = binding{}
	case w.mayAbort && ok:
		b = b.or(old)
	case w.mayAbort:
		b = b.or(w.preset(name))
	}
	w.vars[name] = b
}

// lookup returns what is known about a variable.
func (w *walker) lookup(name string) binding {
	if w.anyChanged {
		return binding{}
	}
	if v, ok := w.vars[name]; ok {
		return v
	}
	return w.preset(name)
}

// preset returns what is known about a variable that the line has not set.
func (w *walker) preset(name string) binding {
	switch {
	case w.volatile[name]:
	case name == "HOME" && w.at.Home != "":
		return bindValues(w.at.Home)
	case name == "PWD" && len(w.cwds) > 0:
		return bindValues(w.cwds...)
	case name == "HOME", name == "PWD", name == "OLDPWD":
		return binding{noDash: true}
	case slices.Contains(numericParams, name):
		return binding{noDash: true, numeric: true}
	}
	return binding{}
}

// maybe calls f for code that may or may not run; afterwards the bindings hold in both cases.
func (w *walker) maybe(f func()) {
	before := maps.Clone(w.vars)
	f()
	for name, b := range w.vars {
		old, ok := before[name]
		if !ok {
			old = w.preset(name)
		}
		both := b.or(old)
		if !ok && name == strings.ToLower(name) { // unset if f does not run, so that its text can only come from f
			both.from = w.valuesOf(b)
		}
		w.vars[name] = both
	}
}

// markVolatile marks variables that are set at an unknown time, for example by a function: from now on nothing
// is known about them.
func (w *walker) markVolatile(names []string) {
	if w.volatile == nil && len(names) > 0 {
		w.volatile = map[string]bool{}
	}
	for _, name := range names {
		w.volatile[name] = true
		w.set(name, binding{})
	}
}

// setters are the builtins that set the variables named by their arguments.
var setters = strings.Fields("read mapfile readarray getopts let unset declare typeset local export readonly wait printf")

// afterCommand updates what is known about variables after a simple command.
func (w *walker) afterCommand(name string, args []arg) {
	switch name {
	case "eval", ".", "source", "trap", "enable", "shopt", "alias", "unalias", "bind", "complete", "compgen", "compopt", "fc", "coproc":
		w.anyChanged = true // it may run code, or change the meaning of names, in this shell
	case "set":
		w.anyChanged = w.anyChanged || setArgs(w, &command{args: args}, nil) != ""
	default:
		if slices.Contains(setters, name) {
			w.afterSetter(name, args[1:])
		}
	}
}

// afterSetter updates the bindings of the variables that one of the setters sets.
func (w *walker) afterSetter(name string, args []arg) {
	switch name {
	case "let":
		w.denyDynamic("a command that evaluates values")
	case "declare", "typeset", "local", "export", "readonly": // in "command export x"; see declaration for a plain export
		w.declareWords(args)
		return
	case "printf": // only -v NAME sets a variable
		if len(args) == 0 || args[0].known && !strings.HasPrefix(args[0].text, "-v") {
			return
		}
		args = args[:min(len(args), 2)]
	case "wait": // only -p NAME sets a variable
		if !slices.ContainsFunc(args, func(a arg) bool { return !a.known || strings.HasPrefix(a.text, "-") && strings.Contains(a.text, "p") }) {
			return
		}
	}
	for _, a := range args {
		text, _, _ := strings.Cut(a.text, "=")
		text = strings.TrimPrefix(text, "-v")
		switch variable, _, index := strings.Cut(text, "["); {
		// Quoted texts with a space, such as the prompt of read -p, are not names.
		case !a.known && (index || !a.noDash || a.prefix() == "" || syntax.ValidName(a.prefix())):
			w.denyDynamic("it sets a variable whose name is not literal")
			w.anyChanged = true
		case index && strings.ContainsAny(text, "$`"):
			w.denyDynamic("an array index that is evaluated")
		case syntax.ValidName(variable):
			w.set(variable, w.assignedValue(name, args))
		}
	}
}

// declareWords handles words of a declaration that the parser does not consider names or assignments.
func (w *walker) declareWords(args []arg) {
	w.mayAbort = true
	for _, a := range args {
		name, _, _ := strings.Cut(a.text, "=")
		switch {
		case a.known && syntax.ValidName(strings.TrimSuffix(name, "+")):
			w.markVolatile([]string{strings.TrimSuffix(name, "+")})
		case !a.known && a.noDash && syntax.ValidName(name):
			w.markVolatile([]string{name})
		case !a.known || !strings.HasPrefix(a.text, "-") || strings.Trim(a.text[1:], "xrgaAplutfF") != "": // -i and -n evaluate
			w.denyDynamic("a declaration that evaluates the assigned value")
		}
	}
}

// An assignedVars lists the variables that a piece of code may set.
type assignedVars struct {
	names     []assignment
	functions []string       // variables set by functions that the code defines
	moves     bool           // the code may change the current directory
	unknown   bool           // the code may set any variable, and change the current directory
	readIFS   *syntax.Assign // the assignment of IFS in front of a read, which does not last
}

// An assignment sets a variable.
type assignment struct {
	name   string
	number bool // if the variable is numeric, it stays numeric
}

// collectAssigned returns the variables that the code in n may set.
func (w *walker) collectAssigned(n syntax.Node) assignedVars {
	var vars assignedVars
	syntax.Walk(n, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil && n != vars.readIFS {
				vars.names = append(vars.names, assignment{n.Name.Value, w.staysNumber(n)})
			}
		case *syntax.ArithmCmd:
			if name, _ := counter(n.X); name != "" {
				vars.names = append(vars.names, assignment{name, w.lookup(name).numeric})
			}
		case *syntax.WordIter:
			vars.names = append(vars.names, assignment{n.Name.Value, false})
		case *syntax.CallExpr:
			if len(n.Args) == 0 {
				break
			}
			if head, _ := soleLit(n.Args[0]); head == "read" && len(n.Assigns) == 1 && n.Assigns[0].Name.Value == "IFS" {
				vars.readIFS = n.Assigns[0]
			}
			vars.addCommand(n.Args)
		case *syntax.DeclClause:
			for _, a := range n.Args { // a word that is no option may expand to any assignment
				if text, ok := staticText(a.Value); a.Name == nil && (!ok || !strings.HasPrefix(text, "-")) {
					vars.unknown = true
				}
			}
		case *syntax.FuncDecl:
			if n.Body != nil {
				inner := w.collectAssigned(n.Body)
				for _, s := range inner.names {
					vars.functions = append(vars.functions, s.name)
				}
				vars.functions = append(vars.functions, inner.functions...)
				vars.moves, vars.unknown = vars.moves || inner.moves, vars.unknown || inner.unknown
			}
			return false
		}
		return true
	})
	return vars
}

// addCommand adds the variables that a simple command may set. A word with an expansion may be the name of any
// builtin or variable.
func (vars *assignedVars) addCommand(args []*syntax.Word) {
	head, ok := staticText(args[0])
	// "command" and "builtin" may have options, and then run the builtin that follows.
	for ok && (head == "command" || head == "builtin" || strings.HasPrefix(head, "-")) {
		if len(args) == 1 || head == "-v" || head == "-V" { // it runs nothing
			return
		}
		args = args[1:]
		head, ok = staticText(args[0])
	}
	switch {
	case !ok:
		vars.unknown = true
	case head == "cd" || head == "pushd" || head == "popd":
		vars.moves = true
	case slices.Contains(setters, head):
		vars.addSetter(head, args[1:])
	case slices.Contains([]string{"eval", ".", "source", "trap", "enable", "shopt", "alias", "unalias", "set"}, head):
		vars.unknown = true
	}
}

// addSetter adds the variables that one of the setters may set.
func (vars *assignedVars) addSetter(head string, args []*syntax.Word) {
	if head == "printf" && len(args) > 0 && !mayBeOption(args[0]) {
		return
	}
	for _, name := range []string{"REPLY", "MAPFILE", "OPTARG", "OPTIND"} { // set without being named
		vars.names = append(vars.names, assignment{name, false})
	}
	for i := 0; i < len(args); i++ {
		text, ok := staticText(args[i])
		if !ok {
			vars.unknown = true
			return
		}
		name, _, _ := strings.Cut(text, "=")
		name, _, _ = strings.Cut(name, "[")
		for { // an option may have the name attached, as in -an
			if syntax.ValidName(name) {
				vars.names = append(vars.names, assignment{name, false})
			}
			if !strings.HasPrefix(text, "-") || name == "" {
				break
			}
			name = name[1:]
		}
		// The value of -d is not a variable; $'\0' would count as an unknown word.
		if head == "read" && strings.HasPrefix(text, "-") && strings.HasSuffix(text, "d") && i+1 < len(args) && len(args[i+1].Parts) == 1 {
			if _, ok := args[i+1].Parts[0].(*syntax.SglQuoted); ok {
				i++
			}
		}
	}
}

// staticText returns the text of a word that is always this one word: it has no expansion, no escape and no pattern.
func staticText(word *syntax.Word) (text string, ok bool) {
	if word == nil {
		return "", true
	}
	if word.Lit() == "[" { // alone it is no pattern
		return "[", true
	}
	for i, part := range word.Parts {
		inner, special := part, `\{*?[`
		if q, ok := part.(*syntax.DblQuoted); ok && !q.Dollar {
			special = `\`
			switch len(q.Parts) {
			case 0:
				continue
			case 1:
				inner = q.Parts[0]
			}
		}
		switch p := inner.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(p.Value, special) || i == 0 && inner == part && strings.HasPrefix(p.Value, "~") {
				return "", false
			}
			text += p.Value
		case *syntax.SglQuoted:
			if p.Dollar && strings.Contains(p.Value, `\`) {
				return "", false
			}
			text += p.Value
		default:
			return "", false
		}
	}
	return text, true
}

// mayBeOption reports whether a word may begin with a dash.
func mayBeOption(word *syntax.Word) bool {
	if text, ok := staticText(word); ok {
		return strings.HasPrefix(text, "-")
	}
	switch first := word.Parts[0].(type) {
	case *syntax.Lit:
		return strings.IndexAny(first.Value, "-\\{*?[~") == 0
	case *syntax.SglQuoted:
		return first.Dollar || first.Value == "" || first.Value[0] == '-'
	case *syntax.DblQuoted:
		if len(first.Parts) > 0 {
			lit, ok := first.Parts[0].(*syntax.Lit)
			return !ok || strings.IndexAny(lit.Value, "-\\") == 0
		}
	}
	return true
}

// declaration handles declare and similar builtins. From then on nothing is known about the variables, because
// they may be read-only, so that a later assignment aborts the line, or transform assigned values.
func (w *walker) declaration(c *syntax.DeclClause) {
	w.mayAbort = true
	harmless := c.Variant.Value == "export" && len(c.Args) > 0
	for _, a := range c.Args {
		switch {
		case a.Name != nil:
			w.markVolatile([]string{a.Name.Value})
			if a.Index != nil || !a.Naked { // walk the value in any case, because it may contain substitutions
				w.secret = ""
				harmless = harmlessExport(a.Name.Value, w.value(a)) && harmless
				w.keepSecret(a.Name.Value)
			}
			harmless = harmless && !a.Naked && !a.Append && a.Index == nil && a.Array == nil
		case a.Value != nil:
			w.declareWords(w.fields(a.Value))
			harmless = false
		}
	}
	if !harmless {
		w.deny(c.Variant.Value + " changes variables of later commands")
	}
}

// harmlessExport reports whether an exported variable changes neither what later commands run or write, nor how bash
// reads the following lines: in some locales a backslash is the second half of a letter.
func harmlessExport(name string, value arg) bool {
	if strings.HasPrefix(name, "LC_") || strings.HasPrefix(name, "LANG") {
		return value.known && slices.Contains([]string{"C", "POSIX", "C.UTF-8", "en_US.UTF-8"}, value.text)
	}
	return unsafePrefix(name, value) == ""
}

// assignedValue returns what is known about the values that a builtin assigns: those of read and mapfile are parts of
// the input.
func (w *walker) assignedValue(name string, args []arg) binding {
	if name != "read" && name != "mapfile" && name != "readarray" {
		return binding{}
	}
	if name == "read" && w.inputClass() >= atoms && !slices.ContainsFunc(args, func(a arg) bool { return a.option() && a.text != "-r" }) {
		return binding{noDash: true, identifiers: true}
	}
	for len(args) > 1 && args[0].known {
		if args[0].text == "-r" || args[0].text == "-t" {
			args = args[1:]
		} else if (args[0].text == "-d" || args[0].text == "-rd") && args[1].known && args[1].text == "" {
			args = args[2:]
		} else { // another option, or several variables, which get parts of a line
			break
		}
	}
	if len(args) != 1 || w.customIFS {
		return binding{}
	}
	return binding{from: w.in.input}
}
