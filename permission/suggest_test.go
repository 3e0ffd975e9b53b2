package permission_test

import (
	"encoding/json"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/permission"
)

// TestSuggestedRulesAllow checks that the rules suggested with a question allow the call. None is suggested
// if a safety question or an ask rule has precedence.
func TestSuggestedRulesAllow(t *testing.T) {
	asked, offered := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		rule := rapid.Custom(func(t *rapid.T) permission.Rule {
			return permission.Rule{
				Tool:     rapid.SampledFrom([]string{"run", "r*", "read"}).Draw(t, "tool"),
				Pattern:  rapid.SampledFrom([]string{"", "x", "y", "broken"}).Draw(t, "pattern"),
				Behavior: rapid.SampledFrom([]permission.Behavior{permission.Allow, permission.Ask, permission.Deny}).Draw(t, "behavior"),
			}
		})
		p := &permission.Policy{
			Mode:  rapid.SampledFrom([]permission.Mode{permission.ModeDefault, permission.ModeAcceptEdits}).Draw(t, "mode"),
			Rules: rapid.SliceOfN(rule, 0, 3).Draw(t, "rules"),
		}
		verdict := permission.Verdict{
			Behavior: rapid.SampledFrom([]permission.Behavior{permission.BehaviorNone, permission.Ask}).Draw(t, "verdict"),
			Safety:   rapid.Bool().Draw(t, "safety"),
		}
		checks := permission.Checks{OnCheck: func(*permission.Policy) permission.Verdict { return verdict }}
		if rapid.Bool().Draw(t, "takes patterns") {
			checks.OnMatch = func(_ *permission.Policy, r permission.Rule) (bool, error) {
				if r.Pattern == "broken" {
					return false, errors.New("no such pattern")
				}
				return r.Pattern == "x", nil
			}
		}
		c := &permission.Call{Tool: "run", Input: json.RawMessage(`{}`), Checker: checks}
		d := permission.Decide(p, c)
		if d.Behavior != permission.Ask {
			return
		}
		asked++
		if len(d.Suggest) == 0 {
			if d.Rule == nil && !d.Safety {
				t.Fatalf("%+v: nothing is suggested", d)
			}
			return
		}
		offered++
		q := *p
		q.Rules = append(q.Rules[:len(q.Rules):len(q.Rules)], d.Suggest...)
		if after := permission.Decide(&q, c); after.Behavior != permission.Allow {
			t.Fatalf("asked as %q; with the suggested %v: %+v", d.Reason, d.Suggest, after)
		}
	})
	if (asked < 20 || offered < 5) && !testing.Short() {
		t.Errorf("%d questions, %d with a suggestion", asked, offered)
	}
}

// TestReasonOfUnreadablePattern checks the reason if a rule covers a call only because the tool cannot read its
// pattern.
func TestReasonOfUnreadablePattern(t *testing.T) {
	match := func(_ *permission.Policy, r permission.Rule) (bool, error) {
		if r.Pattern == "(" {
			return false, errors.New("no closing parenthesis")
		}
		return true, nil
	}
	for _, row := range []struct {
		rule  permission.Rule
		match func(*permission.Policy, permission.Rule) (bool, error)
		want  string
	}{
		{permission.Rule{Tool: "add", Pattern: "2", Behavior: permission.Ask}, nil,
			"asked by rule add(2), which covers every call because its pattern is invalid: the tool takes no patterns"},
		{permission.Rule{Tool: "add", Pattern: "(", Behavior: permission.Deny}, match,
			"denied by rule add((), which covers every call because its pattern is invalid: no closing parenthesis"},
		{permission.Rule{Tool: "add", Pattern: "2", Behavior: permission.Ask}, match, "asked by rule add(2)"},
		{permission.Rule{Tool: "add", Behavior: permission.Ask}, nil, "asked by rule add"},
	} {
		d := permission.Decide(&permission.Policy{Rules: []permission.Rule{row.rule}}, &permission.Call{Tool: "add", Checker: permission.Checks{OnMatch: row.match}})
		if d.Reason != row.want {
			t.Errorf("%v: %q, want %q", row.rule, d.Reason, row.want)
		}
	}
}
