package permission

import (
	"encoding/json"
	"testing"
)

// TestRuleJSON checks that a rule with a misspelt pattern does not become a rule for every call.
func TestRuleJSON(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"tool":"Bash","pattern":"ls:*","behavior":"allow","source":"x"}`: true,
		`{"tool":"Bash","behavior":"deny"}`:                                true,
		`{"tool":"Bash","content":"ls:*","behavior":"allow"}`:              false,
		`"Bash"`: false,
	} {
		if err := json.Unmarshal([]byte(text), new(Rule)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
