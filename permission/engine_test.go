package permission_test

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/internal/casetest"
	"github.com/kitbag-go/kitbag/permission"
)

// TestEngineCases judges the rows about tools that judge as the row says; those about the
// built-in tools are package builtin's.
func TestEngineCases(t *testing.T) {
	deviations := casetest.LoadDeviations(t, "deviations_engine.json")
	ran := casetest.CheckEngine(t, t.TempDir(), deviations, func(r casetest.EngineRow) *permission.Call {
		if !strings.HasPrefix(r.Tool, "Fake") {
			return nil
		}
		c := &permission.Call{Tool: r.Tool, Input: r.Input, ReadOnly: r.Props.ReadOnly}
		if d := r.Props.Decision; d != nil && *d != "passthrough" {
			c.Check = func(*permission.Policy) permission.Verdict {
				return permission.Verdict{Behavior: permission.Behavior(*d), Safety: r.Props.Immune, Reason: "as the row says"}
			}
		}
		return c
	})
	if ran < 200 {
		t.Errorf("only %d rows could be judged", ran)
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
