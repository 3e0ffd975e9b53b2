package shell

import (
	"path"
	"slices"
	"strings"

	"github.com/kitbag-go/kitbag/internal/lazy"
)

var (
	plainWord  = lazy.Regexp(`^[A-Za-z][\w:.@/+-]*$`)
	scriptPath = lazy.Regexp(`^[\w./][\w./@+-]*$`)
)

// Limits on suggestions, because users would not read more before they approve.
const (
	maxSuggestions = 5   // rules for a compound command
	maxSuggested   = 200 // bytes of a rule
)

// Suggest returns at most five patterns that together cover the command, or nil if no safe patterns do.
func (a *Analysis) Suggest() []string {
	if a.err != nil || a.uncoverable {
		return nil
	}
	var out []string
	need := a.mustCover()
	for i := range a.cmds {
		if !need[i] {
			continue
		}
		rule := a.cmds[i].suggest()
		if rule == "" {
			return nil
		}
		if !slices.Contains(out, rule) {
			out = append(out, rule)
		}
	}
	if len(out) == 0 || len(out) > maxSuggestions {
		return nil
	}
	for _, rule := range out {
		if ok, err := a.CoveredBy(rule, out...); !ok || err != nil {
			return nil
		}
	}
	return out
}

// suggest returns the pattern for one simple command, or "".
func (c *command) suggest() string {
	if len(c.args) < 2 || !c.args[0].known || c.redirs {
		return ""
	}
	name := c.args[0].text
	if slices.Contains(standardDirs, path.Dir(name)) {
		name = path.Base(name)
	}
	if slices.Contains(neverSuggested, c.name) || slices.Contains(shells, c.name) {
		return ""
	}
	escape := strings.NewReplacer(`\`, `\\`, `*`, `\*`)
	words := []string{escape.Replace(name)}
	for _, a := range c.args[1:] {
		if !a.known || a.text == "" || strings.Contains(a.text, "\n") {
			return ""
		}
		words = append(words, escape.Replace(a.text))
		if !strings.HasPrefix(a.text, "-") {
			break
		}
	}
	first := c.args[len(words)-1].text
	if !c.suggestible(words, first) {
		return ""
	}
	if c.hasSubcommandsBelow(first) {
		if len(c.args) <= len(words) {
			return ""
		}
		next := &c.args[len(words)]
		if !next.known || !plainWord().MatchString(next.text) || slices.Contains(dangerousSubs, c.name+"."+first+"."+next.text) {
			return ""
		}
		words = append(words, next.text)
	}
	if s := strings.Join(words, " "); len(s) <= maxSuggested {
		return s + ":*"
	}
	return ""
}

// suggestible reports whether a rule may end with words: the command's name, its options and first, the word
// after them.
func (c *command) suggestible(words []string, first string) bool {
	hasOptions := len(words) > 2
	switch {
	case strings.HasPrefix(first, "-"):
		return false // only options
	case slices.Contains(interpreters, c.name):
		module := len(words) == 3 && words[1] == "-m" && plainWord().MatchString(first)
		return (!hasOptions || module) && scriptPath().MatchString(first)
	case hasSubcommands(c.name):
		return !hasOptions && plainWord().MatchString(first) && !slices.Contains(dangerousSubs, c.name+"."+first)
	}
	return true
}

// hasSubcommandsBelow reports whether first, the word after the command's name, is only the first word of a subcommand,
// as in "git stash push".
func (c *command) hasSubcommandsBelow(first string) bool {
	if c.name == "aws" || c.name == "service" || slices.Contains(interpreters, c.name) && first == "pip" {
		return true
	}
	f := families()[c.name]
	return f != nil && f.hasSubcommands && f.subs[first] != nil && len(f.subs[first].subs) > 0
}
