package builtin

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/permission"
)

// unreadable is the verdict on input that is not what the schema says: nobody
// can tell what it would do.
var unreadable = safetyAsk(errUnreadable.Error())

var errUnreadable = errors.New("the arguments cannot be read")

// editsAllowed reports whether the mode lets files below the working
// directories be changed without a question. In dont-ask, too: there nobody could
// be asked, and an agent that may not edit its own project is of no use.
func editsAllowed(p *permission.Policy) bool {
	return p != nil && (p.Mode == permission.AcceptEdits || p.Mode == permission.DontAsk)
}

func allowRules(tool string, patterns ...string) []permission.Rule {
	var rules []permission.Rule
	for _, pattern := range patterns {
		if pattern != "" {
			rules = append(rules, permission.Rule{Tool: tool, Pattern: pattern, Behavior: permission.Allow, Source: "suggested"})
		}
	}
	return rules
}

// A judge judges the calls of a tool that works on files.
type judge struct {
	Config
	tool   string
	access access
	path   func(input json.RawMessage) (string, bool) // what the call works on, or the directory it searches
}

type access int

const (
	readsFile access = iota
	writesFile
	searchesTree
)

// filePath is [judge.path] for a tool that works on one file.
func filePath(input json.RawMessage) (string, bool) {
	in, err := unmarshal[struct {
		FilePath string `json:"file_path"`
	}](input)
	return in.FilePath, err == nil && in.FilePath != ""
}

// CheckPermission implements [tool.PermissionChecker].
func (j *judge) CheckPermission(p *permission.Policy, input json.RawMessage) permission.Verdict {
	path, ok := j.path(input)
	if !ok {
		return unreadable
	}
	at := j.place(p)
	if at.Real(path) == "" { // its links go in circles, or it is no path
		return safetyAsk(fmt.Sprintf("nobody can tell where %q leads", path))
	}
	inside := permission.Verdict{Behavior: permission.Allow, Reason: path + " is inside a working directory"}
	if j.access == writesFile {
		if why := j.guard().Hit(at, path); why != "" {
			return safetyAsk(why)
		}
		if editsAllowed(p) && at.Inside(path) {
			return inside
		}
		return permission.Verdict{}
	}
	if why := at.Secret(path); why != "" {
		return safetyAsk(why)
	}
	if at.Inside(path) {
		return inside
	}
	return permission.Verdict{Behavior: permission.Ask, Reason: path + " is outside the working directories"}
}

func safetyAsk(why string) permission.Verdict {
	return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: why}
}

// MatchRule implements [tool.RuleMatcher]. A deny or ask rule covers a search
// that may come to a path it covers.
func (j *judge) MatchRule(p *permission.Policy, r permission.Rule, input json.RawMessage) (bool, error) {
	path, ok := j.path(input)
	if !ok {
		return false, errUnreadable
	}
	at := j.place(p)
	switch {
	case r.Behavior == permission.Allow:
		return at.Match(r.Pattern, path)
	case j.access == searchesTree:
		return at.MatchTree(r.Pattern, path)
	}
	return at.MatchAny(r.Pattern, path)
}

// SuggestRules implements [tool.RuleSuggester].
func (j *judge) SuggestRules(p *permission.Policy, input json.RawMessage) []permission.Rule {
	path, ok := j.path(input)
	if !ok {
		return nil
	}
	if j.access == searchesTree {
		return allowRules(j.tool, j.place(p).SuggestTree(path))
	}
	return allowRules(j.tool, j.place(p).Suggest(path))
}
