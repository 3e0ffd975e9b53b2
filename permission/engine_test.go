package permission_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/permission"
)

// TestEngineCases runs the cases about tools that a case describes; package builtin runs those about the
// built-in tools.
func TestEngineCases(t *testing.T) {
	deviations := casetest.LoadDeviations(t, "deviations_engine.json")
	ran := casetest.CheckEngine(t, t.TempDir(), deviations, func(r casetest.EngineRow) *permission.Call {
		if !strings.HasPrefix(r.Tool, "Fake") {
			return nil
		}
		c := &permission.Call{Tool: r.Tool, Input: r.Input, ReadOnly: r.Props.ReadOnly}
		if d := r.Props.Decision; d != nil && *d != "passthrough" {
			c.Checker = permission.Says(permission.Verdict{Behavior: permission.Behavior(*d), Safety: r.Props.Immune, Reason: "as the row says"})
		}
		return c
	})
	if ran < 200 {
		t.Errorf("only %d rows could be judged", ran)
	}
}

// TestUnknownBehaviorDenies: a rule with a misspelled behavior denies, because that may be its purpose.
func TestUnknownBehaviorDenies(t *testing.T) {
	for _, b := range []permission.Behavior{"Deny", "block", ""} {
		p := &permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: "Bash", Behavior: b}}}
		if d := permission.Decide(p, &permission.Call{Tool: "Bash"}); d.Behavior != permission.Deny {
			t.Errorf("%q: %s (%s)", b, d.Behavior, d.Reason)
		}
		if d := permission.Decide(p, &permission.Call{Tool: "Read"}); d.Behavior != permission.Allow {
			t.Errorf("%q, another tool: %s (%s)", b, d.Behavior, d.Reason)
		}
	}
}

// TestUnknownVerdictDenies: a verdict with a misspelled behavior denies, in every mode and for every call.
func TestUnknownVerdictDenies(t *testing.T) {
	for _, mode := range []permission.Mode{permission.ModeDefault, permission.ModeAcceptEdits, permission.ModeBypass} {
		p := &permission.Policy{Mode: mode, Rules: []permission.Rule{{Tool: "T", Behavior: permission.Allow}}}
		for _, c := range []permission.Call{{ReadOnly: true}, {Control: true}, {}} {
			c.Tool, c.Checker = "T", permission.Says(permission.Verdict{Behavior: "Deny"})
			if d := permission.Decide(p, &c); d.Behavior != permission.Deny || !strings.Contains(d.Reason, `"Deny"`) {
				t.Errorf("%s, %+v: %s (%s)", mode, c, d.Behavior, d.Reason)
			}
		}
	}
}

// TestReadOnlyClaim: the claim of a tool to be read-only is used in modes that allow reading, and in the
// others only if the policy trusts it.
func TestReadOnlyClaim(t *testing.T) {
	for _, row := range []struct {
		mode    permission.Mode
		trust   bool
		want    permission.Behavior
		step    string              // that decides
		writes  permission.Behavior // the answer without the claim
		because string              // and its reason
	}{
		{permission.ModeDefault, false, "ask", "mode", "ask", "no rule covers the call"},
		{permission.ModeDefault, true, "allow", "read-only", "ask", "no rule covers the call"},
		{permission.ModeDontAsk, false, "deny", "mode", "deny", "mode dont-ask: no rule covers the call"},
		{permission.ModeDontAsk, true, "allow", "read-only", "deny", "mode dont-ask: no rule covers the call"},
		{permission.ModeAcceptEdits, false, "allow", "read-only", "ask", "no rule covers the call"},
		{permission.ModeExplore, false, "allow", "read-only", "deny", "mode explore: the call is not read-only"},
		{permission.ModeBypass, false, "allow", "read-only", "allow", "mode bypass"},
	} {
		p := &permission.Policy{Mode: row.mode, TrustReadOnly: row.trust}
		e := permission.Explain(p, &permission.Call{Tool: "Look", ReadOnly: true})
		if last := e.Steps[len(e.Steps)-1]; e.Behavior != row.want || last.Name != row.step || !e.ReadOnly {
			t.Errorf("%s, trust %v: %s by %q, want %s by %q", row.mode, row.trust, e.Behavior, last.Name, row.want, row.step)
		}
		if d := permission.Decide(p, &permission.Call{Tool: "Look"}); d.Behavior != row.writes || d.Reason != row.because || d.ReadOnly {
			t.Errorf("%s, trust %v, not read-only: %s (%s), want %s (%s)", row.mode, row.trust, d.Behavior, d.Reason, row.writes, row.because)
		}
	}
}

// TestExploreSaysWhy: a denial in the mode explore includes the reason of the tool.
func TestExploreSaysWhy(t *testing.T) {
	d := permission.Decide(&permission.Policy{Mode: permission.ModeExplore}, &permission.Call{Tool: "Bash",
		Checker: permission.Says(permission.Verdict{Reason: "rm removes a"})})
	if want := "mode explore: the call is not read-only: rm removes a"; d.Behavior != permission.Deny || d.Reason != want {
		t.Errorf("%s (%s), want deny (%s)", d.Behavior, d.Reason, want)
	}
}

// TestSteps: Explain names the steps up to the one that decides, in the order of the package's
// documentation.
func TestSteps(t *testing.T) {
	unsafe := permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "writes a hook"}
	for _, row := range []struct {
		mode  permission.Mode
		rules string // of the tool, by behavior
		own   permission.Verdict
		reads bool
		want  []string
	}{
		{permission.ModeBypass, "deny ask allow", unsafe, false, []string{"deny rules: deny, denied by rule T"}},
		{permission.ModeBypass, "ask allow", unsafe, false, []string{
			"deny rules: , none covers the call", "safety: , mode bypass skips: writes a hook", "ask rules: ask, asked by rule T"}},
		{permission.ModeDefault, "ask allow", unsafe, false, []string{"deny rules: , none covers the call", "safety: ask, writes a hook"}},
		{permission.ModeDefault, "allow", permission.Verdict{Behavior: permission.Allow, Reason: "harmless"}, true, []string{
			"deny rules: , none covers the call", "ask rules: , none covers the call",
			"read-only: , the tool's claim alone does not count in this mode", "tool: allow, harmless"}},
		{permission.ModeDefault, "allow", permission.Verdict{Reason: "writes a"}, false, []string{
			"deny rules: , none covers the call", "ask rules: , none covers the call", "tool: , writes a", "allow rules: allow, allowed by rule T"}},
		{permission.ModeDontAsk, "", permission.Verdict{Reason: "writes a"}, false, []string{
			"deny rules: , none covers the call", "ask rules: , none covers the call", "tool: , writes a",
			"allow rules: , none covers the call", "mode: ask, writes a", "mode: deny, mode dont-ask: writes a"}},
	} {
		p := &permission.Policy{Mode: row.mode}
		for _, b := range strings.Fields(row.rules) {
			p.Rules = append(p.Rules, permission.Rule{Tool: "T", Behavior: permission.Behavior(b)})
		}
		e := permission.Explain(p, &permission.Call{Tool: "T", ReadOnly: row.reads, Checker: permission.Says(row.own)})
		var got []string
		for _, s := range e.Steps {
			got = append(got, fmt.Sprintf("%s: %s, %s", s.Name, s.Answer, s.Reason))
		}
		if !slices.Equal(got, row.want) {
			t.Errorf("%s, rules %q:\n%s\nwant\n%s", row.mode, row.rules, strings.Join(got, "\n"), strings.Join(row.want, "\n"))
		}
	}
}

// TestSuggested: a question has the rules that would prevent it: those of the tool, or else one for the whole tool.
// A safety question has none, because no rule prevents it.
func TestSuggested(t *testing.T) {
	ask := func(safety bool, suggested ...permission.Rule) permission.Call {
		c := permission.Checks{OnCheck: func(*permission.Policy) permission.Verdict {
			return permission.Verdict{Behavior: permission.Ask, Safety: safety}
		}}
		if suggested != nil {
			c.OnSuggest = func(*permission.Policy) []permission.Rule { return suggested }
		}
		return permission.Call{Checker: c}
	}
	own, unnamed := permission.Rule{Tool: "T", Pattern: "p"}, []permission.Rule{{Pattern: "p"}}
	for _, row := range []struct {
		name string
		mode permission.Mode
		call permission.Call
		want string
	}{
		{"a tool that suggests", "", ask(false, own), "[T(p)]"},
		{"a tool that does not", "", ask(false), "[T]"},
		{"a tool that leaves out its name", "", ask(false, unnamed...), "[T(p)]"},
		{"a tool that suggests nothing", "", ask(false, []permission.Rule{}...), "[]"},
		{"a safety question", "", ask(true, own), "[]"},
		{"an allow", permission.ModeBypass, ask(false, own), "[]"},
		{"a deny", permission.ModeDontAsk, ask(false, own), "[]"},
	} {
		row.call.Tool = "T"
		if got := fmt.Sprint(permission.Decide(&permission.Policy{Mode: row.mode}, &row.call).Suggest); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	if unnamed[0].Tool != "" {
		t.Error("the tool's own rules were changed")
	}
}

// TestPatternOfToolWithout: the pattern of a rule for a tool without patterns covers every call in deny and
// ask rules, and none in allow rules.
func TestPatternOfToolWithout(t *testing.T) {
	for b, want := range map[permission.Behavior]permission.Behavior{"deny": "deny", "ask": "ask", "allow": "ask", "typo": "deny"} {
		p := &permission.Policy{Rules: []permission.Rule{{Tool: "add", Pattern: "1", Behavior: b}}}
		if d := permission.Decide(p, &permission.Call{Tool: "add"}); d.Behavior != want || (d.Rule == nil) != (b == "allow") {
			t.Errorf("%s add(1): %s (%s), want %s", b, d.Behavior, d.Reason, want)
		}
	}
}
