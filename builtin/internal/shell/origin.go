package shell

import (
	"path"
	"slices"
	"strings"
)

// Names that are known only when the line runs come from somewhere: xargs and read get
// them from a pipe, $(…) from commands, a loop from its words. Of the usual finders it is
// known below which directory these names are, and how they end.

// A source says where what is not known of a word comes from. 0 is for a word in which all
// is known, and for one of which nobody knows.
type source uint16

const (
	anywhere    source = iota + 1
	noFile             // a number, a hash or a descriptor
	firstOrigin        // the first of the list of origins
)

// An origin is words, or else what commands print.
type origin struct {
	args   []arg
	lo, hi int32 // the commands, from lo to before hi
}

// maxOrigins is how many origins of a line are kept apart.
const maxOrigins = 1000

func (w *walker) origin(o origin) source {
	if len(w.origins) >= maxOrigins {
		return anywhere
	}
	w.origins = append(w.origins, o)
	return firstOrigin + source(len(w.origins)-1)
}

// printedBy returns the origin of what the commands since first print.
func (w *walker) printedBy(first int) source {
	return w.origin(origin{lo: int32(first), hi: int32(len(w.cmds))})
}

// comesFrom notes what a redirection brings to the command that is walked.
func (w *walker) comesFrom(from source) {
	if from >= firstOrigin && w.in.input >= firstOrigin {
		w.origins[w.in.input-firstOrigin] = w.origins[from-firstOrigin]
	}
}

// originOf returns the origin of what is assigned, or typed.
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

// mark notes where a hole in a word comes from.
func (a *arg) mark(from source) {
	switch {
	case a.from == 0 || a.from == noFile:
		a.from = max(from, anywhere)
	case from != noFile && from != a.from:
		a.from = anywhere
	}
}

// A reach is the names that a word may come to be.
type reach struct {
	words []arg // literal, or with wildcards
	spots []spot
}

// A spot is a directory in which names that are not known may be.
type spot struct {
	dir    string   // absolute; empty: any
	up     bool     // names begin with ".."
	deep   bool     // or below it
	hidden bool     // hidden names, too
	plain  bool     // no secret has such a name
	bases  []string // patterns, one of which the last segment matches; nil: any
}

// maxReach is how many steps back the way of a name is followed.
const maxReach = 8

// reach returns the names that a word of the command c may come to be.
func (f *findings) reach(c *command, a *arg) reach {
	var r reach
	f.follow(&r, c, a, 0)
	return r
}

func (f *findings) follow(r *reach, c *command, a *arg, depth int) {
	open := strings.Count(a.text, hole)
	switch {
	case open == 0 && a.from < firstOrigin:
		if c.adrift(a) {
			r.spots = append(r.spots, spot{bases: []string{path.Base(a.text)}, hidden: true})
			return
		}
		r.words = append(r.words, *a)
		return
	case a.from == noFile:
		return
	case a.from < firstOrigin || depth > maxReach || open > 1:
		r.spots = append(r.spots, spot{bases: tail(a), hidden: true})
		return
	}
	o := f.origins[a.from-firstOrigin]
	if o.hi == 0 && o.args == nil {
		r.spots = append(r.spots, spot{bases: tail(a), hidden: true})
		return
	}
	for i := range o.args {
		x := &o.args[i]
		f.put(r, c, a, *x, depth+1)
		if x.known && strings.ContainsAny(x.text, " \t\n") { // quoted, it is one word
			for field := range strings.FieldsSeq(x.text) {
				f.put(r, c, a, literal(field), depth+1)
			}
		}
	}
	if o.hi > 0 {
		f.printed(r, c, a, o, depth+1)
	}
}

// put follows the word a with another in place of its hole.
func (f *findings) put(r *reach, c *command, a *arg, word arg, depth int) {
	word.text = strings.Replace(a.text, hole, word.text, 1)
	word.wild = word.wild || a.wild
	word.known = word.known && !word.wild
	f.follow(r, c, &word, depth)
}

// printed follows the word a with what the commands of an origin print in place of its hole.
func (f *findings) printed(r *reach, c *command, a *arg, o origin, depth int) {
	var found reach
	for i := o.lo; i < o.hi; i++ {
		k := &f.cmds[i]
		if slices.Contains(passing, k.name) && !f.feeds(o, k) { // what it passes on comes from elsewhere
			f.follow(&found, c, &arg{text: hole, from: k.in.input}, depth)
		}
		if !f.prints(&found, c, k, depth) {
			found = reach{spots: []spot{{hidden: true}}}
			break
		}
	}
	for _, word := range found.words {
		f.put(r, c, a, word, depth)
	}
	for _, s := range found.spots {
		r.spots = append(r.spots, s.within(c, a)...)
	}
}

// feeds reports whether what the command k of an origin reads is of that origin, too.
func (f *findings) feeds(o origin, k *command) bool {
	if k.in.input < firstOrigin {
		return k.in.input == 0 // nothing
	}
	in := f.origins[k.in.input-firstOrigin]
	return in.hi > 0 && in.args == nil && in.lo >= o.lo && in.hi <= o.hi
}

// adrift reports whether a name counts from a directory that is not known.
func (c *command) adrift(a *arg) bool {
	return len(c.cwds) == 0 && a.text != "" && !path.IsAbs(a.text) && !strings.Contains(a.text, hole)
}

// within returns where the names are that a word makes of names in s.
func (s spot) within(c *command, a *arg) []spot {
	if bases := tail(a); bases != nil {
		s.bases, s.deep = bases, true
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

// tail returns the pattern of what a word with a hole ends in, or nil for any.
func tail(a *arg) []string {
	base := a.text[strings.LastIndexByte(a.text, '/')+1:]
	if base = strings.ReplaceAll(base, hole, "*"); strings.Trim(base, "*") == "" {
		return nil
	}
	return []string{base}
}

// passing are commands that print lines of their input as they are, and nothing else.
var passing = strings.Fields("head tail sort uniq tac cat tee shuf grep egrep fgrep rg xargs")

// quiet are commands that print nothing, and those that only run others.
var quiet = strings.Fields("cd test [ [[ true false : read mapfile readarray sleep wait time timeout nice command stdbuf")

// prints adds the names that a command k of the line prints, for c to read. It returns
// false if they may be any.
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
	for i := range words {
		a := &words[i]
		if k.name == "echo" && a.option() { // after -n, what comes next is joined to it
			return false
		}
		f.follow(r, c, a, depth)
	}
	return true
}

// apart reports whether each word that printf puts into a format ends there.
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

// add adds a spot in a directory, as the command c sees it.
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

// lists reports whether a search prints names of files, and no lines of them.
func lists(k *command) bool {
	return hasOption(k, 'l', "--files-with-matches") || hasOption(k, 'L', "--files-without-match") || k.name == "rg" && hasOption(k, 0, "--files")
}

// searched adds the files that a search may name.
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

// finds adds what find and fd find.
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
		for _, a := range k.args[1:] { // with -x all are words
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

// findBases returns the patterns of names one of which everything matches that an
// expression of find chooses, or nil.
func findBases(args []arg) []string {
	var bases []string
	named := false // the alternative that is looked at
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

// gitNames adds the names that git lists: they count from where it runs.
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
			// A star stands for slashes, too.
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
