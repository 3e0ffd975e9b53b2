package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/kitbag-go/kitbag/builtin/internal/pathrule"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// askBadInput is the verdict on input that does not fit the schema: its effect is unknown.
var askBadInput = safetyAsk(errBadInput.Error())

var errBadInput = errors.New("the arguments do not fit the tool's schema")

// editsAllowed reports whether the mode allows changes below the working directories without approval. Mode dont-ask
// does, since it rules out approval, and an agent must be able to edit its own project.
func editsAllowed(p *permission.Policy) bool {
	return p != nil && (p.Mode == permission.ModeAcceptEdits || p.Mode == permission.ModeSandboxed || p.Mode == permission.ModeDontAsk)
}

// allowRules returns a rule for each pattern that is not "".
func allowRules(tool string, patterns ...string) []permission.Rule {
	var rules []permission.Rule
	for _, pattern := range patterns {
		if pattern != "" {
			rules = append(rules, permission.Rule{Tool: tool, Pattern: pattern, Behavior: permission.Allow, Source: "suggested"})
		}
	}
	return rules
}

// A judge is the [tool.Judge] of a tool that works on files.
type judge struct {
	Config
	tool   string
	access access

	// path returns the file of a call, or the directory that the call searches, and false for input that does not fit
	// the schema.
	path func(input json.RawMessage) (string, bool)

	// openedDir returns the directory that a search opens, if it is not path. It may be nil.
	openedDir func(input json.RawMessage) string
}

type access int

const (
	readsFile access = iota
	writesFile
	searchesTree
)

// filePath is the path function of a tool that works on one file.
func filePath(input json.RawMessage) (string, bool) {
	in, err := unmarshal[struct {
		FilePath string `json:"file_path"`
	}](input)
	return in.FilePath, err == nil && in.FilePath != ""
}

// Judge implements [tool.Judge].
func (j *judge) Judge(c *permission.Call) {
	f := &fileCall{judge: *j, input: c.Input}
	f.links = newLinks(j.place(nil).Readlink)
	c.Checker = f
	switch j.access {
	case searchesTree:
		c.Borrows = borrowedBySearch
	case writesFile:
		c.Borrows = borrowedByWriter
	}
}

var (
	borrowedBySearch = []string{"Read"}          // a search must not reveal files that Read must not
	borrowedByWriter = []string{"Write", "Edit"} // a file that one of the two must not change is the same to the other
)

// A fileCall is the [permission.Checker] of one call. It reads each symbolic link only once, into Config.links, so that
// rules, the verdict and the files that it names are about the same paths even if links change meanwhile.
type fileCall struct {
	permission.BaseChecker
	judge
	input json.RawMessage
}

// links caches symbolic links.
type links struct {
	read func(string) (string, error)
	mu   sync.Mutex
	seen map[string]link
}

type link struct {
	target string
	err    error
}

func newLinks(read func(string) (string, error)) *links {
	if read == nil {
		read = os.Readlink
	}
	return &links{read: read, seen: map[string]link{}}
}

func (l *links) readlink(path string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.seen[path]
	if !ok {
		known.target, known.err = l.read(path)
		l.seen[path] = known
	}
	return known.target, known.err
}

// Check implements [permission.Checker].
func (j *fileCall) Check(p *permission.Policy) permission.Verdict {
	path, ok := j.path(j.input)
	if !ok {
		return askBadInput
	}
	at := j.place(p)
	if at.Real(path) == "" { // a cycle of links, or not a path
		return safetyAsk(fmt.Sprintf("the path %q cannot be resolved", path))
	}
	v := j.verdict(p, at, path)
	v.Found = j.judgement(p, at, path)
	return v
}

// verdict judges the call by its path. The zero Verdict leaves the decision to the policy.
func (j *fileCall) verdict(p *permission.Policy, at pathrule.Place, path string) permission.Verdict {
	inside := permission.Verdict{Behavior: permission.Allow, Reason: path + " is inside a working directory"}
	if j.access == writesFile {
		if why := j.protected().Hit(at, path); why != "" {
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

// judgement returns the file or directory that the call opens, and the patterns that a search must skip.
func (j *fileCall) judgement(p *permission.Policy, at pathrule.Place, path string) permission.Judgement {
	if j.openedDir != nil {
		path = j.openedDir(j.input)
	}
	found := permission.Judgement{Files: []permission.File{j.identify(at.Real(path))}}
	if j.access == searchesTree && p != nil {
		found.Except = globsOf(p, at, func(r *permission.Rule) bool { return r.Behavior != permission.Allow && r.Names("Read") })
	}
	return found
}

// globsOf returns the patterns of the rules of p that selects accepts, as patterns of absolute paths.
func globsOf(p *permission.Policy, at pathrule.Place, selects func(*permission.Rule) bool) []string {
	var all []string
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.Pattern == "" || !selects(r) {
			continue
		}
		globs, err := at.DenyGlobs(r.Pattern)
		if err != nil { // the invalid rule has already made the policy deny or ask
			continue
		}
		for _, g := range globs {
			if !slices.Contains(all, g) {
				all = append(all, g)
			}
		}
	}
	return all
}

// identify returns the file at a path without links.
func (c *Config) identify(real string) permission.File {
	if b, ok := c.Backend.(identifier); ok {
		return b.Identify(real)
	}
	return permission.File{Path: real}
}

// An identifier is a [Backend] that identifies files.
type identifier interface {
	Identify(path string) permission.File
}

// target returns the file that a call works on: the judged file or, without a judgement, the file at the path now.
func (c *Config) target(ctx context.Context, name string) permission.File {
	if j := tool.CallFrom(ctx).Judgement; j != nil && len(j.Files) > 0 {
		return j.Files[0]
	}
	at := c.place(nil)
	return permission.File{Path: cmp.Or(at.Real(name), at.Abs(name))} // Abs: the backend reports what is wrong with the path
}

func safetyAsk(why string) permission.Verdict {
	return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: why}
}

// Match implements [permission.Checker]. A deny or ask rule covers a search that may reach a path that the rule covers.
// A rule for Read covers only a search that begins at a path that the rule covers, since a search skips all other paths
// of the rule.
func (j *fileCall) Match(p *permission.Policy, r permission.Rule) (bool, error) {
	path, ok := j.path(j.input)
	if !ok {
		return false, errBadInput
	}
	at := j.place(p)
	switch {
	case r.Behavior == permission.Allow:
		return at.Match(r.Pattern, path)
	case j.access == searchesTree && r.Tool != "Read":
		return at.MatchTree(r.Pattern, path)
	}
	return at.MatchAny(r.Pattern, path)
}

// Suggest implements [permission.Checker].
func (j *fileCall) Suggest(p *permission.Policy) []permission.Rule {
	path, ok := j.path(j.input)
	if !ok {
		return nil
	}
	if j.access == searchesTree {
		return allowRules(j.tool, j.place(p).SuggestTree(path))
	}
	return allowRules(j.tool, j.place(p).Suggest(path))
}
