package tool_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// panicking is a tool whose Judge panics.
type panicking struct{ tool.Tool }

func (p panicking) Unwrap() tool.Tool { return p.Tool }

func (panicking) Judge(*permission.Call) { panic("judge") }

// TestJudgementsThatPanic: if a tool cannot judge a call, deny rules apply, allow rules do not, and the user
// is asked.
func TestJudgementsThatPanic(t *testing.T) {
	plain := tool.Must(tool.New("t", "A tool.", func(context.Context, struct{}) (string, error) { return "", nil }, tool.Options{ReadOnly: true}))
	call := tool.PermissionCall(panicking{plain}, json.RawMessage(`{}`))
	rule := func(b permission.Behavior) []permission.Rule {
		return []permission.Rule{{Tool: "t", Pattern: "x", Behavior: b}}
	}
	for _, row := range []struct {
		policy permission.Policy
		want   permission.Behavior
	}{
		{permission.Policy{TrustReadOnly: true}, permission.Ask},
		{permission.Policy{Mode: permission.ModeExplore}, permission.Deny},
		{permission.Policy{Rules: rule(permission.Allow)}, permission.Ask},
		{permission.Policy{Mode: permission.ModeBypass, Rules: rule(permission.Deny)}, permission.Deny},
	} {
		if d := permission.Decide(&row.policy, call); d.Behavior != row.want || d.ReadOnly {
			t.Errorf("%+v: %+v, want %s", row.policy, d, row.want)
		}
	}
}
