package denial

import "testing"

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
