package permission_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/permission"
)

// TestSandboxed compares mode sandboxed with accept-edits, for a call of each kind: it differs only where
// accept-edits asks, without a rule or a danger, about a call that the tool confines.
func TestSandboxed(t *testing.T) {
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		behavior := rapid.SampledFrom([]permission.Behavior{permission.Allow, permission.Ask, permission.Deny})
		rule := rapid.Custom(func(t *rapid.T) permission.Rule {
			return permission.Rule{Tool: rapid.SampledFrom([]string{"run", "*", "other"}).Draw(t, "tool"), Behavior: behavior.Draw(t, "behavior")}
		})
		v := permission.Verdict{
			Behavior: rapid.SampledFrom([]permission.Behavior{permission.BehaviorNone, permission.Allow, permission.Ask, permission.Deny}).Draw(t, "verdict"),
			Safety:   rapid.Bool().Draw(t, "safety"),
			Confined: rapid.Bool().Draw(t, "confined"),
			Found: permission.Judgement{
				Profile: rapid.SampledFrom([]permission.Profile{"", permission.ProfileRead, permission.ProfileWork, permission.ProfileOpen, "other"}).Draw(t, "profile")},
		}
		rules := rapid.SliceOfN(rule, 0, 2).Draw(t, "rules")
		c := &permission.Call{Tool: "run", ReadOnly: rapid.Bool().Draw(t, "read-only"), Checker: permission.Says(v)}
		edits := permission.Decide(&permission.Policy{Mode: permission.ModeAcceptEdits, Rules: rules}, c)
		got := permission.Decide(&permission.Policy{Mode: permission.ModeSandboxed, Rules: rules}, c)
		may := edits.Behavior == permission.Ask && edits.Rule == nil && !edits.Safety && v.Confined &&
			(v.Found.Profile == permission.ProfileRead || v.Found.Profile == permission.ProfileWork)
		if got.Confined != (v.Confined && got.Behavior != permission.Deny) {
			t.Fatalf("%+v: confined %v", v, got.Confined)
		}
		switch {
		case may && got.Behavior != permission.Allow, !may && got.Behavior != edits.Behavior:
			t.Fatalf("sandboxed: %+v; accept-edits: %+v", got, edits)
		case may:
			allowed++
		}
	})
	if allowed < 5 && !testing.Short() {
		t.Errorf("%d calls allowed for being confined", allowed)
	}
}

// TestNetwork checks when a confined call may use the network.
func TestNetwork(t *testing.T) {
	network := func(b permission.Behavior) permission.Rule { return permission.Rule{Tool: "Network", Behavior: b} }
	run := permission.Rule{Tool: "run", Behavior: permission.Allow}
	for _, row := range []struct {
		name    string
		mode    permission.Mode
		rules   []permission.Rule
		profile permission.Profile
		uses    bool
		want    bool
	}{
		{"a person is asked about a call that uses it", permission.ModeDefault, nil, permission.ProfileWork, true, true},
		{"a person is asked about one that does not", permission.ModeDefault, nil, permission.ProfileWork, false, false},
		{"the mode allows the call", permission.ModeSandboxed, nil, permission.ProfileWork, true, false},
		{"bypass allows the call", permission.ModeBypass, nil, permission.ProfileWork, true, false},
		{"a rule allows the call", permission.ModeDefault, []permission.Rule{run}, permission.ProfileWork, true, true},
		{"a rule allows a call that does not use it", permission.ModeDefault, []permission.Rule{run}, permission.ProfileWork, false, false},
		{"rule Network", permission.ModeSandboxed, []permission.Rule{network(permission.Allow)}, permission.ProfileWork, false, true},
		{"rule Network, for one that only reads", permission.ModeSandboxed, []permission.Rule{network(permission.Allow)}, permission.ProfileRead, false, false},
		{"one that only reads, from the network", permission.ModeSandboxed, nil, permission.ProfileRead, true, true},
		{"denied to one that only reads", permission.ModeSandboxed, []permission.Rule{network(permission.Deny)}, permission.ProfileRead, true, false},
		{"denied and asked", permission.ModeDefault, []permission.Rule{network(permission.Deny)}, permission.ProfileWork, true, false},
		{"denied after it was allowed", permission.ModeSandboxed, []permission.Rule{network(permission.Allow), network(permission.Deny)}, permission.ProfileWork, true, false},
		{"allowed for one host", permission.ModeSandboxed, []permission.Rule{{Tool: "Network", Pattern: "a", Behavior: permission.Allow}}, permission.ProfileWork, true, false},
		{"denied for one host", permission.ModeDefault, []permission.Rule{{Tool: "Network", Pattern: "a", Behavior: permission.Deny}}, permission.ProfileWork, true, false},
		{"unknown behavior", permission.ModeDefault, []permission.Rule{network("may")}, permission.ProfileWork, true, false},
		{"not confined", permission.ModeSandboxed, nil, permission.ProfileOpen, true, true},
	} {
		c := &permission.Call{Tool: "run", Checker: permission.Says(permission.Verdict{Confined: true, Found: permission.Judgement{Profile: row.profile, Network: row.uses}})}
		d := permission.Decide(&permission.Policy{Mode: row.mode, Rules: row.rules}, c)
		if d.Behavior == permission.Deny || d.Judgement.Network != row.want || !d.Judgement.Covers("run", nil) {
			t.Errorf("%s: %+v, want the network: %v", row.name, d, row.want)
		}
	}
}

// TestNarrower combines the judgements of two policies: the call has only the rights that both grant.
func TestNarrower(t *testing.T) {
	decide := func(profile permission.Profile, network bool) permission.Decision {
		return permission.Decide(&permission.Policy{}, &permission.Call{Tool: "run", Checker: permission.Says(permission.Verdict{Found: permission.Judgement{Profile: profile, Network: network}})})
	}
	c := &permission.Call{Tool: "run"}
	for _, row := range []struct {
		a, b, want permission.Profile
	}{
		{permission.ProfileOpen, permission.ProfileWork, permission.ProfileWork}, {permission.ProfileWork, permission.ProfileRead, permission.ProfileRead},
		{permission.ProfileOpen, permission.ProfileOpen, permission.ProfileOpen}, {"", "", ""},
	} {
		for _, d := range []permission.Decision{
			permission.Stricter(c, decide(row.a, true), decide(row.b, false)), permission.Stricter(c, decide(row.b, false), decide(row.a, true)),
		} {
			if d.Judgement.Profile != row.want || d.Judgement.Network || !d.Judgement.Covers("run", nil) {
				t.Errorf("%q and %q: %+v", row.a, row.b, d.Judgement)
			}
		}
	}
}
