package shell

import (
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/internal/lazy"
)

// The functions of this file find the trees that a command reads, and the files in them.

// trees returns the directories below which a command may find a secret, and whether it also reads hidden files.
func (c *command) trees() (roots []arg, hidden bool) {
	if c.recursive() && c.selectsHarmless() {
		return nil, false
	}
	return c.roots()
}

// roots returns the directories that a command reads with everything below them.
func (c *command) roots() (roots []arg, hidden bool) {
	recursive := c.recursive()
	switch c.name {
	case "rg", "ag", "ack", "pt", "ucg":
		hidden = c.name == "ack" || c.name == "rg" && c.selectsHidden() || hasOption(c, '.', "--hidden") || hasOption(c, 'u', "--unrestricted") || hasOption(c, 'a', "--all-types")
	default:
		hidden = true
	}
	compares := c.name == "diff" || c.name == "colordiff" // without -r two directories are compared at their first level
	for _, op := range c.reads {
		if dir, ok := strings.CutSuffix(op.text, "/"+hole); ok && !strings.Contains(dir, hole) && dir != "" {
			roots, hidden = append(roots, literal(dir)), true // any name in dir, such as those that find prints
		} else if (recursive || compares) && !strings.Contains(op.text, hole) {
			roots = append(roots, op.arg)
		}
	}
	// Unlike rg and ag, grep and git do not search their standard input instead.
	if recursive && len(roots) == 0 && (!c.in.piped || c.name == "git" || strings.HasSuffix(c.name, "grep")) {
		roots = append(roots, literal("."))
	}
	return roots, hidden
}

// selectsHidden reports whether rg has a pattern that selects files. Such a pattern also selects hidden files
// that match.
func (c *command) selectsHidden() bool {
	for i, a := range c.args[1:] {
		before, text := c.args[i].text, a.text
		_, value, ok := strings.Cut(text, "=")
		switch short := len(before) > 1 && before[0] == '-' && before[1] != '-' && strings.HasSuffix(before, "g"); {
		case strings.HasPrefix(text, "--glob") || strings.HasPrefix(text, "--iglob"):
			if ok && !strings.HasPrefix(value, "!") {
				return true
			}
		case short, before == "--glob", before == "--iglob":
			if !strings.HasPrefix(text, "!") {
				return true
			}
		case len(text) > 1 && text[0] == '-' && text[1] != '-':
			if _, value, ok = strings.Cut(text, "g"); ok && value != "" && value[0] != '!' {
				return true
			}
		}
	}
	return false
}

// recurses matches the value recurse of grep -d, attached or not, and its abbreviations.
var recurses = lazy.Regexp(`(rec(u(r(se?)?)?)?|\x00)$`)

// recursive reports whether the command reads everything below directories among its operands.
func (c *command) recursive() bool {
	switch c.name {
	case "grep", "egrep", "fgrep", "zgrep", "zegrep", "zfgrep":
		if hasOption(c, 'd', "--directories") && slices.ContainsFunc(c.args, func(a arg) bool { return recurses().MatchString(a.text) }) {
			return true
		}
		return hasOption(c, 'r', "--recursive") || hasOption(c, 'R', "--dereference-recursive")
	case "rg", "ag", "ack", "pt", "ucg":
		return true
	case "diff", "colordiff":
		return hasOption(c, 'r', "--recursive")
	case "git":
		return slices.ContainsFunc(c.args, func(a arg) bool { return a.text == "--no-index" || a.text == "--untracked" })
	}
	return false
}

// followsLinks reports whether grep or rg is asked to follow links.
func (c *command) followsLinks() bool {
	return hasOption(c, 'R', "--dereference-recursive") || hasOption(c, 'L', "--follow")
}

// includeGlobs returns patterns, one of which matches the name of every file that is searched, or
// nil.
func (c *command) includeGlobs() []string {
	var globs []string
	for _, a := range c.args {
		if glob, ok := strings.CutPrefix(a.text, "--include="); ok && a.known && strings.HasSuffix(c.name, "grep") {
			globs = append(globs, glob)
		}
	}
	return globs
}

// copiesTrees reports whether the command copies everything below the directories among its operands.
func (c *command) copiesTrees() bool {
	return slices.Contains([]string{"cp", "rsync", "tar", "bsdtar", "zip", "scp"}, c.name)
}

// rg options that select files by a pattern, in the next word or attached, perhaps after letters without a value.
var (
	rgGlob     = lazy.Regexp(`^(--i?glob|-[bcFHIilLnNoPpqSsUuvwxah0.V]*g)$`)
	rgGlobWith = lazy.Regexp(`^(--i?glob=|-[bcFHIilLnNoPpqSsUuvwxah0.V]*g=?)(.+)$`)
)

// selected returns the patterns for names by which the word at index i selects files to search. Patterns that exclude
// files do not count.
func (c *command) selected(i int) []string {
	text, before := c.args[i].text, ""
	if i > 0 {
		before = c.args[i-1].text
	}
	glob, ok := strings.CutPrefix(text, "--include=")
	if before == "--include" || c.name == "rg" && rgGlob().MatchString(before) {
		glob, ok = text, true
	} else if found := rgGlobWith().FindStringSubmatch(text); c.name == "rg" && found != nil {
		glob, ok = found[2], true
	}
	if !ok || strings.HasPrefix(glob, "!") {
		return nil
	}
	head, rest, _ := strings.Cut(glob, "{")
	inner, tail, closed := strings.Cut(rest, "}")
	if !closed {
		return []string{path.Base(glob)}
	}
	if strings.ContainsAny(inner+tail, `{\`) {
		return []string{"*"} // not analysed: any name
	}
	var patterns []string
	for alternative := range strings.SplitSeq(inner, ",") {
		patterns = append(patterns, path.Base(head+alternative+tail))
	}
	return patterns
}

// sourceTypes are types of rg whose files are never secrets.
var sourceTypes = strings.Fields("asm c cpp cs css go haskell html js kotlin lua markdown md php py python ruby rust scala sql swift ts typescript")

// selectsHarmless reports whether the command only searches files with names that no secret has.
func (c *command) selectsHarmless() bool {
	chosen := false
	for i, a := range c.args {
		before := ""
		if i > 0 {
			before = c.args[i-1].text
		}
		switch {
		case a.text == "--":
			return chosen
		case strings.HasPrefix(a.text, "--type-"): // it may define types, or exclude them
			return false
		case strings.HasPrefix(a.text, "-") && (before == "--regexp" || endsWithOption(before, 'e')): // a text
			return false
		}
		for _, glob := range c.selected(i) {
			if strings.Contains(a.text, hole) || pathrule.MayBeSecret(glob) {
				return false
			}
			chosen = true
		}
		if c.name != "rg" {
			continue
		}
		name, isType := strings.CutPrefix(a.text, "-t")
		if before == "-t" || before == "--type" {
			name, isType = a.text, true
		}
		if isType && name != "" {
			if !slices.Contains(sourceTypes, name) {
				return false
			}
			chosen = true
		}
	}
	return chosen
}

// endsWithOption reports whether a word is a bundle of short options that ends with letter.
func endsWithOption(text string, letter byte) bool {
	return len(text) > 1 && text[0] == '-' && text[1] != '-' && text[len(text)-1] == letter
}

// selectsSecrets returns the pattern of a search that only secrets match, at least in the user's home, or "".
func (c *command) selectsSecrets(at *pathrule.Place) string {
	for i := range c.args {
		for _, glob := range c.selected(i) {
			if c.recursive() && !printsOnlyNames(c) && (secretWord(glob) || pathrule.MayBeKept(glob) && c.searchesHome(at)) {
				return glob
			}
		}
	}
	return ""
}

// searchesHome reports whether a search reads everything below the user's home, or below an unknown directory.
func (c *command) searchesHome(at *pathrule.Place) bool {
	return slices.ContainsFunc(c.reads, func(op operand) bool {
		return strings.HasPrefix(op.text, hole) || slices.ContainsFunc(c.paths(op.arg), func(dir string) bool { return at.Home != "" && pathrule.Below(at.Home, dir) })
	})
}
