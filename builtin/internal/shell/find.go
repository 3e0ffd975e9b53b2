package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// The predicates of find, by number of arguments.
var (
	findAlone = setOf(`-daystart -depth -follow -ignore_readdir_race -noignore_readdir_race -mount -xdev -noleaf
		-nowarn -warn -empty -executable -false -true -nogroup -nouser -readable -writable -ls -print -print0 -prune -quit
		-a -and -o -or -not ! ( ) , -d -x -X -s`)
	findOne = setOf(`-maxdepth -mindepth -regextype -amin -anewer -atime -cmin -cnewer -ctime -fstype -gid -group
		-ilname -iname -inum -ipath -iregex -iwholename -links -lname -mmin -mtime -name -newer -path -perm -regex -samefile
		-size -type -uid -used -user -wholename -xtype -context -printf -files0-from
		-newermt -newerat -newerct -neweraa -newerac -neweram -newerca -newercc -newercm -newerma -newermc -newermm -Btime -Bmin`)
	findHarmful = strings.Fields("-delete -exec -execdir -ok -okdir -fls -fprint -fprint0 -fprintf")
)

// setOf returns the set of the words of a text, which is made when it is needed.
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
		// Options before the starting points; see find(1), OPTIONS.
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
	if rest := findExpression(w, p, args[i:], starts); rest != "" {
		why = rest
	}
	for _, a := range starts {
		p.ops = append(p.ops, roleArg{arg: a, kind: 'r'})
	}
	return why
}

// beginsExpression reports whether a begins the expression: according to find(1), the first "-", "(" or "!" ends the
// starting points.
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

// findExpression walks the predicates. After an unknown predicate the command is not read-only, but the walk
// continues, because deny rules need the commands of a later -exec.
func findExpression(w *walker, p *parsed, args, starts []arg) string {
	self := len(w.cmds) - 1
	why := ""
	if len(starts) == 0 {
		starts = []arg{literal(".")}
	}
	selective := false // the expression does not select all files
	filters := []nameFilter{{}}
	for i := 0; i < len(args); i++ {
		a := &args[i]
		filter := &filters[len(filters)-1]
		selective = selective || a.known && !findEverything()[a.text]
		switch {
		case !a.known:
			why = cmp.Or(why, a.raw+" may be part of the expression")
		case findAlone()[a.text]:
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
		case findOne()[a.text]:
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
				w.findDelete(p, self, starts, filter.names, !selective)
			}
		case slices.Contains(findHarmful, a.text):
			i += findAction(w, p, self, args[i:], starts, filter.names)
		default:
			why = "the predicate " + a.text + " is not on the list"
		}
	}
	return why
}

// findDelete records which files -delete removes: the names in named below the starting points, or everything.
func (w *walker) findDelete(p *parsed, self int, starts, named []arg, everything bool) {
	p.effects |= deleting
	if w.tooManyCombinations(starts, named) {
		named = nil
	}
	for _, s := range starts {
		p.ops = append(p.ops, roleArg{arg: s, kind: 'd'})
		for _, n := range named {
			p.ops = append(p.ops, roleArg{arg: below(s, n), kind: 'd'})
		}
		if everything && s.known && slices.ContainsFunc(w.cmds[self].paths(s), func(p string) bool { return w.criticalPath(p, true) != "" }) {
			w.alarm(Destructive, "find deletes everything below "+s.text)
		}
	}
}

// findEverything are the words of an expression that do not select files by name or properties.
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
		if strings.ContainsAny(name.text, `[\`) {
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

// mayBeAction returns why a word that is not literal may be harmful in find's expression, or "".
func mayBeAction(a arg) string {
	if a.field && a.noDash {
		return ""
	}
	if a.wild && !strings.Contains(a.text, hole) {
		safe := true
		for _, h := range findHarmful {
			if ok, err := path.Match(pathrule.ShellPattern(a.text), h); ok || err != nil {
				safe = false
			}
		}
		if safe {
			return ""
		}
	}
	return a.raw + " may be an action"
}

// tooManyCombinations reports whether an action has more combinations of starting points and names than are checked. Then
// it needs approval.
func (w *walker) tooManyCombinations(starts, named []arg) bool {
	if w.expanded > maxBudget {
		return true
	}
	// Each path that an action reads is searched below each starting point.
	if w.expanded += len(starts) * max(len(named), 1); w.expanded <= maxBudget && len(starts) <= maxExpanded {
		return false
	}
	w.expanded = maxBudget + 1
	w.denyDynamic("find acts on too many combinations of paths and names")
	return true
}

// visiting calls f for commands that run in the directories of found files.
func (w *walker) visiting(f func()) {
	in, cwds, cwdLost := w.in, w.cwds, w.cwdLost
	w.in.visits = !cwdLost
	w.loseCwd()
	f()
	w.in, w.cwds, w.cwdLost = in, cwds, cwdLost
}

// mustName records that a rule for find only allows the action if it names the action.
func (w *walker) mustName(self int, action string) {
	w.cmds[self].named = append(w.cmds[self].named, action)
}

// findAction records the effects of -exec and of the actions that write files, and returns how many arguments
// they have.
func findAction(w *walker, p *parsed, self int, args, starts, named []arg) int {
	name := args[0].text
	if strings.HasPrefix(name, "-f") {
		p.effects |= writing
		w.mustName(self, name)
		if len(args) > 1 {
			p.ops = append(p.ops, roleArg{arg: args[1], kind: 'w'})
		}
		if name == "-fprintf" {
			return min(2, len(args)-1)
		}
		return min(1, len(args)-1)
	}
	end := 1
	for end < len(args) && !(args[end].known && (args[end].text == ";" || args[end].text == "+" && (args[end-1].text == "{}" || !args[end-1].known))) {
		end++
	}
	// A "+" only ends the command if it follows "{}".
	if i := slices.IndexFunc(args[:min(end+1, len(args))], func(a arg) bool { return a.text == "+" }); i > 0 && args[i-1].text != "{}" {
		p.effects |= executing
		w.mustName(self, name)
	}
	if len(named) == 0 {
		named = []arg{{text: hole}}
	}
	found := w.origin(origin{lo: int32(self), hi: int32(self + 1), whole: true})
	cmd, named := w.findCommand(args[1:end], starts, named, found)
	if end < len(args) && args[end].text == "+" && len(cmd) > 0 {
		cmd[len(cmd)-1].field = false // several names
	}
	inner := len(w.cmds)
	if len(cmd) > 0 {
		run := func() { w.inside(self, func() { w.simpleCommand(cmd, joinRaw(args[1:end]), "") }) }
		if strings.HasSuffix(name, "dir") { // it runs in the directory of each found file
			w.visiting(run)
		} else {
			run()
		}
	}
	// A command that shows everything below a directory may show a secret.
	anyName := !slices.ContainsFunc(named, func(a arg) bool { return a.text != hole })
	if len(w.cmds) == inner || slices.ContainsFunc(w.cmds[inner:], func(c command) bool { return c.Reason != "" || anyName && c.dumps() }) {
		p.effects |= executing
		w.mustName(self, name)
	}
	return end
}

// findCommand returns the command that -exec runs, with the found names in place of {}, and which names these are: any
// name if there are too many combinations. Only the first {} gets all of them, because the danger analysis needs each once.
func (w *walker) findCommand(args, starts, named []arg, found source) (cmd, names []arg) {
	for _, a := range args {
		if !strings.Contains(a.text, "{}") {
			cmd = append(cmd, a)
			continue
		}
		if w.tooManyCombinations(starts, named) {
			starts, named = []arg{literal(".")}, []arg{{text: hole}}
		}
		// Found names begin with the starting point.
		for _, s := range starts {
			for _, n := range named {
				n = below(s, n)
				joined := arg{text: strings.ReplaceAll(a.text, "{}", n.text), raw: a.raw, field: true, noDash: !strings.HasPrefix(a.text, "-"), wild: n.wild, from: found}
				if strings.Contains(a.text, hole) {
					joined.from = anywhere
				}
				cmd = append(cmd, joined)
			}
		}
		starts, named = starts[:1], named[:1]
	}
	return cmd, named
}

// fdArgs walks the commands that fd runs for found files. A ";" ends one, and another may follow.
func fdArgs(w *walker, c *command, p *parsed) string {
	start, harmless := fdRunsOne(c.args)
	for i := start; i < len(c.args); i++ {
		a, glued := c.args[i], ""
		switch j := strings.IndexAny(a.text, "xX"); {
		case strings.HasPrefix(a.text, "--exec"):
			_, glued, _ = strings.Cut(a.text, "=")
		case len(a.text) > 1 && a.text[0] == '-' && a.text[1] != '-' && j > 0:
			glued = a.text[j+1:]
		default:
			continue
		}
		run := slices.Clone(c.args[i+1:])
		i = len(c.args)
		if glued != "" {
			run = slices.Insert(run, 0, literal(glued))
		}
		found, from := false, w.origin(origin{lo: int32(len(w.cmds) - 1), hi: int32(len(w.cmds)), whole: true})
		for k, b := range run {
			if b.known && b.text == ";" {
				i -= len(run) - k
				run = run[:k]
				break
			}
			if strings.Contains(b.text, "{") {
				run[k], found = arg{text: hole, raw: b.raw, field: true, from: from}, true
			}
		}
		if !found {
			run = append(run, arg{text: hole, raw: "…", from: from})
		}
		self := len(w.cmds) - 1
		w.visiting(func() { // --base-directory changes the directory
			w.inside(self, func() { w.simpleCommand(run, joinRaw(run), "") })
		})
		inner := w.cmds[self+1:]
		harmless = harmless && len(inner) > 0 && !slices.ContainsFunc(inner, func(c command) bool { return c.Reason != "" })
	}
	if harmless {
		p.effects &^= executing
	}
	return ""
}

// fdRunsOne reports whether it is certain which command fd runs, one only, and the index of the option before it.
// Otherwise each word that may be such an option counts.
func fdRunsOne(args []arg) (int, bool) {
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
