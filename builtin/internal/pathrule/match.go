package pathrule

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// Match reports whether pattern covers name, with links resolved, for an allow rule. An invalid pattern is an error.
func (p Place) Match(pattern, name string) (bool, error) {
	globs, err := p.globs(pattern, false)
	if err != nil {
		return false, err
	}
	real := p.Real(name)
	return real != "" && CoveredBy(globs, real), nil
}

// MatchAny reports whether pattern covers name for a deny or ask rule: the path as written, or with links resolved. A
// path that cannot be resolved counts as covered, an empty name does not.
func (p Place) MatchAny(pattern, name string) (bool, error) {
	globs, err := p.DenyGlobs(pattern)
	if err != nil {
		return true, err
	}
	if name == "" {
		return false, nil
	}
	abs, real := p.Abs(name), p.Real(name)
	return real == "" || CoveredBy(globs, abs) || CoveredBy(globs, real), nil
}

// MatchTree reports whether pattern may cover root or something below it, for
// a deny or ask rule of a tool that walks directories.
func (p Place) MatchTree(pattern, root string) (bool, error) {
	if covered, err := p.MatchAny(pattern, root); covered || err != nil {
		return true, err
	}
	globs, err := p.Globs(pattern)
	abs, real := p.Abs(root), p.Real(root)
	return slices.ContainsFunc(globs, func(g string) bool { return reaches(g, abs) || reaches(g, real) }), err
}

// Globs returns absolute patterns: a deny or ask rule with this pattern covers a path if one of them matches the path,
// as written or with links resolved, or a directory above it; see [Place.DenyGlobs].
func (p Place) Globs(pattern string) ([]string, error) { return p.globs(pattern, true) }

// DenyGlobs returns Globs, and for each of them that ends in a name without wildcards also the pattern of everything
// below: a deny or ask rule for a directory would protect nothing otherwise.
func (p Place) DenyGlobs(pattern string) ([]string, error) {
	globs, err := p.Globs(pattern)
	for _, g := range globs {
		if _, rest := splitFixed(g[strings.LastIndexByte(g, '/'):]); rest == "" {
			globs = append(globs, strings.TrimSuffix(g, "/")+"/**")
		}
	}
	return globs, err
}

// Fixed returns the part of a glob before the first segment with a wildcard, and whether that is the whole glob.
func Fixed(glob string) (dir string, whole bool) {
	fixed, rest := splitFixed(glob)
	return unescape(fixed), rest == ""
}

// CoveredBy reports whether one of the globs matches the clean absolute path name.
func CoveredBy(globs []string, name string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return matches(g, name) })
}

// TreeCoveredBy reports whether one of the globs matches dir and everything below it.
func TreeCoveredBy(globs []string, dir string) bool {
	return slices.ContainsFunc(globs, func(g string) bool { return strings.HasSuffix(g, "/**") && matches(g, dir) })
}

func matches(glob, name string) bool {
	if strings.Contains(glob, "[!") || strings.Contains(glob, "[^") { // would match a slash
		glob = class().ReplaceAllStringFunc(glob, func(m string) string {
			if m[0] == '[' && (m[1] == '!' || m[1] == '^') {
				return m[:2] + "/" + m[2:]
			}
			return m
		})
	}
	return doublestar.MatchUnvalidated(glob, name)
}

// Suggest returns the pattern for everything in the directory of name, or "" if that is unknown. If name is a link to
// another directory, the pattern is for that directory.
func (p Place) Suggest(name string) string { return p.covering(p.suggest, name) }

// SuggestTree returns the pattern for dir and everything below it, or "" if that is unknown. The pattern is relative if
// dir is relative and below the directory that relative patterns are relative to.
func (p Place) SuggestTree(dir string) string { return p.covering(p.suggestTree, dir) }

// covering returns the suggestion for name, or for the target of its links if the first does not cover that.
func (p Place) covering(suggest func(string) string, name string) string {
	pattern, real := suggest(name), p.Real(name)
	if ok, _ := p.Match(pattern, name); ok || real == "" {
		return pattern
	}
	return suggest(real)
}

func (p Place) suggest(name string) string {
	name = p.clean(name)
	if name == "~" || name == ".." || strings.HasSuffix(name, "/..") { // its parent is not the text before the last slash
		name = p.Abs(name)
	}
	if name == "" {
		return ""
	}
	return p.suggestTree(path.Dir(name))
}

func (p Place) suggestTree(dir string) string {
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
	case base != "/" && Below(abs, base) && abs[len(base)+1] != '~': // "~" at the start would mean the home directory
		return escape(abs[len(base)+1:]) + "/**"
	}
	return p.suggestTree(abs)
}

// clean is path.Clean without a change of meaning, such as from "./~" to "~" or from "~/../a" to "a": then it returns
// the absolute path, or "" if that is unknown.
func (p Place) clean(name string) string {
	short := path.Clean(name)
	if abs := p.Abs(name); abs != p.Abs(short) {
		return abs
	}
	return short
}

// base is the directory that relative patterns are relative to.
func (p Place) base() string {
	if len(p.Dirs) > 0 {
		return p.Abs(p.Dirs[0])
	}
	return p.Abs(p.Cwd)
}

// globs returns absolute patterns, one of which must match. Brackets and braces in pattern may also mean themselves, as
// people do not escape them in directory names such as [id]. The part before the first wildcard may also be a link to
// what must match, but not for an allow rule if the model may have made the link: if it is in a working directory, and
// its target is not. A deny or ask pattern without a slash, or one that starts with "**", applies everywhere.
func (p Place) globs(pattern string, deny bool) ([]string, error) {
	anywhere := deny || len(p.Dirs) == 0
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
	case strings.ContainsAny(pattern, "[{"):
		if why := misread(pattern); why != "" {
			return bad(why)
		}
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
			return bad("the home directory is unknown")
		}
		abs = escape(p.Home) + pattern[1:]
	case strings.HasPrefix(pattern, "/"):
	case anywhere && strings.HasPrefix(pattern, "**"):
		abs = "/" + pattern
	case anywhere && !strings.Contains(strings.TrimPrefix(pattern, "./"), "/"):
		abs = "/**/" + strings.TrimPrefix(pattern, "./")
	default:
		base := p.base()
		if base == "" {
			return bad("it is relative, and no working directory is set")
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
		fixed, rest := splitFixed(g)
		fixed = unescape(fixed)
		if real := p.Real(fixed); real != "" && real != fixed && (deny || p.BelowAny(real, p.Dirs) || !p.linkInDirs(fixed)) {
			all = append(all, strings.TrimSuffix(escape(real), "/")+rest)
		}
	}
	return all, nil
}

// linkInDirs reports whether one of the links that name leads through is in a working directory.
func (p Place) linkInDirs(name string) bool {
	found, q := false, p
	q.Readlink = func(link string) (string, error) {
		target, err := p.Target(link)
		found = found || err == nil && p.BelowAny(link, p.Dirs)
		return target, err
	}
	q.Real(name)
	return found
}

var (
	escaped      = lazy.Regexp(`\\.`)
	class        = lazy.Regexp(`\\.|\[[!^]?(\\.|[^]\\/])+\]`)
	shellClass   = lazy.Regexp(`\[[^]/]*\[(:\w+:|=.=|\..\.)\]`)
	slashInClass = lazy.Regexp(`\[[^]/]*/[^]]*\]`)
	pathInBraces = lazy.Regexp(`^\{(.*,)?\{*~|(^|/)\{(.*,)?\{*/|\{(.*[,/])?\{*\.\.?[,}/].*`)
)

// misread returns why a pattern would not match what its author means, or "". A deny rule must not silently cover less.
func misread(pattern string) string {
	pattern = escaped().ReplaceAllLiteralString(pattern, "x")
	switch {
	case shellClass().MatchString(pattern):
		return "classes such as [:alpha:] are not supported; write a range such as [a-z]"
	case slashInClass().MatchString(pattern):
		return `brackets match no "/"; write a rule for each directory`
	case pathInBraces().MatchString(pattern):
		return `an alternative in braces cannot begin with "/" or "~", or contain "." or ".."; write a rule for each`
	}
	return ""
}

// plainSlashes removes a backslash before a slash, which always ends a segment, unless the backslash is itself escaped.
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

// splitFixed splits a clean pattern before the first segment with a wildcard.
func splitFixed(pattern string) (fixed, rest string) {
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

// reaches reports whether glob can match root or anything below it.
func reaches(glob, root string) bool {
	fixed, rest := splitFixed(glob)
	fixed = unescape(fixed)
	if rest == "" || !Below(root, fixed) { // then root must be above the first match
		return Below(fixed, root)
	}
	if strings.Contains(rest, "**") || strings.ContainsAny(rest, "{}") {
		return true
	}
	// Each segment of the glob matches one segment: compare as many as root has below fixed.
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

// escape returns a pattern that matches only name.
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

// unescape returns the name that a clean pattern without wildcards matches. The pattern must not end in a backslash.
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
