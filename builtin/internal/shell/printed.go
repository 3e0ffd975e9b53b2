package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// lineFilters are commands that only print lines of their input, unchanged.
var lineFilters = strings.Fields("head tail sort uniq tac cat tee shuf grep egrep fgrep rg xargs")

// quiet are commands that print nothing, and wrappers: the commands inside them are looked at separately.
var quiet = strings.Fields("test [ [[ true false : read mapfile readarray sleep wait time timeout nice stdbuf")

// In this file c is the command that reads names, and k the command that prints them. The methods of findings add the
// names that k prints, and return false if k may also print other names.

// addPrinted adds the names that k prints. depth is the number of steps from c back to k.
func (f *findings) addPrinted(r *reach, c, k *command, depth int) bool {
	switch {
	case slices.Contains(quiet, k.name):
		return len(k.reads) == 0
	case slices.Contains([]string{"grep", "egrep", "fgrep", "rg"}, k.name) && printsOnlyNames(k):
		return f.addSearched(r, c, k, depth)
	case slices.Contains(lineFilters, k.name):
		return len(k.reads) == 0 && !cutsLines(k)
	}
	switch k.name {
	case "cd": // with - it prints the directory
		return !slices.ContainsFunc(k.args[1:], func(a arg) bool { return a.text == "-" || !a.known && !a.noDash })
	case "find", "gfind", "fd", "fdfind":
		return f.addFound(r, c, k)
	case "ls", "dir": // vdir and the following options also print the targets of links
		if hasOption(k, 'l', "--format") || hasOption(k, 'o', "--format") || hasOption(k, 'g', "--dired") || hasOption(k, 'n', "--numeric-uid-gid") {
			return false
		}
		hidden := hasOption(k, 'a', "--all") || hasOption(k, 'A', "--almost-all") || hasOption(k, 'f', "--all")
		r.add(c, ".", spot{hidden: hidden})
		f.addOperands(r, c, k, depth)
		return true
	case "git":
		return f.addGitNames(r, c, k)
	case "echo", "printf":
		return f.addEchoed(r, c, k, depth)
	case "pwd":
		for _, dir := range k.cwds {
			r.words = append(r.words, literal(dir))
		}
		return len(k.cwds) > 0
	case "du": // with sizes before the names
		below := spot{deep: true, hidden: true}
		if len(k.reads) == 0 {
			r.add(c, ".", below)
		}
		for i := range k.reads {
			if root := &k.reads[i]; root.known {
				r.add(c, root.text, below)
			} else {
				r.spots = append(r.spots, spot{hidden: true, end: "*/*"})
			}
		}
		return false
	case "realpath":
		f.addOperands(r, c, k, depth)
		return !hasOption(k, 0, "--relative-to") && !hasOption(k, 0, "--relative-base")
	case "stat":
		f.addOperands(r, c, k, depth)
		return statNames(k.args[1:])
	case "readlink": // with -n the output of the next command is joined to the last word
		f.addOperands(r, c, k, depth)
		return hasOption(k, 'f', "--canonicalize") && !hasOption(k, 'n', "--no-newline")
	case "dirname":
		f.addParents(r, c, k, depth)
		return true
	case "basename":
		r.add(c, ".", spot{hidden: true})
		return true
	case "which", "command": // a program's path, in a directory of PATH
		if k.name == "command" && len(k.args) > 1 && !k.args[1].option() {
			return true // a wrapper, see quiet
		}
		for i := range k.args[1:] {
			a := &k.args[1+i]
			switch {
			case a.known && (a.text == "-a" || a.text == "-v"):
			case !a.known || a.option() || strings.Contains(a.text, "/"):
				return false
			default:
				r.spots = append(r.spots, spot{bases: []string{a.text}, hidden: true})
			}
		}
		return true
	}
	return false
}

// cutsLines reports whether a line filter may print parts of lines.
func cutsLines(k *command) bool {
	switch k.name {
	case "head", "tail":
		return hasOption(k, 'c', "--bytes")
	case "tac":
		return hasOption(k, 's', "--separator")
	case "rg":
		return hasOption(k, 'o', "--only-matching") || hasOption(k, 'r', "--replace")
	}
	return hasOption(k, 'o', "--only-matching")
}

// statNames reports whether stat with these arguments prints only names.
func statNames(args []arg) bool {
	if len(args) > 1 && (args[0].text == "-c" || args[0].text == "--format") && args[1].text == "%n" {
		args = args[2:]
	} else if len(args) > 0 && (args[0].text == "-c%n" || args[0].text == "--format=%n") {
		args = args[1:]
	} else {
		return false
	}
	return !slices.ContainsFunc(args, func(a arg) bool { return a.option() }) // another format
}

// addEchoed adds the words that echo and printf print.
func (f *findings) addEchoed(r *reach, c, k *command, depth int) bool {
	words := k.args[1:]
	separate := true // each word is printed as it is, and blanks or line breaks are between them
	if k.name == "printf" && len(words) > 0 {
		format := words[0].text
		separate = words[0].known && separates(format)
		if separate || format == "%s" {
			words = words[1:]
		} else if words = words[:1]; strings.ContainsAny(format, `%\`) {
			return false
		}
	}
	for i := range words {
		a := &words[i]
		separate = separate && !(k.name == "echo" && a.option()) // with -n the output of the next command is joined to the last word
		f.trace(r, c, a, depth)
	}
	return separate
}

// separates reports whether a format of printf only prints words, with a separator after each.
func separates(format string) bool {
	return strings.NewReplacer(`%s\n`, "", `%s\0`, "", "%s ", "").Replace(format) == "" && format != ""
}

// addParents adds the directories that dirname prints.
func (f *findings) addParents(r *reach, c, k *command, depth int) {
	var named reach
	f.addOperands(&named, c, k, depth)
	for _, word := range named.words {
		word.text = path.Dir(cmp.Or(strings.TrimRight(word.text, "/"), "/")) // dirname ignores slashes at the end
		r.words = append(r.words, word)
	}
	for _, s := range named.spots {
		s.bases, s.end, s.plain = nil, "", false
		r.spots = append(r.spots, s)
	}
}

// add adds s for a directory, which is relative to the current directory of c.
func (r *reach) add(c *command, dir string, s spot) {
	dirs := c.cwds
	if path.IsAbs(dir) || len(dirs) == 0 {
		dirs = []string{""}
	}
	for _, cwd := range dirs {
		if path.IsAbs(dir) || cwd != "" {
			s.dir = resolve(cwd, dir)
		}
		r.spots = append(r.spots, s)
	}
}

// addOperands adds the files that k reads, which it also names.
func (f *findings) addOperands(r *reach, c, k *command, depth int) {
	for i := range k.reads {
		f.trace(r, c, &k.reads[i].arg, depth)
	}
}

// printsOnlyNames reports whether a search only prints names of files, not their lines.
func printsOnlyNames(k *command) bool {
	if k.name == "rg" {
		return usesOption(k, k.name, "-l", "--files-with-matches", "--files-without-match", "--files")
	}
	return usesOption(k, k.name, "-l", "-L", "--files-with-matches", "--files-without-match")
}

// usesOption reports whether k has one of the options.
func usesOption(k *command, name string, options ...string) bool {
	return slices.ContainsFunc(optionsOf(k, name), func(o given) bool { return slices.Contains(options, o.name) })
}

// optionsOf returns the options of k with their values, by the first line of the table for name, such as "git grep".
// Unlike hasOption it does not mistake values for options.
func optionsOf(k *command, name string) []given {
	lines := specs()[name]
	if len(lines) == 0 {
		return nil
	}
	var out []given
	for i := len(strings.Fields(name)); i < len(k.args) && k.args[i].text != "--"; i++ {
		rest := k.args[i].text
		for strings.HasPrefix(rest, "-") && rest != "-" {
			o := given{value: k.args[i]}
			attached := false
			if strings.HasPrefix(rest, "--") {
				o.name, o.value.text, attached = strings.Cut(rest, "=")
				rest = ""
			} else {
				o.name, o.value.text = rest[:2], rest[2:]
				attached, rest = rest[2:] != "", "-"+rest[2:]
			}
			takes := lines[0].options[o.name].value
			if takes == '=' && !attached && i+1 < len(k.args) {
				i++
				o.value = k.args[i]
			}
			if takes != 0 {
				rest = ""
			}
			out = append(out, o)
		}
	}
	return out
}

// addSearched adds the files that a search may print.
func (f *findings) addSearched(r *reach, c, k *command, depth int) bool {
	roots, hidden := k.roots()
	for _, root := range roots {
		if !root.known {
			return false
		}
		r.add(c, root.text, spot{deep: true, hidden: hidden, plain: k.recursive() && k.selectsHarmless(), regular: !k.followsLinks(), bases: k.includeGlobs(), up: strings.Contains(root.text, "..")})
	}
	f.addOperands(r, c, k, depth)
	return true
}

// addFound adds the files that find and fd print.
func (f *findings) addFound(r *reach, c, k *command) bool {
	bases, hidden := []string(nil), true
	switch k.name {
	case "find", "gfind":
		if slices.ContainsFunc(k.args, func(a arg) bool {
			return slices.Contains([]string{"-printf", "-ls", "-files0-from", "-follow", "-L"}, a.text)
		}) {
			return false
		}
		bases = findBases(k.args[1:])
	default: // fd
		hidden = hasOption(k, 'H', "--hidden") || hasOption(k, 'u', "--unrestricted")
		bases = fdBases(k)
		for _, a := range k.args[1:] { // with -x they are arguments of the command
			if !a.known && !a.noDash {
				return false
			}
			if strings.Contains(a.text, "/") || a.text == ".." {
				r.add(c, a.text, spot{deep: true, hidden: hidden, bases: bases, up: strings.Contains(a.text, "..")})
			}
		}
		for _, long := range []string{"--base-directory", "--format", "--path-separator"} {
			if hasOption(k, 0, long) {
				return false
			}
		}
		if hasOption(k, 'L', "--follow") || hasOption(k, 'l', "--list-details") {
			return false
		}
	}
	below := spot{deep: true, hidden: hidden, bases: bases}
	for i := range k.reads {
		root := &k.reads[i]
		if !root.known {
			if strings.Contains(root.text, hole) {
				r.spots = append(r.spots, below.startingLike(c, &root.arg)...)
			} else {
				r.add(c, root.text, below)
			}
			r.words = append(r.words, root.arg)
			return false
		}
		below.up = strings.Contains(root.text, "..")
		r.add(c, root.text, below)
	}
	if len(k.reads) == 0 {
		r.add(c, ".", below)
	}
	return true
}

// fdBases returns patterns such that every name that fd prints matches one of them, or nil.
func fdBases(k *command) []string {
	var bases []string
	for _, o := range optionsOf(k, k.name) {
		if o.name != "-e" && o.name != "--extension" {
			continue
		}
		if !o.value.known {
			return nil
		}
		bases = append(bases, "*."+o.value.text)
	}
	return bases
}

// findBases returns patterns such that every name that an expression of find selects matches one of them, or nil.
func findBases(args []arg) []string {
	var bases []string
	named := false // the current alternative has a name
	for i, a := range args {
		if !a.known {
			continue
		}
		before := ""
		if i > 0 {
			before = args[i-1].text
		}
		not := before == "!" || before == "-not"
		switch a.text {
		case "-o", "-or", ",":
			if !named {
				return nil
			}
			named = false
		case "(":
			if not {
				return nil
			}
		case "-name", "-iname":
			// After other tests this word is a value.
			isTest := !strings.HasPrefix(before, "-") || slices.Contains([]string{"-a", "-and", "-o", "-or", "-xdev", "-mount", "-depth", "-empty"}, before)
			if i+1 < len(args) && args[i+1].known && !not && isTest {
				bases, named = append(bases, args[i+1].text), true
			}
		}
	}
	if !named {
		return nil
	}
	return bases
}

// addGitNames adds the names that git lists, as if git ran in the directory of c.
func (f *findings) addGitNames(r *reach, c, k *command) bool {
	if len(k.args) < 2 {
		return false
	}
	sub := k.args[1].text
	named := usesOption(k, "git "+sub, "--name-only")
	switch sub {
	case "rev-parse":
		return f.addTop(r, k)
	case "ls-files":
	case "diff", "diff-tree", "ls-tree", "diff-index", "diff-files":
		if !named {
			return false
		}
	case "grep":
		if !named && !usesOption(k, "git grep", "-l", "--files-with-matches") {
			return false
		}
	default:
		return false
	}
	bases := []string{}                                                  // nil: the names may have any end
	isPattern := sub == "grep" && !usesOption(k, "git grep", "-e", "-f") // the next operand is one, not a path
	fromCwd := sub == "ls-files" || sub == "ls-tree" || sub == "grep"    // the names are relative to the current directory
	for _, a := range k.args[2:] {
		switch {
		case a.text == "--no-index", a.text == "-O", strings.HasPrefix(a.text, "--format"), strings.HasPrefix(a.text, "--open"):
			return false
		case a.known && strings.HasPrefix(a.text, "-"):
			continue
		case sub == "ls-files" && a.known && bases != nil && strings.Contains(a.text, "*") && a.text[0] != ':':
			// A star also matches slashes.
			if end := a.text[strings.LastIndexByte(a.text, '*'):]; len(end) > 1 && !strings.Contains(end, "/") {
				bases = append(bases, end)
			} else {
				bases = nil
			}
		default:
			bases = nil
		}
		mayLeave := strings.HasPrefix(a.text, ":") || strings.Contains(a.text, hole) || strings.HasPrefix(a.text, "/") && !isPattern
		if strings.HasPrefix(a.text, "..") || strings.Contains(a.text, "/..") || fromCwd && mayLeave {
			return false // the names may begin with ..
		}
		isPattern = false
	}
	if len(bases) == 0 {
		bases = nil
	}
	r.add(c, ".", spot{deep: true, hidden: true, bases: bases})
	return true
}

// addTop adds the top of the work tree and the directory .git that git rev-parse prints.
func (f *findings) addTop(r *reach, k *command) bool {
	names := map[string]string{"--show-toplevel": "", "--git-dir": "/.git", "--git-common-dir": "/.git", "--absolute-git-dir": "/.git"}
	for _, a := range k.args[2:] {
		name, ok := names[a.text]
		if !ok {
			return false
		}
		for _, dir := range k.cwds {
			r.words = append(r.words, literal(cmp.Or(f.tops[dir], dir)+name))
		}
	}
	return len(k.args) > 2 && len(k.cwds) > 0
}
