// Package gitignore decides which files of a tree to skip, by the rules of https://git-scm.com/docs/gitignore.
//
//	top := gitignore.Top("", gitignore.Parse(data))
//	top.Ignored("build", true)            // the directory build
//	src := top.Sub("src", nil)            // no ignore file in src
//	src.Ignored("src/main.o", false)
//
// A walk checks each entry before it enters it: everything below an ignored directory is ignored, even if rules
// inside it say otherwise. The user's global excludes are not read, so that searches do not depend on them.
// Names are UTF-8, and "?" matches a character, where git counts bytes.
package gitignore

import (
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Rules are the patterns of one ignore file. They are immutable.
type Rules struct{ list []rule }

// A rule is one pattern, in the form that is cheapest to match.
type rule struct {
	name, suffix string // the base name, or the end of it; if both are empty:
	prefix, glob string // the beginning of the path, and a doublestar pattern for the rest
	anchored     bool   // matches the path relative to the directory of the rules, not the base name
	include      bool   // the pattern began with "!": a match is not ignored
	dirOnly      bool
}

// Parse reads an ignore file. A line that is invalid in git matches nothing.
func Parse(data []byte) *Rules {
	r := &Rules{}
	for line := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		if rule, ok := parseRule(line); ok {
			r.list = append(r.list, rule)
		}
	}
	return r
}

func parseRule(line string) (r rule, ok bool) {
	line = trimSpaces(strings.TrimRight(line, "\r\n"))
	if line == "" || line[0] == '#' {
		return rule{}, false
	}
	if line[0] == '!' {
		r.include = true
		line = line[1:]
	}
	if rest, found := strings.CutSuffix(line, "/"); found && !strings.HasSuffix(rest, "\\") {
		r.dirOnly = true
		line = rest
	}
	if line == "" {
		return rule{}, false
	}
	r.anchored = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	switch {
	case !r.anchored && !strings.ContainsAny(line, `*?[\`):
		r.name = line
		return r, true
	case !r.anchored && line[0] == '*' && len(line) > 1 && !strings.ContainsAny(line[1:], `*?[\`):
		r.suffix = line[1:]
		return r, true
	}
	if dir := strings.TrimRight(line, "*"); len(line)-len(dir) >= 2 && (strings.HasSuffix(dir, "/") || dir == "" && r.anchored) {
		line = dir + "**/*" // everything in dir, but not dir itself
	}
	if r.anchored {
		// As in git, plain text before the first wildcard is matched separately, so the "**" of "a**/b" is at the
		// beginning of its pattern and matches directories.
		if i := strings.IndexAny(line, `*?[\`); i >= 0 {
			r.prefix, line = line[:i], line[i:]
		} else {
			r.prefix, line = line, ""
		}
	}
	r.glob, ok = toDoublestar(line)
	return r, ok && doublestar.ValidatePattern(r.glob)
}

// toDoublestar converts a pattern of git to one of doublestar, where braces are special and classes differ. ok
// is false if the pattern matches nothing in git.
func toDoublestar(line string) (glob string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line):
			b.WriteByte(c)
			i++
			b.WriteByte(line[i])
		case strings.HasPrefix(line[i:], "***"): // skip: git treats three as two
		case c == '{' || c == '}':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '[':
			set, rest, ok := class(line[i:])
			if !ok {
				return "", false
			}
			b.WriteString(set)
			i = len(line) - len(rest) - 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// trimSpaces removes spaces at the end unless they are escaped.
func trimSpaces(s string) string {
	for strings.HasSuffix(s, " ") {
		escapes := len(s) - 1 - len(strings.TrimRight(s[:len(s)-1], `\`))
		if escapes%2 == 1 {
			break
		}
		s = s[:len(s)-1]
	}
	return s
}

// Match returns what the rules decide about path, which is relative to their directory, and whether any rule
// matches. A nil r matches nothing.
func (r *Rules) Match(path string, dir bool) (ignored, decided bool) {
	return r.match(path, path[strings.LastIndexByte(path, '/')+1:], dir)
}

// match is Match with the last segment of path as base. The last matching rule decides.
func (r *Rules) match(path, base string, dir bool) (ignored, decided bool) {
	if r == nil {
		return false, false
	}
	for i := len(r.list) - 1; i >= 0; i-- {
		if p := &r.list[i]; (dir || !p.dirOnly) && p.matches(path, base) {
			return !p.include, true
		}
	}
	return false, false
}

func (p *rule) matches(path, base string) bool {
	switch {
	case p.name != "":
		return base == p.name
	case p.suffix != "":
		return strings.HasSuffix(base, p.suffix)
	}
	if !p.anchored {
		path = base
	}
	rest, ok := strings.CutPrefix(path, p.prefix)
	if rest == "" {
		return ok && matchesNothing(p.glob)
	}
	return ok && doublestar.MatchUnvalidated(p.glob, rest)
}

// matchesNothing reports whether glob matches the empty string, as in git: "a**/*" matches a.
func matchesNothing(glob string) bool {
	for strings.HasPrefix(glob, "**/") {
		glob = glob[len("**/"):]
	}
	return strings.Trim(glob, "*") == ""
}

// A Dir is a directory of a walk with all rules that apply in it, including those of the
// directories above. It is immutable.
type Dir struct {
	path  string // ends with a slash, unless it is ""
	above *Dir
	rules *Rules
}

// Top returns the directory at path, whose rules are given in order of precedence, the
// weakest first. All paths must be relative to the same directory.
func Top(path string, rules ...*Rules) *Dir {
	var d *Dir
	for _, r := range rules {
		d = d.Sub(path, r)
	}
	return d
}

// Sub returns a directory below d, or adds an ignore file to d itself. A nil d ignores nothing.
func (d *Dir) Sub(path string, rules *Rules) *Dir {
	if rules == nil || len(rules.list) == 0 {
		return d
	}
	if path != "" {
		path += "/"
	}
	return &Dir{path: path, above: d, rules: rules}
}

// Ignored reports whether to skip the entry at path, in d or deeper. It does not check the
// directories between d and the entry.
func (d *Dir) Ignored(path string, dir bool) bool {
	ignored, _ := d.Decide(path, dir)
	return ignored
}

// Decide is like [Dir.Ignored] and also reports whether any rule matches.
func (d *Dir) Decide(path string, dir bool) (ignored, decided bool) {
	base := path[strings.LastIndexByte(path, '/')+1:]
	for ; d != nil; d = d.above {
		if ignored, decided = d.rules.match(path[len(d.path):], base, dir); decided {
			return ignored, true
		}
	}
	return false, false
}
