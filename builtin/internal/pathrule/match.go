package pathrule

import (
	"fmt"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Match reports whether pattern covers name for an allow rule: both the path
// as written and its target must be covered. An error means that the pattern
// cannot be read.
func (p Place) Match(pattern, name string) (bool, error) {
	globs, err := p.globs(pattern, len(p.Dirs) == 0)
	if err != nil {
		return false, err
	}
	abs, real := p.Abs(name), p.Real(name)
	return real != "" && matchOne(globs, abs) && matchOne(globs, real), nil
}

// MatchAny reports whether pattern covers name for a deny or ask rule: the
// path as written or its target. A path that cannot be known is covered, an
// empty one is not.
func (p Place) MatchAny(pattern, name string) (bool, error) {
	globs, err := p.globs(pattern, true)
	if err != nil {
		return true, err
	}
	if name == "" {
		return false, nil
	}
	abs, real := p.Abs(name), p.Real(name)
	return real == "" || matchOne(globs, abs) || matchOne(globs, real), nil
}

// MatchTree reports whether pattern may cover root or something below it, for
// a deny or ask rule of a tool that walks directories.
func (p Place) MatchTree(pattern, root string) (bool, error) {
	globs, err := p.globs(pattern, true)
	if err != nil {
		return true, err
	}
	abs, real := p.Abs(root), p.Real(root)
	if real == "" {
		return true, nil
	}
	for _, g := range globs {
		if reaches(g, abs) || reaches(g, real) {
			return true, nil
		}
	}
	return false, nil
}

// Globs returns the absolute patterns that a deny or ask pattern stands for. It covers a path
// that one of them matches, as written or with its links resolved.
func (p Place) Globs(pattern string) ([]string, error) { return p.globs(pattern, true) }

// Fixed returns the path that a glob begins with, up to the first segment with a wildcard,
// and whether that is all of it.
func Fixed(glob string) (dir string, whole bool) {
	fixed, rest := split(glob)
	return unescape(fixed), rest == ""
}

// CoveredBy reports whether one of the globs matches the clean absolute path name.
func CoveredBy(globs []string, name string) bool { return matchOne(globs, name) }

// TreeCoveredBy reports whether one of the globs matches dir and all that is below it.
func TreeCoveredBy(globs []string, dir string) bool {
	for _, g := range globs {
		if strings.HasSuffix(g, "/**") && doublestar.MatchUnvalidated(g, dir) {
			return true
		}
	}
	return false
}

// Suggest returns the pattern for everything in the directory of name, or "".
func (p Place) Suggest(name string) string {
	name = p.clean(name)
	if name == "~" || name == ".." || strings.HasSuffix(name, "/..") { // its parent is not what is written before
		name = p.Abs(name)
	}
	if name == "" {
		return ""
	}
	return p.SuggestTree(path.Dir(name))
}

// SuggestTree returns the pattern for dir and everything below it, or "". A
// relative dir stays relative if that means the same.
func (p Place) SuggestTree(dir string) string {
	dir = p.clean(dir)
	switch {
	case dir == "/":
		return "/**"
	case strings.HasPrefix(dir, "/"), dir == "~", strings.HasPrefix(dir, "~/"):
		return escape(dir) + "/**"
	}
	abs := p.Abs(dir)
	base := p.base()
	switch {
	case abs == "" || base == "":
		return ""
	case abs == base:
		return "**"
	case base != "/" && Below(abs, base) && abs[len(base)+1] != '~':
		return escape(abs[len(base)+1:]) + "/**"
	}
	return p.SuggestTree(abs)
}

// clean returns the shortest name for what name is, or "" if it is not known. By their
// letters alone "./~" would become "~", and "~/../a" would become "a".
func (p Place) clean(name string) string {
	short := path.Clean(name)
	if abs := p.Abs(name); abs != p.Abs(short) {
		return abs
	}
	return short
}

// base is what relative patterns count from.
func (p Place) base() string {
	if len(p.Dirs) > 0 {
		return p.Abs(p.Dirs[0])
	}
	return p.Abs(p.Cwd)
}

// globs returns absolute patterns, one of which must match: the pattern where
// it was written and where its fixed part really leads, each also with
// brackets and braces taken as they are, because people write the names of
// directories such as [id] without escaping them.
func (p Place) globs(pattern string, floats bool) ([]string, error) {
	bad := func(why string) ([]string, error) {
		return nil, fmt.Errorf("path pattern %q: %s", pattern, why)
	}
	switch {
	case strings.TrimSpace(pattern) == "":
		return bad("it is empty")
	case strings.ContainsRune(pattern, 0):
		return bad("it has a NUL byte")
	case !doublestar.ValidatePattern(pattern):
		return bad("unbalanced brackets or braces, or a backslash at the end")
	}
	if strings.Contains(pattern, `\/`) {
		pattern = plainSlashes.Replace(pattern)
	}
	if strings.HasSuffix(pattern, "/") {
		pattern += "**"
	}
	abs := pattern
	switch {
	case pattern == "~" || strings.HasPrefix(pattern, "~/"):
		if p.Home == "" {
			return bad("the home directory is not known")
		}
		abs = escape(p.Home) + pattern[1:]
	case strings.HasPrefix(pattern, "/"):
	case floats && strings.HasPrefix(pattern, "**"):
		abs = "/" + pattern
	case floats && !strings.Contains(strings.TrimPrefix(pattern, "./"), "/"):
		abs = "/**/" + strings.TrimPrefix(pattern, "./")
	default:
		base := p.base()
		if base == "" {
			return bad("it is relative, and no working directory is known")
		}
		abs = escape(base) + "/" + pattern
	}
	abs, err := cleanPattern(abs)
	if err != nil {
		return bad(err.Error())
	}
	all := []string{abs}
	if strings.ContainsAny(abs, "[]{}") {
		all = append(all, literalBrackets(abs))
	}
	for _, g := range all {
		fixed, rest := split(g)
		if real := p.Real(unescape(fixed)); real != "" && real != unescape(fixed) {
			all = append(all, strings.TrimSuffix(escape(real), "/")+rest)
		}
	}
	return all, nil
}

// plainSlashes takes a backslash before a slash away: a slash always ends a segment.
var plainSlashes = strings.NewReplacer(`\\`, `\\`, `\/`, "/")

// cleanPattern removes empty and "." segments and resolves "..".
func cleanPattern(pattern string) (string, error) {
	var out []string
	for seg := range strings.SplitSeq(pattern, "/") {
		switch {
		case seg == "" || seg == ".":
		case seg == ".." && len(out) == 0:
		case seg == "..":
			if strings.ContainsAny(out[len(out)-1], "*?[{") {
				return "", fmt.Errorf("%q follows a wildcard", "..")
			}
			out = out[:len(out)-1]
		default:
			out = append(out, seg)
		}
	}
	return "/" + strings.Join(out, "/"), nil
}

// split cuts a clean pattern after the last segment without a wildcard.
func split(pattern string) (fixed, rest string) {
	end := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '/':
			end = i
		case '*', '?', '[', '{':
			return pattern[:end], pattern[end:]
		}
	}
	return pattern, ""
}

func matchOne(globs []string, name string) bool {
	for _, g := range globs {
		if doublestar.MatchUnvalidated(g, name) {
			return true
		}
	}
	return false
}

// reaches reports whether glob can match root or anything below it.
func reaches(glob, root string) bool {
	fixed, rest := split(glob)
	fixed = unescape(fixed)
	if rest == "" || fixed != "" && !Below(root, fixed) {
		return Below(fixed, root)
	}
	if strings.Contains(rest, "**") || strings.ContainsAny(rest, "{}") {
		return true
	}
	// Only segment by segment wildcards are left: compare as far as root goes.
	pats := strings.Split(strings.Trim(rest, "/"), "/")
	tail := strings.Trim(root[len(fixed):], "/")
	if tail == "" {
		return true
	}
	segs := strings.Split(tail, "/")
	if len(segs) > len(pats) {
		return false
	}
	for i, seg := range segs {
		if !doublestar.MatchUnvalidated(pats[i], seg) {
			return false
		}
	}
	return true
}

const special = `*?[]{}\`

// escape makes a pattern that matches name only.
func escape(name string) string {
	if !strings.ContainsAny(name, special) {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if strings.IndexByte(special, name[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// unescape returns the name that a clean pattern without wildcards matches. No such
// pattern ends in a backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// literalBrackets returns a clean pattern with brackets and braces escaped.
func literalBrackets(pattern string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			b.WriteByte(c)
			i++
		case strings.IndexByte("[]{}", c) >= 0:
			b.WriteByte('\\')
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}
