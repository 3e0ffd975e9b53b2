package main

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
)

// TestSystemPrompt checks that the default system prompt names the mode and what it means, and says that a refusal
// is a decision.
func TestSystemPrompt(t *testing.T) {
	for mode, want := range map[permission.Mode]string{
		"":                         "The mode is default: the user is asked about calls that do more than read.",
		permission.ModeDefault:     "The mode is default: the user is asked about calls that do more than read.",
		permission.ModeAcceptEdits: "The mode is accept-edits: files in the working directories may be changed without a question;",
		permission.ModeSandboxed:   "The mode is sandboxed: files in the working directories may be changed, and commands run that are confined",
		permission.ModeExplore:     "The mode is explore: calls that do more than read are denied,",
		permission.ModeBypass:      "The mode is bypass: nobody is asked about calls,",
		permission.ModeDontAsk:     "The mode is dont-ask: files in the working directories may be changed; nobody is asked,",
	} {
		var f agentFlags
		got, err := f.systemPrompt("/work", mode)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"in the directory /work.", want, "Rules of the user may", "A refusal, by the user or by a rule, is a decision: do not do the same in another way."} {
			if !strings.Contains(got, part) {
				t.Errorf("mode %q: the prompt does not say %q:\n%s", mode, part, got)
			}
		}
		if len(got) > 950 || strings.Contains(got, "find another way") {
			t.Errorf("mode %q: %d bytes:\n%s", mode, len(got), got)
		}
	}
}
