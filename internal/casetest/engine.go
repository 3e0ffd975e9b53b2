package casetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
)

// oldModes maps the names of modes in the case files.
var oldModes = map[string]permission.Mode{
	"default": permission.ModeDefault, "accept_edits": permission.ModeAcceptEdits, "explore": permission.ModeExplore,
	"bypass": permission.ModeBypass, "dont_ask": permission.ModeDontAsk,
}

// A Rule is a rule in the form of the case files.
type Rule struct {
	Tool, Behavior string
	Content        *string
}

// An EngineRow is a row of engine.jsonl. Props describe tools whose names begin with Fake; other tools are from package
// builtin.
type EngineRow struct {
	Mode        string
	Rules       []Rule
	WorkingDirs []string `json:"working_dirs"`
	Tool        string
	Props       struct {
		ReadOnly bool    `json:"read_only"`
		Decision *string `json:"tool_decision"`
		Immune   bool    `json:"tool_decision_immune"`
	} `json:"tool_props"`
	Input  json.RawMessage
	Expect struct {
		Behavior string
		Immune   bool `json:"bypass_immune"`
	}
	Origin string
}

// Policy returns the policy of a row. The cases were recorded with trusted read-only claims of tools.
func Policy(tb testing.TB, mode string, rules []Rule, dirs []string) *permission.Policy {
	tb.Helper()
	m, ok := oldModes[mode]
	if !ok {
		tb.Fatalf("mode %q", mode)
	}
	p := &permission.Policy{Mode: m, Dirs: dirs, TrustReadOnly: true}
	for _, r := range rules {
		rule := permission.Rule{Tool: r.Tool, Behavior: permission.Behavior(r.Behavior)}
		if r.Content != nil {
			rule.Pattern = *r.Content
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

// CheckEngine checks the decision about each row of engine.jsonl for which call does not return nil, and returns the
// number of these rows. tmp replaces ${TMP} in the rows.
func CheckEngine(t *testing.T, tmp string, deviations Deviations, call func(EngineRow) *permission.Call) (ran int) {
	t.Helper()
	for _, r := range Rows[EngineRow](t, "engine.jsonl") {
		for i, d := range r.WorkingDirs {
			r.WorkingDirs[i] = strings.ReplaceAll(d, "${TMP}", tmp)
		}
		r.Input = json.RawMessage(strings.ReplaceAll(string(r.Input), "${TMP}", tmp))
		c := call(r)
		if c == nil {
			continue
		}
		ran++
		d := permission.Decide(Policy(t, r.Mode, r.Rules, r.WorkingDirs), c)
		if string(d.Behavior) == r.Expect.Behavior && d.Safety == r.Expect.Immune {
			continue
		}
		if key := r.key(); !deviations.Allowed(key) {
			t.Errorf("%s: %s safety=%v (%s), upstream %+v", key, d.Behavior, d.Safety, d.Reason, r.Expect)
		}
	}
	return ran
}

// key describes a row for the list of deviations.
func (r EngineRow) key() string {
	var rules []string
	for _, c := range r.Rules {
		text := c.Behavior
		if c.Content != nil {
			text += "(" + *c.Content + ")"
		}
		rules = append(rules, text)
	}
	own := "none"
	if r.Props.Decision != nil {
		own = *r.Props.Decision
	}
	if r.Props.Immune {
		own += "!"
	}
	return fmt.Sprintf("%s %s read-only=%v own=%s rules=%v %s", r.Mode, r.Tool, r.Props.ReadOnly, own, rules, r.Input)
}
