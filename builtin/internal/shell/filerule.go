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

// covers reports whether the rule covers a path. A path that cannot be resolved counts as covered.
func (m *fileRule) covers(abs string) bool {
	ok, err := m.at.MatchAny(m.pattern, abs)
	return ok || err != nil
}

// maxTree is the maximum number of names below a directory that are compared with a rule.
const maxTree = 2000

// coversBelow reports whether the rule covers a file in the tree of an operand.
func (m *fileRule) coversBelow(c *command, a *arg) bool {
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
		found, _ := m.search(spot{dir: root, deep: true, bases: c.includeGlobs()})
		return found
	})
}

// search reports whether the rule covers a file in a spot (found), or may cover one (may). If a directory has more
// than maxTree names, it checks only some of them, but all names below the fixed part of the rule's glob.
func (m *fileRule) search(s spot) (found, may bool) {
	for _, g := range m.globs {
		fixed, whole := pathrule.Fixed(g)
		// The rule's own directory is searched if it is below the spot, or if the spot may be anywhere.
		own := fixed != "/" && fixed != "" && (s.dir == "" || s.deep && fixed != s.dir && (pathrule.Below(fixed, s.dir) || pathrule.Below(fixed, m.at.Real(s.dir))))
		switch {
		case !own:
			may = may || s.dir == "" && endsAlike(path.Base(g), s.bases)
		case whole: // the rule is for one file
			found = m.at.Exists(fixed) && pathrule.NameMatches(path.Base(g), s.bases)
		default:
			var tooMany bool
			found, tooMany = m.searchDir(fixed, true, s.bases)
			may = may || tooMany
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
	// Even a rule for other directories may cover the target of a link directly in this one.
	found, tooMany := m.searchDir(s.dir, s.deep && reaches, s.bases)
	if tooMany && !found {
		may = may || slices.ContainsFunc(m.globs, func(g string) bool {
			fixed, _ := pathrule.Fixed(g)
			return pathrule.Below(s.dir, fixed) && endsAlike(path.Base(g), s.bases)
		})
	}
	return found, may || found
}

// searchDir reports whether the rule covers a name in dir or, if deep, below it, that one of the patterns bases matches.
// It stops after maxTree names (tooMany).
func (m *fileRule) searchDir(dir string, deep bool, bases []string) (found, tooMany bool) {
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
			_, err := readlink(p.real)
			isLink := err == nil
			if isLink {
				p.real = m.at.Real(p.real)
			}
			if pathrule.NameMatches(base, bases) && (pathrule.CoveredBy(m.globs, p.name) || pathrule.CoveredBy(m.globs, p.real)) {
				return true, true
			}
			// A link to a directory above would never end, and a target below is searched under its own name.
			if deep && !(isLink && (pathrule.Below(p.real, d.real) || pathrule.Below(d.real, p.real))) {
				queue = append(queue, p)
			}
		}
	}
	return false, false
}

// endsAlike reports whether a name may match both pattern and one of patterns, by their beginnings and ends without
// wildcards.
func endsAlike(pattern string, patterns []string) bool {
	ends := func(p string) (head, end string) {
		const special = `*?[]{}\`
		p = strings.ToLower(p)
		head = p
		if i := strings.IndexAny(p, special); i >= 0 {
			head = p[:i]
		}
		return head, p[strings.LastIndexAny(p, special)+1:]
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
