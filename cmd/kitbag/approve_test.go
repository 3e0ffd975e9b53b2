package main

import (
	"encoding/json"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
)

// TestParseAllowed accepts edited rules only if they allow the call and are about no other tool.
func TestParseAllowed(t *testing.T) {
	q := &event.Approval{Name: "Bash", Input: json.RawMessage(`{"command":"go test ./..."}`)}
	for text, ok := range map[string]bool{"Bash(go test:*)": true, "Bash": true, "Bash(rm:*)": false, "*": false, "Ba*": false, "Write": false} {
		if _, err := parseAllowed(q, []string{text}); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
