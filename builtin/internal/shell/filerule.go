package shell

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
)

// A fileRule is the pattern of a deny or ask rule, with the place in which it is resolved.
type fileRule struct {
	at      pathrule.Place
	pattern string
	globs   []string // absolute
}

func newFileRule(at pathrule.Place, pattern string) (*fileRule, error) {
	globs, err := at.Globs(pattern)
	return &fileRule{at, pattern, globs}, err
}

func (m *fileRule) covers(abs string) bool {
	ok, err := m.at.MatchAny(m.pattern, abs)
	return ok || err != nil
}

// maxTree is the maximum number of names below a directory that are compared with a rule.
const maxTree = 2000

// below reports whether the rule covers a file in the tree of an operand.
func (m *fileRule) below(c *command, a *arg) bool {
	roots := c.paths(*a)
	if a.wild {
		roots = nil
		for _, glob := range c.globs(a) {
			names, all := m.at.Glob(glob)
			if !all {
				return true // a name beyond the limit may be covered
			}
			roots = append(roots, names...)
		}
	}
	return slices.ContainsFunc(roots, func(root string) bool {
		found, _ := m.look(spot{dir: root, deep: true, bases: c.includeGlobs()})
		return found
	})
}

// look reports whether the rule covers a file in a spot (found), or may cover one (may). If a directory has more
// than maxTree names, it checks only some of them, but all names below the fixed part of the rule's glob.
func (m *fileRule) look(s spot) (found, may bool) {
	for _, g := range m.globs {
		fixed, whole := pathrule.Fixed(g)
		switch {
		case fixed == "/" || fixed == "" || !s.deep && s.dir != "" || s.dir != "" && (fixed == s.dir || !pathrule.Below(fixed, s.dir) && !pathrule.Below(fixed, m.at.Real(s.dir))):
			may = may || s.dir == "" && endsAlike(path.Base(g), s.bases)
		case whole:
			found = m.at.Exists(fixed) && pathrule.NameMatches(path.Base(g), s.bases)
		default:
			some, more := m.walk(fixed, true, s.bases)
			found, may = some, may || more
		}
		if found {
			return true, true
		}
	}
	if s.dir == "" {
		return false, may
	}
	reaches, err := m.at.MatchTree(m.pattern, s.dir)
	if err != nil {
		return true, true
	}
	// If the rule is for other directories, a link may lead there: also check the links in this one.
	found, more := m.walk(s.dir, s.deep && reaches, s.bases)
	if more && !found {
		may = may || slices.ContainsFunc(m.globs, func(g string) bool {
			fixed, _ := pathrule.Fixed(g)
			return pathrule.Below(s.dir, fixed) && endsAlike(path.Base(g), s.bases)
		})
	}
	return found, may || found
}

// walk checks the names in dir and, if deep, also those below it.
func (m *fileRule) walk(dir string, deep bool, bases []string) (found, more bool) {
	readlink := m.at.Readlink
	if readlink == nil {
		readlink = os.Readlink
	}
	type place struct{ name, real string }
	queue, seen := []place{{dir, m.at.Real(dir)}}, 0
	for len(queue) > 0 {
		d := queue[0]
		queue = queue[1:]
		names, err := m.at.Names(d.real)
		if err != nil && d.name == dir && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			return true, true // the content is unknown
		}
		for _, base := range names {
			if seen++; seen > maxTree {
				return false, true
			}
			p := place{path.Join(d.name, base), path.Join(d.real, base)}
			if _, err := readlink(p.real); err == nil {
				if p.real = m.at.Real(p.real); pathrule.NameMatches(base, bases) && pathrule.CoveredBy(m.globs, p.real) {
					return true, true
				}
				if pathrule.Below(p.real, d.real) || pathrule.Below(d.real, p.real) {
					continue // the target is checked under its own name
				}
			}
			if pathrule.NameMatches(base, bases) && (pathrule.CoveredBy(m.globs, p.name) || pathrule.CoveredBy(m.globs, p.real)) {
				return true, true
			}
			if deep {
				queue = append(queue, p)
			}
		}
	}
	return false, false
}

// endsAlike reports whether a name may match both pattern and one of patterns, by their beginnings and ends without
// wildcards.
func endsAlike(pattern string, patterns []string) bool {
	const special = `*?[]{}\`
	ends := func(p string) (head, end string) {
		head, end = strings.ToLower(p), strings.ToLower(p)
		if i := strings.IndexAny(head, special); i >= 0 {
			head = head[:i]
		}
		return head, end[strings.LastIndexAny(end, special)+1:]
	}
	if patterns == nil || strings.ContainsAny(pattern, "{}") {
		return true
	}
	head, end := ends(pattern)
	return slices.ContainsFunc(patterns, func(p string) bool {
		h, e := ends(p)
		return (strings.HasPrefix(h, head) || strings.HasPrefix(head, h)) && (strings.HasSuffix(e, end) || strings.HasSuffix(end, e))
	})
}
