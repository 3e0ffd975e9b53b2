package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// The functions of this file find the secrets among the names that a word may expand to.

// secretAmong returns which secret a word may name, or "".
func (w *walker) secretAmong(c *command, op *arg) string {
	if cut := withoutProc(op.text); cut != op.text {
		there := *op
		switch there.text = cut; strings.Count(cut, hole) {
		case 0:
			there.from = 0
		case strings.Count(op.text, hole):
		default: // some holes were cut, perhaps the first one, to which from belongs
			there.from = anywhere
		}
		op = &there
	}
	if op.text == hole && strings.Contains(op.raw, "{}") && strings.Contains(op.raw, ",") { // {}/{a,b} after xargs
		return "the braces of " + op.raw + " cannot be expanded"
	}
	r := w.reach(c, op)
	visited := c.in.visits && op.from >= firstOrigin // find or fd finds the name
	if name := r.inUnknownDir(c); name != "" && !visited {
		return "the current directory is unknown, and " + name + " may hold credentials in some"
	}
	if name := r.secretElsewhere(&w.at, visited); name != "" {
		return name + " may be that of a secret in some directory"
	}
	tree := c.recursive()
	for _, word := range r.words {
		word.wild = word.wild || strings.ContainsAny(word.text, "*?[") // $x expands the wildcards in x
		if tree {
			for _, dir := range c.globs(&word) {
				r.spots = append(r.spots, spot{dir: dir, hidden: true})
			}
		}
		for _, glob := range c.globs(&word) {
			why := pathrule.SecretName(glob)
			switch dir, base := path.Split(glob); {
			case why != "":
			case word.wild:
				why = pathrule.SecretGlob(glob)
				r.spots = append(r.spots, spot{dir: path.Clean(dir), bases: []string{base}, hidden: base[0] == '.'})
			default:
				why = w.factResult(fact{dir: path.Clean(dir), tree: true, hidden: true, bases: []string{base}})
			}
			if why != "" {
				return why
			}
		}
	}
	for _, s := range r.spots {
		secret := func(base string) bool {
			return pathrule.MayBeSecret(base) || s.hidden && pathrule.MayFindSecret(base)
		}
		listed := fact{dir: s.dir, hidden: s.hidden, bases: s.bases, deep: s.deep, through: s.through, regular: s.regular, trees: tree, listed: true}
		for _, listed.cwd = range append([]string{""}, c.cwds...) {
			if s.dir == "" || listed.cwd != "" && !s.words {
				continue
			}
			if why := w.factResult(listed); why != "" {
				return why
			}
		}
		if s.extra {
			continue
		}
		if tree {
			s.plain, s.bases = c.selectsHarmless(), nil
			if why := pathrule.SecretGlob(path.Join("/x", s.end, "*")); s.dir == "" && !s.plain && why != "" {
				return why
			}
		}
		if s.plain {
			continue
		}
		named := s.bases == nil || slices.ContainsFunc(s.bases, secret)
		dirs := []string{s.dir}
		if s.dir == "" {
			if dirs = c.cwds; len(dirs) == 0 && w.at.Cwd != "" {
				dirs = []string{w.at.Cwd}
			}
		}
		if s.start != "" && (tree || s.start != "/") {
			dirs = append(slices.Clone(dirs), s.start)
		}
		for _, dir := range dirs {
			if !named && !pathrule.SecretByPlace(dir) && !slices.ContainsFunc(settingsFiles, func(name string) bool { return pathrule.NameMatches(name, s.bases) }) {
				continue
			}
			if why := w.factResult(fact{dir: dir, tree: true, hidden: s.hidden, bases: s.bases}); why != "" {
				return why
			}
		}
	}
	return ""
}

// inUnknownDir returns a name, relative to an unknown current directory, that may be a secret's, or "".
func (r *reach) inUnknownDir(c *command) string {
	if len(c.cwds) > 0 {
		return ""
	}
	for _, word := range r.words {
		if !path.IsAbs(withoutProc(word.text)) && word.text != "" && pathrule.MayBeKept(word.text) {
			return word.text
		}
	}
	for _, s := range r.spots {
		for _, base := range s.bases { // if there are none, see secretElsewhere
			if s.dir == "" && pathrule.MayBeKept(base) {
				return base
			}
		}
	}
	return ""
}

// secretElsewhere returns a name in an unknown directory, or in some directory below the user's home, that may be a secret's,
// or "". A name of which nothing is known may be, unless visited says that find or fd finds it.
func (r *reach) secretElsewhere(at *pathrule.Place, visited bool) string {
	for _, s := range r.spots {
		fixed, _ := pathrule.Fixed(s.dir)
		home := s.dir != "" && s.deep && at.Home != "" && pathrule.Below(at.Home, fixed)
		if s.dir != "" && !home {
			continue
		}
		// In a directory with an unknown name any file may be meant.
		dir, base := path.Split(s.end)
		below := dir != ""
		computed := home || s.up || below && strings.ContainsAny(path.Base(dir)+base, "*?[") && !visited
		if s.bases == nil && (computed || s.dir == "" && !visited) {
			return cmp.Or(s.end, "a file")
		}
		for _, base := range s.bases {
			name := base
			if below {
				name = s.end
			}
			if pathrule.MayEndSecret(name) || computed && pathrule.MayBeKept(base) {
				return name
			}
		}
	}
	return ""
}
