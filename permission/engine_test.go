package permission_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/builtin"
	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// oldModes are the case files' names of modes.
var oldModes = map[string]permission.Mode{
	"default": permission.Default, "accept_edits": permission.AcceptEdits, "explore": permission.Explore,
	"bypass": permission.Bypass, "dont_ask": permission.DontAsk,
}

type caseRule struct {
	Tool, Behavior string
	Content        *string
}

type engineRow struct {
	Mode        string
	Rules       []caseRule
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

func policyOf(t *testing.T, mode string, rules []caseRule, dirs []string) *permission.Policy {
	t.Helper()
	m, ok := oldModes[mode]
	if !ok {
		t.Fatalf("mode %q", mode)
	}
	// The cases were recorded where a tool's claim to be read-only counted.
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

// fake is a call of a tool that judges as the row says.
func (r engineRow) fake() *permission.Call {
	c := &permission.Call{Tool: r.Tool, Input: r.Input, ReadOnly: r.Props.ReadOnly}
	if d := r.Props.Decision; d != nil && *d != "passthrough" {
		c.Check = func(*permission.Policy) permission.Verdict {
			return permission.Verdict{Behavior: permission.Behavior(*d), Safety: r.Props.Immune, Reason: "as the row says"}
		}
	}
	return c
}

func builtins(t *testing.T, dirs ...string) map[string]tool.Tool {
	t.Helper()
	tools, err := builtin.New(builtin.Config{Dirs: dirs})
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]tool.Tool{}
	for _, tl := range tools {
		byName[tl.Info().Name] = tl
	}
	return byName
}

func TestEngineCases(t *testing.T) {
	deviations := casetest.LoadDeviations(t, "deviations_engine.json")
	tmp := t.TempDir()
	if err := os.Mkdir(filepath.Join(tmp, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(tmp, "link")); err != nil {
		t.Fatal(err)
	}
	tools := builtins(t, "/tmp")
	ran := 0
	for _, r := range casetest.Rows[engineRow](t, "engine.jsonl") {
		for i, d := range r.WorkingDirs {
			r.WorkingDirs[i] = strings.ReplaceAll(d, "${TMP}", tmp)
		}
		r.Input = json.RawMessage(strings.ReplaceAll(string(r.Input), "${TMP}", tmp))
		call := r.fake()
		if tl, ok := tools[r.Tool]; ok {
			call = tool.PermissionCall(tl, r.Input)
		} else if !strings.HasPrefix(r.Tool, "Fake") {
			continue // a tool that the working copy does not have yet
		}
		ran++
		d := permission.Decide(policyOf(t, r.Mode, r.Rules, r.WorkingDirs), call)
		if string(d.Behavior) == r.Expect.Behavior && d.Safety == r.Expect.Immune {
			continue
		}
		key := r.key()
		if !deviations.Allowed(key) {
			t.Errorf("%s: %s safety=%v (%s), upstream %+v", key, d.Behavior, d.Safety, d.Reason, r.Expect)
		}
	}
	if ran < 250 {
		t.Errorf("only %d rows could be judged", ran)
	}
}

// key describes a row for the list of deviations.
func (r engineRow) key() string {
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

func TestBashCases(t *testing.T) {
	type row struct {
		Level, Command, Mode, Expect string
		WorkingDirs                  []string `json:"working_dirs"`
		Rules                        []caseRule
		Immune                       bool `json:"bypass_immune"`
		Loose                        bool
	}
	deviations := casetest.LoadDeviations(t, "deviations_bash.json")
	bash := builtins(t, "/tmp/project")["Bash"]
	for _, r := range casetest.Rows[row](t, "bash_permission.jsonl") {
		input, err := json.Marshal(map[string]string{"command": r.Command})
		if err != nil {
			t.Fatal(err)
		}
		call := tool.PermissionCall(bash, input)
		p := policyOf(t, r.Mode, r.Rules, r.WorkingDirs)
		var got string
		var safety bool
		if r.Level == "tool" {
			v := call.Check(p)
			if got = string(v.Behavior); got == "" {
				got = "passthrough"
			}
			safety = v.Safety
			if r.Loose && got != "allow" && r.Expect != "allow" {
				continue // upstream's test asserts only that it is not allowed
			}
		} else {
			d := permission.Decide(p, call)
			got, safety = string(d.Behavior), d.Safety
		}
		if (got != r.Expect || safety != r.Immune) && !deviations.Allowed(r.Level+" "+r.Command) {
			t.Errorf("%s %s %q %v: %s safety=%v, upstream %s %v", r.Level, r.Mode, r.Command, r.Rules, got, safety, r.Expect, r.Immune)
		}
	}
}

// A rule whose behavior is misspelled denies: it may have been meant to.
func TestUnknownBehaviorDenies(t *testing.T) {
	for _, b := range []permission.Behavior{"Deny", "block", ""} {
		p := &permission.Policy{Mode: permission.Bypass, Rules: []permission.Rule{{Tool: "Bash", Behavior: b}}}
		if d := permission.Decide(p, &permission.Call{Tool: "Bash"}); d.Behavior != permission.Deny {
			t.Errorf("%q: %s (%s)", b, d.Behavior, d.Reason)
		}
		if d := permission.Decide(p, &permission.Call{Tool: "Read"}); d.Behavior != permission.Allow {
			t.Errorf("%q, another tool: %s (%s)", b, d.Behavior, d.Reason)
		}
	}
}
