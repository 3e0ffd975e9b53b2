package permission_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/permission"
)

// TestNoNetworkOutside: a policy that denies the network also denies leaving a sandbox.
func TestNoNetworkOutside(t *testing.T) {
	p := &permission.Policy{Rules: []permission.Rule{{Tool: "Network", Behavior: permission.Deny}}}
	for _, row := range []struct {
		confined bool
		profile  permission.Profile
		want     permission.Behavior
	}{{true, permission.ProfileOpen, permission.Deny}, {true, permission.ProfileWork, permission.Ask}, {false, permission.ProfileOpen, permission.Ask}} {
		d := permission.Decide(p, &permission.Call{Tool: "run", Checker: permission.Says(permission.Verdict{Confined: row.confined, Found: permission.Judgement{Profile: row.profile}})})
		if d.Behavior != row.want {
			t.Errorf("%+v: %+v", row, d)
		}
	}
}
