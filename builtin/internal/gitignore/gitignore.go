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
	name, suffix string // the base name, or how the base name ends; both are empty if prefix and glob decide
	prefix, glob string // the plain text at the beginning, and a doublestar pattern for what follows
	anchored     bool   // prefix and glob match the path relative to the ignore file, not the base name
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
	// A "**" as the last segment matches everything in the directory before it, but not the directory.
	if dir := strings.TrimRight(line, "*"); len(line)-len(dir) >= 2 && (strings.HasSuffix(dir, "/") || dir == "" && r.anchored) {
		line = dir + "**/*"
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
			class, rest, ok := parseClass(line[i:])
			if !ok {
				return "", false
			}
			b.WriteString(class)
			i = len(line) - len(rest) - 1
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// trimSpaces removes spaces at the end that are not escaped.
func trimSpaces(s string) string {
	for strings.HasSuffix(s, " ") {
		backslashes := len(s) - 1 - len(strings.TrimRight(s[:len(s)-1], `\`))
		if backslashes%2 == 1 { // an even number only escapes backslashes
			break
		}
		s = s[:len(s)-1]
	}
	return s
}

// Match returns what the rules decide about path, which is relative to the directory of the ignore file, and whether
// any rule matches. A nil r matches nothing.
func (r *Rules) Match(path string, isDir bool) (ignored, decided bool) {
	return r.match(path, path[strings.LastIndexByte(path, '/')+1:], isDir)
}

// match is Match for a path with the last segment base. The last matching rule decides.
func (r *Rules) match(path, base string, isDir bool) (ignored, decided bool) {
	if r == nil {
		return false, false
	}
	for i := len(r.list) - 1; i >= 0; i-- {
		if rule := &r.list[i]; (isDir || !rule.dirOnly) && rule.matches(path, base) {
			return !rule.include, true
		}
	}
	return false, false
}

func (r *rule) matches(path, base string) bool {
	switch {
	case r.name != "":
		return base == r.name
	case r.suffix != "":
		return strings.HasSuffix(base, r.suffix)
	}
	if !r.anchored {
		path = base
	}
	rest, ok := strings.CutPrefix(path, r.prefix)
	if rest == "" {
		return ok && matchesEmpty(r.glob)
	}
	return ok && doublestar.MatchUnvalidated(r.glob, rest)
}

// matchesEmpty reports whether git lets glob match the empty string: "a**/*" matches a.
func matchesEmpty(glob string) bool {
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

// Top returns the directory at path. Later rules override earlier rules. All paths for the returned Dir and its
// subdirectories must be relative to the same directory.
func Top(path string, rules ...*Rules) *Dir {
	var d *Dir
	for _, r := range rules {
		d = d.Sub(path, r)
	}
	return d
}

// Sub returns the directory at path, which is d or below d. The rules of its ignore file, which may be nil, override
// those of d. A nil d ignores nothing.
func (d *Dir) Sub(path string, rules *Rules) *Dir {
	if rules == nil || len(rules.list) == 0 {
		return d
	}
	if path != "" {
		path += "/"
	}
	return &Dir{path: path, above: d, rules: rules}
}

// Ignored reports whether to skip the entry at path, which is below d. It does not check the directories between d and
// the entry.
func (d *Dir) Ignored(path string, isDir bool) bool {
	ignored, _ := d.Decide(path, isDir)
	return ignored
}

// Decide is like [Dir.Ignored] and also reports whether any rule matches.
func (d *Dir) Decide(path string, isDir bool) (ignored, decided bool) {
	base := path[strings.LastIndexByte(path, '/')+1:]
	for ; d != nil; d = d.above {
		if ignored, decided = d.rules.match(path[len(d.path):], base, isDir); decided {
			return ignored, true
		}
	}
	return false, false
}
