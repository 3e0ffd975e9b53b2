package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// The functions of this file find the secrets that a computed word may name: one whose text is known only at run time.

// secretByWord returns which secret a word of the command may name, or "".
func (w *walker) secretByWord(c *command, a *arg) string {
	if text := withoutProc(a.text); text != a.text {
		short := *a
		short.text = text
		if n := strings.Count(text, hole); n == 0 {
			short.from = 0
		} else if n < strings.Count(a.text, hole) { // from is the source of the first hole, which may be gone
			short.from = anywhere
		}
		a = &short
	}
	if a.text == hole && strings.Contains(a.raw, "{}") && strings.Contains(a.raw, ",") { // {}/{a,b} after xargs
		return "the braces of " + a.raw + " cannot be expanded"
	}
	r := w.reach(c, a)
	visited := c.in.visits && a.from >= firstOrigin // find or fd finds the name
	if name := r.nameInUnknownCwd(c); name != "" && !visited {
		return "the current directory is unknown, and " + name + " may hold credentials in some"
	}
	if name := r.nameInUnknownDir(&w.at, visited); name != "" {
		return name + " may be that of a secret in some directory"
	}
	tree := c.recursive()
	for _, word := range r.words {
		wild := word.wild || strings.ContainsAny(word.text, "*?[") // $x expands the wildcards in x
		for _, glob := range c.globs(&word) {
			if tree {
				r.spots = append(r.spots, spot{dir: glob, hidden: true})
			}
			why := pathrule.SecretName(glob)
			dir, base := path.Split(glob)
			if why == "" && wild {
				why = pathrule.SecretGlob(glob)
				r.spots = append(r.spots, spot{dir: path.Clean(dir), bases: []string{base}, hidden: base[0] == '.'})
			} else if why == "" {
				why = cmp.Or(w.answer(fact{question: secretBelow, dir: path.Clean(dir), hidden: true, bases: []string{base}}),
					w.answer(fact{question: secretLinked, dir: path.Clean(dir), hidden: true, bases: []string{base}}))
			}
			if why != "" {
				return why
			}
		}
	}
	for _, s := range r.spots {
		if why := w.secretInSpot(c, s, tree); why != "" {
			return why
		}
	}
	return ""
}

// secretInSpot returns which secret a name in s may be, or "". With tree the command reads everything below a name.
func (w *walker) secretInSpot(c *command, s spot, tree bool) string {
	if s.dir != "" {
		cwds := []string{""}
		if s.words {
			cwds = append(cwds, c.cwds...)
		}
		for _, cwd := range cwds {
			links := linkSearch{cwd: cwd, deep: s.deep, through: s.through, regular: s.regular, trees: tree}
			if why := w.answer(fact{question: secretLinked, dir: s.dir, hidden: s.hidden, bases: s.bases, links: links}); why != "" {
				return why
			}
		}
	}
	if s.extra {
		return ""
	}
	if tree {
		s.plain, s.bases = c.selectsHarmless(), nil
		if why := pathrule.SecretGlob(path.Join("/x", s.end, "*")); s.dir == "" && !s.plain && why != "" { // below any directory x
			return why
		}
	}
	if s.plain {
		return ""
	}
	dirs := []string{s.dir}
	if s.dir == "" {
		if dirs = c.cwds; len(dirs) == 0 && w.at.Cwd != "" {
			dirs = []string{w.at.Cwd}
		}
	}
	if s.start != "" && (tree || s.start != "/") { // "/" says nothing about the directory of a single file
		dirs = append(slices.Clone(dirs), s.start)
	}
	mayMatch := s.bases == nil || slices.ContainsFunc(s.bases, func(base string) bool {
		return pathrule.MayBeSecret(base) || s.hidden && pathrule.MayFindSecret(base)
	}) || slices.ContainsFunc(settingsFiles, func(name string) bool { return pathrule.NameMatches(name, s.bases) })
	for _, dir := range dirs {
		if !mayMatch && !pathrule.SecretByPlace(dir) {
			continue
		}
		if why := w.answer(fact{question: secretBelow, dir: dir, hidden: s.hidden, bases: s.bases}); why != "" {
			return why
		}
	}
	return ""
}

// nameInUnknownCwd returns a name, relative to an unknown current directory, that may be a secret's, or "".
func (r *reach) nameInUnknownCwd(c *command) string {
	if len(c.cwds) > 0 {
		return ""
	}
	for _, word := range r.words {
		if !path.IsAbs(withoutProc(word.text)) && word.text != "" && pathrule.MayBeKept(word.text) {
			return word.text
		}
	}
	for _, s := range r.spots {
		for _, base := range s.bases { // if there are none, see nameInUnknownDir
			if s.dir == "" && pathrule.MayBeKept(base) {
				return base
			}
		}
	}
	return ""
}

// nameInUnknownDir returns a name that may be a secret's, in an unknown directory or in one of the directories below the
// user's home, or "". If find or fd finds the names (visited), a name of which nothing is known does not count.
func (r *reach) nameInUnknownDir(at *pathrule.Place, visited bool) string {
	for _, s := range r.spots {
		fixed, _ := pathrule.Fixed(s.dir)
		home := s.dir != "" && s.deep && at.Home != "" && pathrule.Below(at.Home, fixed)
		if s.dir != "" && !home {
			continue
		}
		dir, base := path.Split(s.end)
		anyDir := home || s.up || dir != "" && strings.ContainsAny(path.Base(dir)+base, "*?[") && !visited // the directory may be one for secrets, such as .docker
		if s.bases == nil && (anyDir || !visited) {
			return cmp.Or(s.end, "a file")
		}
		for _, base := range s.bases {
			name := base
			if dir != "" {
				name = s.end
			}
			if pathrule.MayEndSecret(name) || anyDir && pathrule.MayBeKept(base) {
				return name
			}
		}
	}
	return ""
}
