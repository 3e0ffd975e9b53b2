package permission_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/permission"
)

// panicking is a Checker all of whose methods panic.
type panicking struct{}

func (panicking) Check(*permission.Policy) permission.Verdict             { panic("check") }
func (panicking) Match(*permission.Policy, permission.Rule) (bool, error) { panic("match") }
func (panicking) Suggest(*permission.Policy) []permission.Rule            { panic("suggest") }
func (panicking) Parts(*permission.Policy) []permission.Part              { panic("parts") }

// TestPanics: a call whose Checker panics is asked about; deny and ask rules with a pattern
// cover it, allow rules do not.
func TestPanics(t *testing.T) {
	rule := func(b permission.Behavior) []permission.Rule {
		return []permission.Rule{{Tool: "t", Pattern: "x", Behavior: b}}
	}
	c := &permission.Call{Tool: "t", Checker: panicking{}}
	for _, row := range []struct {
		policy permission.Policy
		want   permission.Behavior
		safety bool
	}{
		{permission.Policy{}, permission.Ask, true},
		{permission.Policy{Mode: permission.ModeDontAsk}, permission.Deny, false},
		{permission.Policy{Rules: rule(permission.Allow)}, permission.Ask, true},
		{permission.Policy{Mode: permission.ModeBypass, Rules: rule(permission.Ask)}, permission.Ask, false},
		{permission.Policy{Mode: permission.ModeBypass, Rules: rule(permission.Deny)}, permission.Deny, false},
	} {
		if d := permission.Explain(&row.policy, c); d.Behavior != row.want || d.Safety != row.safety || d.Suggest != nil || d.Parts != nil {
			t.Errorf("%+v: %+v, want %s", row.policy, d, row.want)
		}
	}
	if err := (&permission.Policy{Rules: rule(permission.Allow)}).Check(c); err == nil {
		t.Error("Check accepts a pattern that cannot be matched")
	}
	if !c.TakesPatterns(&permission.Policy{}) || (&permission.Call{Tool: "t"}).TakesPatterns(&permission.Policy{}) {
		t.Error("TakesPatterns")
	}
}
