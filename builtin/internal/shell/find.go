package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// The predicates of find without a value, some of them only of BSD, those with a value, and the actions that run,
// write or delete something.
var (
	findPlain = setOf(`-daystart -depth -follow -ignore_readdir_race -noignore_readdir_race -mount -xdev -noleaf
		-nowarn -warn -empty -executable -false -true -nogroup -nouser -readable -writable -ls -print -print0 -prune -quit
		-a -and -o -or -not ! ( ) , -d -x -X -s`)
	findValued = setOf(`-maxdepth -mindepth -regextype -amin -anewer -atime -cmin -cnewer -ctime -fstype -gid -group
		-ilname -iname -inum -ipath -iregex -iwholename -links -lname -mmin -mtime -name -newer -path -perm -regex -samefile
		-size -type -uid -used -user -wholename -xtype -context -printf -files0-from
		-newermt -newerat -newerct -neweraa -newerac -neweram -newerca -newercc -newercm -newerma -newermc -newermm -Btime -Bmin`)
	findActions = strings.Fields("-delete -exec -execdir -ok -okdir -fls -fprint -fprint0 -fprintf")
)

// setOf returns a function that returns the set of the words in text.
func setOf(text string) func() map[string]bool {
	return sync.OnceValue(func() map[string]bool {
		set := map[string]bool{}
		for word := range strings.FieldsSeq(text) {
			set[word] = true
		}
		return set
	})
}

// findArgs parses find's paths and expression.
func findArgs(w *walker, c *command, p *parsed) string {
	args := c.args[1:]
	i := 0
	for i < len(args) && args[i].known {
		// Options before the starting points (find(1), OPTIONS).
		switch t := args[i].text; {
		case t == "-H" || t == "-L" || t == "-P" || strings.HasPrefix(t, "-O"):
			i++
			continue
		case t == "-D" && i+1 < len(args):
			i += 2
			continue
		}
		break
	}
	first := i
	for i < len(args) && !beginsExpression(args[i]) {
		i++
	}
	starts := args[first:i:i]
	why := ""
	for _, a := range starts {
		if a.option() && !a.known {
			why = a.raw + " may be part of the expression"
		}
	}
	why = cmp.Or(findExpression(w, p, args[i:], starts), why)
	for _, a := range starts {
		p.ops = append(p.ops, roleArg{arg: a, kind: 'r'})
	}
	return why
}

// beginsExpression reports whether the starting points of find end before a (find(1), DESCRIPTION).
func beginsExpression(a arg) bool {
	return a.known && a.text != "" && (a.text[0] == '-' && len(a.text) > 1 || a.text == "(" || a.text == ")" || a.text == "!" || a.text == ",")
}

// A nameFilter knows which names of files reach the current part of find's expression. Each list has patterns, of
// which a name matches at least one; an empty list says nothing about the names.
type nameFilter struct {
	outside []arg // names before the open parenthesis
	names   []arg // names in this alternative
	earlier []arg // names in the earlier alternatives inside these parentheses
	any     bool  // an earlier alternative says nothing about the names
	negated bool  // "!" or "-not" is before the parenthesis
}

// nextAlternative follows "-o" and ",".
func (f *nameFilter) nextAlternative() {
	f.earlier, f.any = append(f.earlier, f.names...), f.any || len(f.names) == 0
	f.names = slices.Clone(f.outside)
}

// afterParenthesis returns what is known about the names after the closing parenthesis.
func (f *nameFilter) afterParenthesis() []arg {
	if f.nextAlternative(); f.any || f.negated {
		return f.outside
	}
	return f.earlier
}

// findExpression records what the predicates do, and returns why find is not read-only, or "". It continues after an
// unknown predicate, because deny rules need the commands of a later -exec.
func findExpression(w *walker, p *parsed, args, starts []arg) string {
	self := len(w.cmds) - 1
	why := ""
	if len(starts) == 0 {
		starts = []arg{literal(".")}
	}
	selects := false // a predicate before -delete may be false for some files
	filters := []nameFilter{{}}
	for i := 0; i < len(args); i++ {
		a := &args[i]
		filter := &filters[len(filters)-1]
		selects = selects || a.known && !findEverything()[a.text]
		switch {
		case !a.known:
			why = cmp.Or(why, a.raw+" may be part of the expression")
		case findPlain()[a.text]:
			switch a.text {
			case "(":
				negated := i > 0 && args[i-1].known && slices.Contains([]string{"!", "-not"}, args[i-1].text)
				filters = append(filters, nameFilter{outside: filter.names, names: slices.Clone(filter.names), negated: negated})
			case ")":
				if len(filters) > 1 {
					filters = filters[:len(filters)-1]
					filters[len(filters)-1].names = filter.afterParenthesis()
				}
			case "-o", "-or", ",":
				filter.nextAlternative()
			case "-prune":
				filter.names = nil
			}
		case findValued()[a.text]:
			if i++; i == len(args) {
				break
			}
			if a.text == "-files0-from" { // its errors show lines of the file that are not names
				p.ops = append(p.ops, roleArg{arg: args[i], kind: 'r'})
			}
			if name, ok := foundName(args[:i+1], starts); ok {
				filter.names = append(filter.names, name)
			}
			if !args[i].known {
				why = cmp.Or(why, mayBeAction(args[i]))
			}
		case a.text == "-delete":
			if p.effects&deleting == 0 || w.expanded <= maxBudget {
				w.mustName(self, a.text)
				w.findDelete(p, self, starts, filter.names, !selects)
			}
		case slices.Contains(findActions, a.text):
			i += findAction(w, p, self, args[i:], starts, filter.names)
		default:
			why = "the predicate " + a.text + " is not on the list"
		}
	}
	return why
}

// findDelete records which files -delete removes: those with one of the names below the starting points, or without
// names any. self is the index of find.
func (w *walker) findDelete(p *parsed, self int, starts, names []arg, everything bool) {
	p.effects |= deleting
	if w.tooManyFound(starts, names) {
		names = nil
	}
	for _, s := range starts {
		p.ops = append(p.ops, roleArg{arg: s, kind: 'd'})
		for _, name := range names {
			p.ops = append(p.ops, roleArg{arg: below(s, name), kind: 'd'})
		}
		if everything && s.known && slices.ContainsFunc(w.cmds[self].paths(s), func(dir string) bool { return w.criticalPath(dir, true) != "" }) {
			w.alarm(Destructive, "find deletes everything below "+s.text)
		}
	}
}

// findEverything are the words of an expression that may delete everything below a starting point: with -type f or d
// nearly all of it.
var findEverything = setOf("-delete -depth -d -maxdepth -mindepth -type -xdev -mount -print -true -o -a -and -or ( ) , 0 1 f d f,d d,f")

// foundName returns what the last of args, which is the value of the predicate before it, says about the names of found
// files, relative to one of the starting points.
func foundName(args, starts []arg) (arg, bool) {
	n := len(args)
	name := args[n-1]
	if !name.known || n > 2 && args[n-3].known && (args[n-3].text == "!" || args[n-3].text == "-not") {
		return arg{}, false
	}
	predicate := args[n-2].text
	switch predicate {
	case "-name", "-iname":
	case "-path", "-ipath", "-wholename", "-iwholename": // the pattern includes the starting point
		under := func(s arg) bool { return s.known && strings.HasPrefix(name.text, strings.TrimSuffix(s.text, "/")+"/") }
		if i := slices.IndexFunc(starts, under); i >= 0 {
			name.text = name.text[len(strings.TrimSuffix(starts[i].text, "/"))+1:]
		} else if !strings.HasPrefix(name.text, "*") {
			return arg{}, false
		}
		name.text = strings.TrimPrefix(name.text, "*/")
	default:
		return arg{}, false
	}
	if predicate[1] == 'i' {
		if strings.ContainsAny(name.text, `[\`) || strings.ContainsFunc(name.text, func(r rune) bool { return r > unicode.MaxASCII }) {
			return arg{}, false
		}
		name.text = letter().ReplaceAllStringFunc(name.text, func(c string) string { return "[" + strings.ToLower(c) + strings.ToUpper(c) + "]" })
	}
	name.wild = strings.ContainsAny(name.text, "*?[")
	return name, name.text != ""
}

var letter = lazy.Regexp(`[a-zA-Z]`)

// below returns the path of name below dir.
func below(dir, name arg) arg {
	return arg{text: dir.text + "/" + name.text, raw: dir.raw + "/" + name.raw, known: true, field: true, wild: name.wild}
}

// mayBeAction returns why a word that is not literal may be one of the actions, or "".
func mayBeAction(a arg) string {
	matches := func(action string) bool {
		ok, err := path.Match(pathrule.ShellPattern(a.text), action)
		return ok || err != nil
	}
	if a.field && a.noDash || a.wild && !strings.Contains(a.text, hole) && !slices.ContainsFunc(findActions, matches) {
		return ""
	}
	return a.raw + " may be an action"
}

// tooManyFound reports whether starting points and names have more combinations than are checked, and then requires
// approval. Each path that an action reads is searched below each starting point.
func (w *walker) tooManyFound(starts, names []arg) bool {
	if w.expanded > maxBudget {
		return true
	}
	if w.expanded += len(starts) * max(len(names), 1); w.expanded <= maxBudget && len(starts) <= maxExpanded {
		return false
	}
	w.expanded = maxBudget + 1
	w.denyDynamic("find acts on too many combinations of paths and names")
	return true
}

// inFoundDirs calls f for commands that run in the directories of found files.
func (w *walker) inFoundDirs(f func()) {
	in, cwds, cwdLost := w.in, w.cwds, w.cwdLost
	w.in.visits = !cwdLost
	w.loseCwd()
	f()
	w.in, w.cwds, w.cwdLost = in, cwds, cwdLost
}

// mustName records that only rules that name the action allow the find at index self.
func (w *walker) mustName(self int, action string) {
	w.cmds[self].named = append(w.cmds[self].named, action)
}

// findAction records the effects of the action args[0], which runs a command or writes a file, and returns how many
// further arguments it has. self is the index of find.
func findAction(w *walker, p *parsed, self int, args, starts, names []arg) int {
	action := args[0].text
	if strings.HasPrefix(action, "-f") {
		p.effects |= writing
		w.mustName(self, action)
		if len(args) > 1 {
			p.ops = append(p.ops, roleArg{arg: args[1], kind: 'w'})
		}
		values := 1
		if action == "-fprintf" {
			values = 2 // the file and the format
		}
		return min(values, len(args)-1)
	}
	end := 1
	for end < len(args) && !(args[end].known && (args[end].text == ";" || args[end].text == "+" && (args[end-1].text == "{}" || !args[end-1].known))) {
		end++
	}
	// A "+" only ends the command if it follows "{}".
	if i := slices.IndexFunc(args[:min(end+1, len(args))], func(a arg) bool { return a.text == "+" }); i > 0 && args[i-1].text != "{}" {
		p.effects |= executing
		w.mustName(self, action)
	}
	// With -L a file may be below a link, and not where the starting point and the name say.
	if len(names) == 0 || slices.ContainsFunc(w.cmds[self].args, func(a arg) bool { return a.text == "-L" || a.text == "-follow" }) {
		names = []arg{{text: hole}}
	}
	found := w.origin(origin{lo: int32(self), hi: int32(self + 1), whole: true})
	cmd, names := w.findCommand(args[1:end], starts, names, found)
	if end < len(args) && args[end].text == "+" && len(cmd) > 0 {
		cmd[len(cmd)-1].field = false // several names
	}
	inner := len(w.cmds)
	if len(cmd) > 0 {
		run := func() { w.inside(self, func() { w.simpleCommand(cmd, joinRaw(args[1:end]), "") }) }
		if strings.HasSuffix(action, "dir") {
			w.inFoundDirs(run)
		} else {
			run()
		}
	}
	// A command that shows any file below a directory may show a secret.
	anyName := !slices.ContainsFunc(names, func(a arg) bool { return a.text != hole })
	if len(w.cmds) == inner || slices.ContainsFunc(w.cmds[inner:], func(c command) bool { return c.Reason != "" || anyName && c.dumps() }) {
		p.effects |= executing
		w.mustName(self, action)
	}
	return end
}

// findCommand returns the command that -exec runs, with the found names in place of {}. It also returns the names,
// which are unknown if there are too many combinations. Only the first {} stands for all names, a later one for the
// first name: the analysis needs each name once.
func (w *walker) findCommand(args, starts, names []arg, found source) (cmd, used []arg) {
	for _, a := range args {
		if !strings.Contains(a.text, "{}") {
			cmd = append(cmd, a)
			continue
		}
		if w.tooManyFound(starts, names) {
			starts, names = []arg{literal(".")}, []arg{{text: hole}}
		}
		for _, s := range starts {
			for _, name := range names {
				name = below(s, name)
				joined := arg{text: strings.ReplaceAll(a.text, "{}", name.text), raw: a.raw, field: true, noDash: !strings.HasPrefix(a.text, "-"), wild: name.wild, from: found}
				if strings.Contains(a.text, hole) {
					joined.from = anywhere
				}
				cmd = append(cmd, joined)
			}
		}
		starts, names = starts[:1], names[:1]
	}
	return cmd, names
}

// fdArgs walks the commands that fd runs for found files. A ";" ends such a command, and options may follow it.
func fdArgs(w *walker, _ *command, p *parsed) string {
	self := len(w.cmds) - 1
	args := w.cmds[self].args
	start, harmless := fdRunsOne(args)
	for i := start; i < len(args); i++ {
		text, attached := args[i].text, "" // the command's name, if it is in the word of the option
		switch x := strings.IndexAny(text, "xX"); {
		case strings.HasPrefix(text, "--exec"):
			_, attached, _ = strings.Cut(text, "=")
		case x > 0 && text[0] == '-' && text[1] != '-':
			attached = text[x+1:]
		default:
			continue
		}
		run := slices.Clone(args[i+1:])
		if end := slices.IndexFunc(run, func(a arg) bool { return a.known && a.text == ";" }); end >= 0 {
			run = run[:end]
		}
		i += len(run) + 1 // the ";"
		if attached != "" {
			run = slices.Insert(run, 0, literal(attached))
		}
		found := w.origin(origin{lo: int32(self), hi: int32(self + 1), whole: true})
		placeholder := func(a arg) bool { return strings.Contains(a.text, "{") }
		if !slices.ContainsFunc(run, placeholder) {
			run = append(run, arg{text: hole, raw: "…", from: found})
		}
		for k, a := range run {
			if placeholder(a) {
				run[k] = arg{text: hole, raw: a.raw, field: true, from: found}
			}
		}
		w.inFoundDirs(func() { // --base-directory changes the directory
			w.inside(self, func() { w.simpleCommand(run, joinRaw(run), "") })
		})
	}
	inner := w.cmds[self+1:]
	if harmless && !slices.ContainsFunc(inner, func(c command) bool { return c.Reason != "" }) {
		p.effects &^= executing
	}
	return ""
}

// fdRunsOne reports whether fd certainly runs only the command after the option at index start. Otherwise start is 1,
// so that each word that may be such an option counts.
func fdRunsOne(args []arg) (start int, certain bool) {
	plain := specs()["fd"][0]
	for i := 1; i < len(args); i++ {
		switch a := &args[i]; {
		case a.known && slices.Contains([]string{"-x", "-X", "--exec", "--exec-batch"}, a.text):
			end := slices.IndexFunc(args, func(a arg) bool { return a.known && a.text == ";" })
			return i, end < 0 || end == len(args)-1
		case a.option():
			n, why := plain.optionAt(&parsed{spec: plain}, args, i)
			if why != "" || a.text == "--" {
				return 1, false
			}
			i += n
		}
	}
	return 1, false
}
