package mcpserver

import (
	"slices"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
)

// TestRuleTexts checks that people see the invisible characters of the rules that they accept.
func TestRuleTexts(t *testing.T) {
	got := ruleTexts([]permission.Rule{{Tool: "Read", Pattern: "a\u202eb/**"}, {Tool: "add"}})
	if want := []string{"Read(a<U+202E>b/**)", "add"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
