package shell

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// The functions of this file find the secrets among the names that a word may expand to.

// among returns which secret is in the spots of a word, or "".
func (w *walker) among(c *command, op *arg) string {
	if own := ownPlace(op.text); own != op.text {
		there := *op
		if there.text = own; !strings.Contains(own, hole) {
			there.from = 0
		}
		op = &there
	}
	if op.text == hole && strings.Contains(op.raw, "{}") && strings.Contains(op.raw, ",") { // {}/{a,b} after xargs
		return "the braces of " + op.raw + " cannot be expanded"
	}
	r := w.reach(c, op)
	if name := r.elsewhere(c); name != "" && !(c.in.visits && op.from >= firstOrigin) {
		return "the current directory is unknown, and " + name + " may hold credentials in some"
	}
	if name := r.far(w.at); name != "" {
		return name + " may be that of a secret in some directory"
	}
	tree := c.recursive()
	for _, word := range r.words {
		word.wild = word.wild || strings.ContainsAny(word.text, "*?[") // $x expands the wildcards in x
		if tree && !word.wild {
			for _, dir := range c.paths(word) {
				r.spots = append(r.spots, spot{dir: dir, hidden: true})
			}
		}
		for _, glob := range c.globs(&word) {
			if why := pathrule.SecretName(glob); why != "" {
				return why
			}
			if why := pathrule.SecretGlob(glob); word.wild && why != "" {
				return why
			}
			if dir, base := path.Split(glob); word.wild && !strings.ContainsAny(dir, "*?[") {
				r.spots = append(r.spots, spot{dir: path.Clean(dir), bases: []string{base}, hidden: base[0] == '.'})
			}
		}
	}
	for _, s := range r.spots {
		secret := func(base string) bool {
			return pathrule.MayBeSecret(base) || s.hidden && pathrule.MayFindSecret(base)
		}
		if tree {
			s.plain, s.bases = c.chosen(), nil
		}
		if s.plain || s.bases != nil && !slices.ContainsFunc(s.bases, secret) {
			continue
		}
		dirs := []string{s.dir}
		if s.dir == "" {
			if dirs = c.cwds; len(dirs) == 0 && w.at.Cwd != "" {
				dirs = []string{w.at.Cwd}
			}
		}
		for _, dir := range dirs {
			if why := w.factResult(fact{dir: dir, tree: true, hidden: s.hidden, bases: s.bases}); why != "" {
				return why
			}
		}
	}
	return ""
}

// elsewhere returns which name, relative to an unknown current directory, may be that of a secret, or "".
func (r *reach) elsewhere(c *command) string {
	if len(c.cwds) > 0 {
		return ""
	}
	for _, word := range r.words {
		if !path.IsAbs(ownPlace(word.text)) && word.text != "" && pathrule.MayBeKept(word.text) {
			return word.text
		}
	}
	for _, s := range r.spots {
		switch {
		case s.dir != "":
		case s.bases == nil:
			return "a file"
		}
		for _, base := range s.bases {
			if s.dir == "" && pathrule.MayBeKept(base) {
				return base
			}
		}
	}
	return ""
}

// far returns which name in an unknown directory, or in some directory below the user's home, may be that of a
// secret, or "".
func (r *reach) far(at *pathrule.Place) string {
	for _, s := range r.spots {
		home := s.dir != "" && s.deep && at.Home != "" && pathrule.Below(at.Home, s.dir)
		if s.dir != "" && !home {
			continue
		}
		// What is in a directory of an unknown name may be any of its files.
		_, base, below := strings.Cut(s.end, "/")
		computed := home || s.up || below && strings.ContainsAny(base, "*?[")
		if s.bases == nil && computed {
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
