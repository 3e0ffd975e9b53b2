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

// A source identifies the origin of the unknown parts of a word (its holes, see hole). It is 0 if there are none,
// and, like anywhere, if their origin is unknown.
type source uint16

const (
	anywhere    source = iota + 1 // the names are unknown
	noFile                        // a number, a hash or a descriptor
	firstOrigin                   // the first index in the list of origins
)

// An origin is a list of words, or the output of commands.
type origin struct {
	args   []arg
	lo, hi int32 // the commands, from lo to before hi
	whole  bool  // names are passed on whole, not split into words
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

// mark records the source of a hole at the end of a word. A word keeps the source of its first hole. If that
// contains no names and another hole follows, the source is anywhere.
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
	words []arg // literal, or with wildcards
	spots []spot
}

// A spot is a directory that may contain files with unknown names.
type spot struct {
	dir     string   // absolute, may have wildcards; empty: any
	up      bool     // the names begin with ".."
	deep    bool     // names may also be in subdirectories
	through bool     // subdirectories may be reached through links
	regular bool     // no name is a link
	hidden  bool     // names may be hidden
	plain   bool     // these names cannot be names of secrets
	bases   []string // patterns, one of which the last segment of a name matches; nil matches any
	end     string   // if dir is empty: the end of the names, with stars for unknown parts
	words   bool     // the names are split into words, so any part of a name may be a word
	extra   bool     // only the parts after word splitting; another spot or word has the complete names
	start   string   // if dir is empty: the known directory with which the names begin, or ""
}

// maxReach is how many steps the origin of a name is traced back.
const maxReach = 8

// reach returns the names that a word of the command c may expand to.
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

// addWords adds a spot for the names that match the wildcards in a word and are then split into words.
func (r *reach) addWords(c *command, word *arg) {
	if !strings.ContainsAny(word.text, "*?[") {
		return
	}
	for _, glob := range c.globs(word) {
		dir, base := path.Split(glob)
		r.spots = append(r.spots, spot{dir: path.Clean(dir), bases: []string{base}, hidden: true, words: true, extra: true})
	}
}

// trace adds the names that a word may expand to, depth steps back from the command c.
func (f *findings) trace(r *reach, c *command, a *arg, depth int) {
	holes := strings.Count(a.text, hole)
	switch {
	case holes == 0 && a.from < firstOrigin:
		if c.inUnknownDir(a) {
			r.spots = append(r.spots, spot{bases: []string{path.Base(a.text)}, hidden: true})
			return
		}
		r.words = append(r.words, *a)
		return
	case a.from == noFile:
		return
	case a.from < firstOrigin || depth > maxReach:
		r.spots = append(r.spots, spot{bases: tail(a), hidden: true, end: endOf(a)}.startingLike(c, a)...)
		return
	}
	o := f.origins[a.from-firstOrigin]
	if o.hi == 0 && o.args == nil {
		r.spots = append(r.spots, spot{bases: tail(a), hidden: true, end: endOf(a)}.startingLike(c, a)...)
		return
	}
	before := len(r.spots)
	for i := range o.args {
		x := &o.args[i]
		f.put(r, c, a, *x, depth+1)
		if x.known && strings.ContainsAny(x.text, " \t\n") { // where it is used unquoted, it is split into words
			for field := range strings.FieldsSeq(x.text) {
				f.put(r, c, a, literal(field), depth+1)
			}
		}
	}
	if o.hi > 0 {
		f.printed(r, c, a, o, depth+1)
	}
	for i := before; o.whole && i < len(r.spots); i++ {
		r.spots[i].words = false
		r.spots[i].through = r.spots[i].through && a.raw != "{}" // find does not follow links
	}
}

// put adds the names of the word a with word in place of its hole.
func (f *findings) put(r *reach, c *command, a *arg, word arg, depth int) {
	word.text = strings.Replace(a.text, hole, word.text, 1)
	word.wild = word.wild || a.wild
	word.known = word.known && !word.wild
	f.trace(r, c, &word, depth)
}

// printed adds the names of the word a with the output of an origin's commands in place of its hole.
func (f *findings) printed(r *reach, c *command, a *arg, o origin, depth int) {
	var found reach
	for i := o.lo; i < o.hi; i++ {
		k := &f.cmds[i]
		if slices.Contains(lineFilters, k.name) && !f.readsOnlyFrom(o, k) { // k prints lines of other commands
			f.trace(&found, c, &arg{text: hole, from: k.in.input}, depth)
		}
		if !f.prints(&found, c, k, depth) {
			found.spots = append(found.spots, spot{hidden: true}) // k may print any name
		}
	}
	for _, word := range found.words {
		f.put(r, c, a, word, depth)
		r.addWords(c, &word)
	}
	for _, s := range found.spots {
		s.words = true
		r.spots = append(r.spots, s.within(c, a)...)
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

// inUnknownDir reports whether a name is relative to an unknown directory.
func (c *command) inUnknownDir(a *arg) bool {
	return len(c.cwds) == 0 && a.text != "" && !path.IsAbs(withoutProc(a.text)) && !strings.Contains(a.text, hole)
}

// within returns the spots of a word whose hole is a name in s.
func (s spot) within(c *command, a *arg) []spot {
	if bases := tail(a); bases != nil {
		s.bases, s.deep, s.through = bases, true, true
	}
	if a.text != hole {
		s.end = endOf(a)
	}
	before, after, _ := strings.Cut(a.text, hole)
	switch {
	case strings.Contains(after, ".."), s.up && strings.Trim(before, "./") != "":
		s.dir = ""
	case s.dir == "", strings.Contains(after, hole):
		s.start, s.dir = cmp.Or(s.dir, s.start), ""
		return s.startingLike(c, a)
	case strings.Trim(before, "./") == "" && !strings.Contains(before, ".."):
	default:
		var out []spot
		for _, dir := range c.paths(literal(before + "x")) {
			out = append(out, spot{dir: path.Dir(dir), deep: true, through: true, hidden: s.hidden, bases: s.bases, words: s.words})
		}
		return out
	}
	return []spot{s}
}

// startingLike returns a copy of s for each known directory with which the names of a word begin.
func (s spot) startingLike(c *command, a *arg) []spot {
	before, _, _ := strings.Cut(a.text, hole)
	if i := strings.IndexAny(before, "*?["); i >= 0 {
		before = before[:i]
	}
	if before == "" {
		return []spot{s}
	}
	var out []spot
	for _, dir := range c.paths(literal(before + "x")) {
		s.start = path.Dir(dir)
		out = append(out, s)
	}
	return out
}

// tail returns patterns for the last segment of a word with a hole; nil matches any.
func tail(a *arg) []string {
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
