package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// Names that are only known at run time have an origin: xargs and read get them from a pipe, $(…) from
// commands, a loop from its words. For the usual search commands the analysis knows below which directory these
// names are, and how they end.

// A source says where the unknown text of a word (its first hole, see hole) comes from: 0 if there is no hole, anywhere
// or noFile, or firstOrigin plus the index of the origin in the list of origins.
type source uint16

const (
	anywhere source = iota + 1 // unknown
	noFile                     // a number, a hash or a descriptor, and no name
	firstOrigin
)

// An origin is a list of words, or the output of commands. The zero origin is unknown text.
type origin struct {
	args   []arg
	lo, hi int32 // the indexes of the commands: from lo to before hi
	whole  bool  // names are not split into words
}

// maxOrigins is how many origins a line may have. The source of further ones is anywhere.
const maxOrigins = 1000

// origin adds an origin and returns its source.
func (w *walker) origin(o origin) source {
	if len(w.origins) >= maxOrigins {
		return anywhere
	}
	w.origins = append(w.origins, o)
	return firstOrigin + source(len(w.origins)-1)
}

// printedBy returns the source of the output of the commands from index first.
func (w *walker) printedBy(first int) source {
	return w.origin(origin{lo: int32(first), hi: int32(len(w.cmds))})
}

// setInput replaces the zero origin of the redirected input, which the commands that read it already have.
func (w *walker) setInput(from source) {
	if from >= firstOrigin && w.in.input >= firstOrigin {
		w.origins[w.in.input-firstOrigin] = w.origins[from-firstOrigin]
	}
}

// originOf returns the source of an assigned value or a here-string.
func (w *walker) originOf(a arg) source {
	if a.text == hole {
		return a.from
	}
	return w.origin(origin{args: []arg{a}})
}

// valuesOf returns the source of the values of a variable.
func (w *walker) valuesOf(b binding) source {
	switch {
	case b.numeric || b.identifiers:
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

// mark records the source of a further hole in the word. The word keeps the source of its first hole, unless that is
// noFile and the text of the further hole may be a name.
func (a *arg) mark(from source) {
	switch {
	case a.from == 0:
		a.from = max(from, anywhere)
	case a.from == noFile && from != noFile:
		a.from = anywhere
	}
}

// A reach is the set of names that a word may expand to.
type reach struct {
	words []arg // known names, perhaps with wildcards
	spots []spot
}

// A spot is a set of unknown names in a directory.
type spot struct {
	dir     string   // absolute, perhaps with wildcards; "" if unknown
	up      bool     // the names begin with ".."
	deep    bool     // names may also be in subdirectories
	through bool     // subdirectories may be reached through links
	regular bool     // no name is a link
	hidden  bool     // names may be hidden
	plain   bool     // no name is that of a secret
	bases   []string // patterns, one of which the last segment of a name matches; nil matches any
	end     string   // if dir is "": the end of the names, with stars for unknown parts
	words   bool     // the names are split into words, so any part of a name may be a word
	extra   bool     // if words: only these parts count, as the whole names are in the reach otherwise
	start   string   // if dir is "": the known directory with which the names begin, or ""
}

// maxReach is how many steps the origin of a name is traced back.
const maxReach = 8

// reach returns the names that the word a of the command c may expand to.
func (f *findings) reach(c *command, a *arg) reach {
	var r reach
	f.trace(&r, c, a, 0)
	if !a.field && a.from >= firstOrigin {
		for i := range r.words {
			r.addWords(c, &r.words[i])
		}
	}
	return r
}

// addWords adds the parts of names that match the wildcards in a word, and are then split into words.
func (r *reach) addWords(c *command, word *arg) {
	if !strings.ContainsAny(word.text, "*?[") {
		return
	}
	for _, glob := range c.globs(word) {
		dir, base := path.Split(glob)
		r.spots = append(r.spots, spot{dir: path.Clean(dir), bases: []string{base}, hidden: true, words: true, extra: true})
	}
}

// trace adds the names that the word a of the command c may expand to. depth is how many steps the word was traced back.
func (f *findings) trace(r *reach, c *command, a *arg, depth int) {
	switch {
	case !strings.Contains(a.text, hole) && a.from < firstOrigin:
		if c.inUnknownDir(a) {
			r.spots = append(r.spots, spot{bases: []string{path.Base(a.text)}, hidden: true})
			return
		}
		r.words = append(r.words, *a)
		return
	case a.from == noFile:
		return
	}
	var o origin
	if a.from >= firstOrigin && depth <= maxReach {
		o = f.origins[a.from-firstOrigin]
	}
	if o.hi == 0 && o.args == nil {
		r.spots = append(r.spots, spot{bases: lastSegment(a), hidden: true, end: endOf(a)}.startingLike(c, a)...)
		return
	}
	before := len(r.spots)
	for i := range o.args {
		word := &o.args[i]
		f.traceWith(r, c, a, *word, depth+1)
		if word.known && strings.ContainsAny(word.text, " \t\n") { // without quotes bash splits it
			for field := range strings.FieldsSeq(word.text) {
				f.traceWith(r, c, a, literal(field), depth+1)
				if !a.field && a.text != hole { // with x="a b", src/$x is src/a and b
					f.traceWith(r, c, &arg{text: hole}, literal(field), depth+1)
				}
			}
		}
	}
	if o.hi > 0 {
		f.tracePrinted(r, c, a, o, depth+1)
	}
	for i := before; o.whole && i < len(r.spots); i++ {
		r.spots[i].words = false
		r.spots[i].through = r.spots[i].through && a.raw != "{}" // find does not follow links
	}
}

// traceWith traces the word a with word in place of its first hole.
func (f *findings) traceWith(r *reach, c *command, a *arg, word arg, depth int) {
	word.text = strings.Replace(a.text, hole, word.text, 1)
	word.wild = word.wild || a.wild
	word.known = word.known && !word.wild
	f.trace(r, c, &word, depth)
}

// tracePrinted traces the word a with the output of the origin's commands in place of its first hole.
func (f *findings) tracePrinted(r *reach, c *command, a *arg, o origin, depth int) {
	var found reach
	for i := o.lo; i < o.hi; i++ {
		k := &f.cmds[i]
		if slices.Contains(lineFilters, k.name) && !f.readsOnlyFrom(o, k) { // k prints lines of other commands
			f.trace(&found, c, &arg{text: hole, from: k.in.input}, depth)
		}
		if !f.addPrinted(&found, c, k, depth) {
			found.spots = append(found.spots, spot{hidden: true}) // k may print any name
		}
	}
	for _, word := range found.words {
		f.traceWith(r, c, a, word, depth)
		r.addWords(c, &word)
	}
	for _, s := range found.spots {
		s.words = true
		r.spots = append(r.spots, s.around(c, a)...)
	}
}

// readsOnlyFrom reports whether the command k has no input, or only the output of commands of the origin o.
func (f *findings) readsOnlyFrom(o origin, k *command) bool {
	if k.in.input < firstOrigin {
		return k.in.input == 0 // it has no input
	}
	in := f.origins[k.in.input-firstOrigin]
	return in.hi > 0 && in.args == nil && in.lo >= o.lo && in.hi <= o.hi
}

// inUnknownDir reports whether a word without a hole is a name relative to an unknown directory.
func (c *command) inUnknownDir(a *arg) bool {
	return len(c.cwds) == 0 && a.text != "" && !path.IsAbs(withoutProc(a.text)) && !strings.Contains(a.text, hole)
}

// around returns the spots with the names of the word a if the names in s are in place of its first hole.
func (s spot) around(c *command, a *arg) []spot {
	if bases := lastSegment(a); bases != nil {
		s.bases, s.deep, s.through = bases, true, true
	}
	if a.text != hole {
		s.end = endOf(a)
	}
	before, after, _ := strings.Cut(a.text, hole)
	switch {
	case strings.Contains(after, ".."), s.up && strings.Trim(before, "./") != "":
		s.dir = "" // ".." may leave any directory
	case s.dir == "", strings.Contains(after, hole):
		s.start, s.dir = cmp.Or(s.dir, s.start), ""
		return s.startingLike(c, a)
	case strings.Trim(before, "./") != "" || strings.Contains(before, ".."):
		var out []spot
		for _, name := range c.paths(literal(before + "x")) { // x stands for the unknown text
			out = append(out, spot{dir: path.Dir(name), deep: true, through: true, hidden: s.hidden, bases: s.bases, words: s.words})
		}
		return out
	}
	return []spot{s}
}

// startingLike returns a copy of s for each known directory with which the names of the word a begin.
func (s spot) startingLike(c *command, a *arg) []spot {
	before, _, _ := strings.Cut(a.text, hole)
	if i := strings.IndexAny(before, "*?["); i >= 0 {
		before = before[:i]
	}
	if before == "" {
		return []spot{s}
	}
	var out []spot
	for _, name := range c.paths(literal(before + "x")) {
		s.start = path.Dir(name)
		out = append(out, s)
	}
	return out
}

// lastSegment returns patterns for the last segment of a word with a hole; nil matches any.
func lastSegment(a *arg) []string {
	base := a.text[strings.LastIndexByte(a.text, '/')+1:]
	if base = strings.ReplaceAll(base, hole, "*"); strings.Trim(base, "*") == "" {
		return nil
	}
	return []string{base}
}

// endOf returns the text of a word from its first hole, or from the segment with the first wildcard, with stars for
// unknown parts.
func endOf(a *arg) string {
	i := strings.Index(a.text, hole)
	if i < 0 {
		return ""
	}
	if first := strings.IndexAny(a.text[:i], "*?["); first >= 0 {
		i = strings.LastIndexByte(a.text[:first], '/') + 1
	}
	return strings.ReplaceAll(a.text[i:], hole, "*")
}
