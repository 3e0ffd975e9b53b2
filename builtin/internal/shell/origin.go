package shell

import (
	"path"
	"slices"
	"strings"
)

// Names that are only known at run time have an origin: xargs and read get them from a pipe, $(…) from
// commands, a loop from its words. For the usual search commands the analysis knows below which directory these
// names are, and how they end.

// A source identifies the origin of the unknown parts of a word. It is 0 for a word without unknown parts, and
// for a word of unknown origin.
type source uint16

const (
	anywhere    source = iota + 1
	noFile             // a number, a hash or a descriptor
	firstOrigin        // the first index in the list of origins
)

// An origin is a list of words, or the output of commands.
type origin struct {
	args   []arg
	lo, hi int32 // the commands, from lo to before hi
}

// maxOrigins is how many origins of a line are distinguished.
const maxOrigins = 1000

func (w *walker) origin(o origin) source {
	if len(w.origins) >= maxOrigins {
		return anywhere
	}
	w.origins = append(w.origins, o)
	return firstOrigin + source(len(w.origins)-1)
}

// printedBy returns the origin of the output of the commands since first.
func (w *walker) printedBy(first int) source {
	return w.origin(origin{lo: int32(first), hi: int32(len(w.cmds))})
}

// setInput records the source of the current command's redirected input.
func (w *walker) setInput(from source) {
	if from >= firstOrigin && w.in.input >= firstOrigin {
		w.origins[w.in.input-firstOrigin] = w.origins[from-firstOrigin]
	}
}

// originOf returns the origin of an assigned value or a here-string.
func (w *walker) originOf(a arg) source {
	if a.text == hole {
		return a.from
	}
	return w.origin(origin{args: []arg{a}})
}

// valuesOf returns the origin of the values of a variable.
func (w *walker) valuesOf(b binding) source {
	switch {
	case b.numeric || b.atom:
		return noFile
	case b.vals == nil:
		return b.from
	}
	args := make([]arg, len(b.vals))
	for i, v := range b.vals {
		args[i] = literal(v)
	}
	return w.origin(origin{args: args})
}

// mark records the source of a hole in a word.
func (a *arg) mark(from source) {
	switch {
	case a.from == 0 || a.from == noFile:
		a.from = max(from, anywhere)
	case from != noFile && from != a.from:
		a.from = anywhere
	}
}

// A reach is the set of names that a word may expand to.
type reach struct {
	words []arg // literal, or with wildcards
	spots []spot
}

// A spot is a directory that may contain files with unknown names.
type spot struct {
	dir    string   // absolute; empty: any
	up     bool     // names begin with ".."
	deep   bool     // names may also be in subdirectories
	hidden bool     // names may be hidden
	plain  bool     // no secret has such a name
	bases  []string // patterns, one of which the last segment of a name matches; nil matches any
	end    string   // if dir is empty: how the names end, with stars for what is unknown
}

// maxReach is how many steps the origin of a name is traced back.
const maxReach = 8

// reach returns the names that a word of the command c may expand to.
func (f *findings) reach(c *command, a *arg) reach {
	var r reach
	f.follow(&r, c, a, 0)
	return r
}

func (f *findings) follow(r *reach, c *command, a *arg, depth int) {
	open := strings.Count(a.text, hole)
	switch {
	case open == 0 && a.from < firstOrigin:
		if c.inUnknownDir(a) {
			r.spots = append(r.spots, spot{bases: []string{path.Base(a.text)}, hidden: true})
			return
		}
		r.words = append(r.words, *a)
		return
	case a.from == noFile:
		return
	case a.from < firstOrigin || depth > maxReach || open > 1:
		r.spots = append(r.spots, spot{bases: tail(a), hidden: true, end: endOf(a)})
		return
	}
	o := f.origins[a.from-firstOrigin]
	if o.hi == 0 && o.args == nil {
		r.spots = append(r.spots, spot{bases: tail(a), hidden: true, end: endOf(a)})
		return
	}
	for i := range o.args {
		x := &o.args[i]
		f.put(r, c, a, *x, depth+1)
		if x.known && strings.ContainsAny(x.text, " \t\n") { // it is quoted, so it is one word
			for field := range strings.FieldsSeq(x.text) {
				f.put(r, c, a, literal(field), depth+1)
			}
		}
	}
	if o.hi > 0 {
		f.printed(r, c, a, o, depth+1)
	}
}

// put follows the word a with word in place of its hole.
func (f *findings) put(r *reach, c *command, a *arg, word arg, depth int) {
	word.text = strings.Replace(a.text, hole, word.text, 1)
	word.wild = word.wild || a.wild
	word.known = word.known && !word.wild
	f.follow(r, c, &word, depth)
}

// printed follows the word a with the output of an origin's commands in place of its hole.
func (f *findings) printed(r *reach, c *command, a *arg, o origin, depth int) {
	var found reach
	for i := o.lo; i < o.hi; i++ {
		k := &f.cmds[i]
		if slices.Contains(passing, k.name) && !f.feeds(o, k) { // its input comes from commands outside o
			f.follow(&found, c, &arg{text: hole, from: k.in.input}, depth)
		}
		if !f.prints(&found, c, k, depth) {
			found.spots = append(found.spots, spot{hidden: true}) // it may only print an operand of the others
		}
	}
	for _, word := range found.words {
		f.put(r, c, a, word, depth)
	}
	for _, s := range found.spots {
		r.spots = append(r.spots, s.within(c, a)...)
	}
}

// feeds reports whether the input of the command k of an origin has the same origin.
func (f *findings) feeds(o origin, k *command) bool {
	if k.in.input < firstOrigin {
		return k.in.input == 0 // nothing
	}
	in := f.origins[k.in.input-firstOrigin]
	return in.hi > 0 && in.args == nil && in.lo >= o.lo && in.hi <= o.hi
}

// inUnknownDir reports whether a name is relative to an unknown directory.
func (c *command) inUnknownDir(a *arg) bool {
	return len(c.cwds) == 0 && a.text != "" && !path.IsAbs(ownPlace(a.text)) && !strings.Contains(a.text, hole)
}

// within returns the spots of a word whose hole is a name in s.
func (s spot) within(c *command, a *arg) []spot {
	if bases := tail(a); bases != nil {
		s.bases, s.deep = bases, true
	}
	if a.text != hole {
		s.end = endOf(a)
	}
	before, after, _ := strings.Cut(a.text, hole)
	switch {
	case strings.Contains(after, ".."), s.up && strings.Trim(before, "./") != "":
		s.dir = ""
	case s.dir == "" || strings.Trim(before, "./") == "" && !strings.Contains(before, ".."):
	default:
		var out []spot
		for _, dir := range c.paths(literal(before + "x")) {
			out = append(out, spot{dir: path.Dir(dir), deep: true, hidden: s.hidden, bases: s.bases})
		}
		return out
	}
	return []spot{s}
}

// tail returns the pattern of the end of a word with a hole; nil matches any.
func tail(a *arg) []string {
	base := a.text[strings.LastIndexByte(a.text, '/')+1:]
	if base = strings.ReplaceAll(base, hole, "*"); strings.Trim(base, "*") == "" {
		return nil
	}
	return []string{base}
}

// endOf returns the text after the first hole of a word, with stars for what is unknown.
func endOf(a *arg) string {
	if i := strings.Index(a.text, hole); i >= 0 {
		return strings.ReplaceAll(a.text[i:], hole, "*")
	}
	return ""
}

// passing are commands that only print lines of their input, unchanged.
var passing = strings.Fields("head tail sort uniq tac cat tee shuf grep egrep fgrep rg xargs")

// quiet are commands that print nothing, and commands that only run others.
var quiet = strings.Fields("cd test [ [[ true false : read mapfile readarray sleep wait time timeout nice command stdbuf")

// prints adds the names that a command k of the line prints, for c to read. It returns false if they are unknown.
func (f *findings) prints(r *reach, c, k *command, depth int) bool {
	switch {
	case slices.Contains(quiet, k.name):
		return len(k.reads) == 0
	case slices.Contains([]string{"grep", "egrep", "fgrep", "rg"}, k.name) && lists(k):
		return f.searched(r, c, k, depth)
	case slices.Contains(passing, k.name):
		parts := hasOption(k, 'o', "--only-matching") || hasOption(k, 'c', "--bytes") && (k.name == "head" || k.name == "tail") || hasOption(k, 'r', "--replace") && k.name == "rg"
		return len(k.reads) == 0 && !parts
	}
	switch k.name {
	case "find", "gfind", "fd", "fdfind":
		return f.finds(r, c, k)
	case "ls", "dir", "vdir":
		if hasOption(k, 'l', "--format") || hasOption(k, 'o', "--format") || hasOption(k, 'g', "--dired") || hasOption(k, 'n', "--numeric-uid-gid") {
			return false
		}
		hidden := hasOption(k, 'a', "--all") || hasOption(k, 'A', "--almost-all") || hasOption(k, 'f', "--all")
		r.add(c, ".", spot{hidden: hidden})
		return f.operands(r, c, k, depth)
	case "git":
		return gitNames(r, c, k)
	case "echo", "printf":
		return f.echoed(r, c, k, depth)
	case "pwd":
		for _, dir := range k.cwds {
			r.words = append(r.words, literal(dir))
		}
		return len(k.cwds) > 0
	case "du": // with sizes before the names
		if len(k.reads) == 0 {
			r.add(c, ".", spot{deep: true, hidden: true})
		}
		for i := range k.reads {
			if root := &k.reads[i]; root.known {
				r.add(c, root.text, spot{deep: true, hidden: true})
			} else {
				r.spots = append(r.spots, spot{hidden: true, end: "*/*"})
			}
		}
		return false
	case "realpath":
		f.operands(r, c, k, depth)
		return !hasOption(k, 0, "--relative-to") && !hasOption(k, 0, "--relative-base")
	case "stat":
		f.operands(r, c, k, depth)
		return slices.ContainsFunc(k.args, func(a arg) bool { return slices.Contains([]string{"%n", "-c%n", "--format=%n"}, a.text) })
	case "readlink": // with -n the output of the next command is joined to the last word
		f.operands(r, c, k, depth)
		return hasOption(k, 'f', "--canonicalize") && !hasOption(k, 'n', "--no-newline")
	case "dirname":
		f.above(r, c, k, depth)
		return true
	case "basename":
		r.add(c, ".", spot{hidden: true})
		return true
	}
	return false
}

// echoed adds the words that echo and printf print.
func (f *findings) echoed(r *reach, c, k *command, depth int) bool {
	words := k.args[1:]
	if k.name == "printf" {
		if len(words) < 2 || !words[0].known || !apart(words[0].text) {
			return false
		}
		words = words[1:]
	}
	sure := true
	for i := range words {
		a := &words[i]
		sure = sure && !(k.name == "echo" && a.option()) // with -n the output of the next command is joined to the last word
		f.follow(r, c, a, depth)
	}
	return sure
}

// apart reports whether a format of printf separates its words.
func apart(format string) bool {
	return strings.NewReplacer(`%s\n`, "", `%s\0`, "", "%s ", "").Replace(format) == "" && format != ""
}

// above adds the directories that dirname prints.
func (f *findings) above(r *reach, c, k *command, depth int) {
	var named reach
	f.operands(&named, c, k, depth)
	for _, word := range named.words {
		word.text = path.Dir(word.text)
		r.words = append(r.words, word)
	}
	for _, s := range named.spots {
		s.bases = nil
		r.spots = append(r.spots, s)
	}
}

// add adds a spot in a directory, relative to the command c.
func (r *reach) add(c *command, dir string, s spot) {
	dirs := c.cwds
	if path.IsAbs(dir) || len(dirs) == 0 {
		dirs = []string{""}
	}
	for _, d := range dirs {
		if path.IsAbs(dir) || d != "" {
			s.dir = resolve(d, dir)
		}
		r.spots = append(r.spots, s)
	}
}

func (f *findings) operands(r *reach, c, k *command, depth int) bool {
	for i := range k.reads {
		f.follow(r, c, &k.reads[i].arg, depth)
	}
	return true
}

// lists reports whether a search only prints names of files, not their lines.
func lists(k *command) bool {
	return hasOption(k, 'l', "--files-with-matches") || hasOption(k, 'L', "--files-without-match") || k.name == "rg" && hasOption(k, 0, "--files")
}

// searched adds the files that a search may print.
func (f *findings) searched(r *reach, c, k *command, depth int) bool {
	roots, hidden := k.roots()
	for _, root := range roots {
		if !root.known {
			return false
		}
		r.add(c, root.text, spot{deep: true, hidden: hidden, plain: k.recursive() && k.chosen(), bases: k.included(), up: strings.Contains(root.text, "..")})
	}
	return f.operands(r, c, k, depth)
}

// finds adds the files that find and fd print.
func (f *findings) finds(r *reach, c, k *command) bool {
	bases, hidden := []string(nil), true
	if strings.HasSuffix(k.name, "find") {
		if slices.ContainsFunc(k.args, func(a arg) bool {
			return slices.Contains([]string{"-printf", "-ls", "-files0-from", "-follow", "-L"}, a.text)
		}) {
			return false
		}
		bases = findBases(k.args[1:])
	} else {
		hidden = hasOption(k, 'H', "--hidden") || hasOption(k, 'u', "--unrestricted")
		for i, a := range k.args[1:] {
			if before := k.args[i].text; (before == "-e" || before == "--extension") && a.known {
				bases = append(bases, "*."+a.text)
			}
		}
		for _, a := range k.args[1:] { // with -x they are arguments of the command
			if !a.known && !a.lead {
				return false
			}
			if strings.Contains(a.text, "/") || a.text == ".." {
				r.add(c, a.text, spot{deep: true, hidden: hidden, bases: bases, up: strings.Contains(a.text, "..")})
			}
		}
		if hasOption(k, 0, "--base-directory") || hasOption(k, 'L', "--follow") || hasOption(k, 0, "--format") || hasOption(k, 'l', "--list-details") {
			return false
		}
	}
	some := false
	for i := range k.reads {
		root := &k.reads[i]
		if !root.known {
			r.words = append(r.words, root.arg)
			return false
		}
		some = true
		r.add(c, root.text, spot{deep: true, hidden: hidden, bases: bases, up: strings.Contains(root.text, "..")})
	}
	if !some {
		r.add(c, ".", spot{deep: true, hidden: hidden, bases: bases})
	}
	return true
}

// findBases returns patterns such that every name that an expression of find selects matches one of them, or nil.
func findBases(args []arg) []string {
	var bases []string
	named := false // the current alternative has a name
	for i, a := range args {
		if !a.known {
			continue
		}
		before := func(n int) string {
			if i < n {
				return ""
			}
			return args[i-n].text
		}
		switch a.text {
		case "-o", "-or", ",":
			if !named {
				return nil
			}
			named = false
		case "(":
			if before(1) == "!" || before(1) == "-not" {
				return nil
			}
		case "-name", "-iname":
			if i+1 < len(args) && args[i+1].known && before(1) != "!" && before(1) != "-not" {
				bases, named = append(bases, args[i+1].text), true
			}
		}
	}
	if !named {
		return nil
	}
	return bases
}

// gitNames adds the names that git lists, which are relative to its directory.
func gitNames(r *reach, c, k *command) bool {
	if len(k.args) < 2 {
		return false
	}
	named := slices.ContainsFunc(k.args, func(a arg) bool { return a.text == "--name-only" })
	switch k.args[1].text {
	case "ls-files":
	case "diff", "diff-tree", "ls-tree", "diff-index", "diff-files":
		if !named {
			return false
		}
	case "grep":
		if !named && !hasOption(k, 'l', "--files-with-matches") {
			return false
		}
	default:
		return false
	}
	bases := []string{}
	for _, a := range k.args[2:] {
		switch {
		case a.text == "--no-index", a.text == "-O", strings.HasPrefix(a.text, "--format"), strings.HasPrefix(a.text, "--open"):
			return false
		case a.known && strings.HasPrefix(a.text, "-"):
			continue
		case k.args[1].text == "ls-files" && a.known && bases != nil && strings.Contains(a.text, "*") && a.text[0] != ':':
			// A star also matches slashes.
			if end := a.text[strings.LastIndexByte(a.text, '*'):]; len(end) > 1 && !strings.Contains(end, "/") {
				bases = append(bases, end)
			} else {
				bases = nil
			}
		default:
			bases = nil
		}
		if a.known && (strings.Contains(a.text, "..") && k.args[1].text == "ls-files" || strings.HasPrefix(a.text, "../")) {
			return false
		}
	}
	if len(bases) == 0 {
		bases = nil
	}
	r.add(c, ".", spot{deep: true, hidden: true, bases: bases})
	return true
}
