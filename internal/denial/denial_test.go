package denial

import (
	"errors"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestTexts(t *testing.T) {
	const decision = " That is a decision: do not do the same in another way. Continue without it, or say what you would need."
	for _, row := range []struct{ got, want string }{
		{Denied("Bash", "denied by rule Bash(rm:*)"), "This call of Bash was denied by rule Bash(rm:*)." + decision},
		{Denied("Bash", "mode explore: touch b does more than read"), "This call of Bash was denied: mode explore: touch b does more than read." + decision},
		{Refused("Bash", ""), "The user refused this call of Bash." + decision},
		{Refused("Bash", "use another name"), "The user refused this call of Bash. Reason: use another name"},
	} {
		if row.got != row.want {
			t.Errorf("got %s\nwant %s", row.got, row.want)
		}
	}
}

// TestHidden checks for which policies a call of a tool that the model does not see is denied, not unknown.
func TestHidden(t *testing.T) {
	rule := func(tool, pattern string, b permission.Behavior) permission.Rule {
		return permission.Rule{Tool: tool, Pattern: pattern, Behavior: b}
	}
	every, some := rule("X", "", permission.Deny), rule("X", "a*", permission.Deny)
	for _, row := range []struct {
		rules  []permission.Rule
		denied bool
	}{
		{nil, false},
		{[]permission.Rule{every}, true},
		{[]permission.Rule{some}, false},
		{[]permission.Rule{some, every}, true},
		{[]permission.Rule{every, some}, true},
		{[]permission.Rule{rule("X", "", permission.Allow), rule("X*", "", permission.Deny)}, true},
		{[]permission.Rule{rule("X", "", permission.Ask)}, false},
		{[]permission.Rule{rule("Y", "", permission.Deny)}, false},
	} {
		for _, mode := range []permission.Mode{permission.ModeDefault, permission.ModeBypass, permission.ModeDontAsk, permission.ModeExplore} {
			p := &permission.Policy{Mode: mode, Rules: row.rules}
			err := Hidden(p, "X", errors.New("unknown tool"))
			if _, denied := err.(*Error); denied != row.denied {
				t.Errorf("%v %v: %v", mode, row.rules, err)
			}
		}
	}
	inner := Hidden(&permission.Policy{Rules: []permission.Rule{every}}, "call_tool", &toolkit.HiddenError{Tool: "X"})
	if want := Denied("X", "denied by rule X"); inner.Error() != want {
		t.Errorf("%v, want %s", inner, want)
	}
}
