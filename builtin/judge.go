package builtin

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/internal/pathrule"
	"github.com/kitbag-go/kitbag/permission"
)

// unreadable is the verdict on input that is not what the schema says: nobody
// can tell what it would do.
var unreadable = permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: errUnreadable.Error()}

var errUnreadable = errors.New("the arguments cannot be read")

// editsAllowed reports whether the mode lets files below the working
// directories be changed without a question.
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

// A fileJudge judges the calls of a tool that works on one file.
type fileJudge struct {
	Config
	name   string
	writes bool
}

// path returns the path that the input names.
func (j *fileJudge) path(input json.RawMessage) (string, bool) {
	var in struct {
		FilePath string `json:"file_path"`
	}
	return in.FilePath, json.Unmarshal(input, &in) == nil && in.FilePath != ""
}

// CheckPermission implements [tool.PermissionChecker].
func (j *fileJudge) CheckPermission(p *permission.Policy, input json.RawMessage) permission.Verdict {
	path, ok := j.path(input)
	if !ok {
		return unreadable
	}
	at := j.place(p)
	if !j.writes {
		return judgeRead(at, path)
	}
	if at.Real(path) == "" {
		return unknown(path)
	}
	if why := j.guard().Hit(at, path); why != "" {
		return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: why}
	}
	if at.Inside(path) && editsAllowed(p) {
		return inside(path)
	}
	return permission.Verdict{}
}

// unknown is the verdict on a path that cannot be resolved: its links go in
// circles, or it is no path.
func unknown(path string) permission.Verdict {
	return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: fmt.Sprintf("nobody can tell where %q leads", path)}
}

func inside(path string) permission.Verdict {
	return permission.Verdict{Behavior: permission.Allow, Reason: path + " is inside a working directory"}
}

// judgeRead is the verdict on reading path, a file or a tree.
func judgeRead(at pathrule.Place, path string) permission.Verdict {
	if at.Real(path) == "" {
		return unknown(path)
	}
	if why := at.Secret(path); why != "" {
		return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: why}
	}
	if at.Inside(path) {
		return inside(path)
	}
	return permission.Verdict{Behavior: permission.Ask, Reason: path + " is outside the working directories"}
}

// MatchRule implements [tool.RuleMatcher].
func (j *fileJudge) MatchRule(p *permission.Policy, r permission.Rule, input json.RawMessage) (bool, error) {
	path, ok := j.path(input)
	if !ok {
		return false, errUnreadable
	}
	if r.Behavior == permission.Allow {
		return j.place(p).Match(r.Pattern, path)
	}
	return j.place(p).MatchAny(r.Pattern, path)
}

// SuggestRules implements [tool.RuleSuggester].
func (j *fileJudge) SuggestRules(p *permission.Policy, input json.RawMessage) []permission.Rule {
	path, ok := j.path(input)
	if !ok {
		return nil
	}
	return allowRules(j.name, j.place(p).Suggest(path))
}

// A treeJudge judges the calls of a tool that searches a directory.
type treeJudge struct {
	Config
	name string
	root func(input json.RawMessage) (string, bool) // the directory that it searches
}

// CheckPermission implements [tool.PermissionChecker].
func (j *treeJudge) CheckPermission(p *permission.Policy, input json.RawMessage) permission.Verdict {
	root, ok := j.root(input)
	if !ok {
		return unreadable
	}
	return judgeRead(j.place(p), root)
}

// MatchRule implements [tool.RuleMatcher]. A deny or ask rule covers a search
// that may come to a path it covers.
func (j *treeJudge) MatchRule(p *permission.Policy, r permission.Rule, input json.RawMessage) (bool, error) {
	root, ok := j.root(input)
	if !ok {
		return false, errUnreadable
	}
	if r.Behavior == permission.Allow {
		return j.place(p).Match(r.Pattern, root)
	}
	return j.place(p).MatchTree(r.Pattern, root)
}

// SuggestRules implements [tool.RuleSuggester].
func (j *treeJudge) SuggestRules(p *permission.Policy, input json.RawMessage) []permission.Rule {
	root, ok := j.root(input)
	if !ok {
		return nil
	}
	return allowRules(j.name, j.place(p).SuggestTree(root))
}
