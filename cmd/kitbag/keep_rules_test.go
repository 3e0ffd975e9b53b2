package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
)

// TestAddAllowRules adds rules to a configuration without touching the rest of it.
func TestAddAllowRules(t *testing.T) {
	rules := []permission.Rule{{Tool: "Bash", Pattern: "touch:*", Behavior: permission.Allow}}
	for _, row := range []struct{ before, after string }{
		{"", "{\"permissions\": {\"allow\": [\"Bash(touch:*)\"]}}\n"},
		{`{"model": "m"}`, `{"model": "m","permissions":{"allow":["Bash(touch:*)"]}}`},
		{`{"permissions": {}}`, `{"permissions": {"allow":["Bash(touch:*)"]}}`},
		{`{"permissions": {"deny": ["Bash(rm:*)"]}}`, `{"permissions": {"deny": ["Bash(rm:*)"],"allow":["Bash(touch:*)"]}}`},
		{`{"a": {"permissions": {"allow": []}}, "permissions": {"allow": []}}`, `{"a": {"permissions": {"allow": []}}, "permissions": {"allow": ["Bash(touch:*)"]}}`},
		{"{\"permissions\": {\"allow\": [\n  \"Read\"\n]}}", "{\"permissions\": {\"allow\": [\"Bash(touch:*)\",\n  \"Read\"\n]}}"},
		{`{"permissions": {"allow": ["Bash(touch:*)"]}}`, `{"permissions": {"allow": ["Bash(touch:*)"]}}`},
		{`{"permissions": {"deny": ["Bash(touch:*)"]}}`, `{"permissions": {"deny": ["Bash(touch:*)"],"allow":["Bash(touch:*)"]}}`},
		{`{"permissions": []}`, ""},
		{`[]`, ""},
	} {
		got, err := addAllowRules([]byte(row.before), rules)
		if string(got) != row.after && row.after != "" || (err == nil) != (row.after != "") {
			t.Errorf("%s became %s (%v), want %s", row.before, got, err, row.after)
		}
	}
}

// TestKeepRules keeps a rule only where what else is in the file is trusted: a model may have written it.
func TestKeepRules(t *testing.T) {
	rules := []permission.Rule{{Tool: "Bash", Pattern: "touch:*", Behavior: permission.Allow}}
	keep := func(typed string) (string, error) {
		t.Helper()
		p := newPrompt(strings.NewReader(typed), new(bytes.Buffer))
		err := new(agentFlags).keepRules(t.Context(), p, rules)
		for range p.lines { // wait for the reader to end
		}
		data, _ := os.ReadFile(configFile)
		return string(data), err
	}
	trusted := func() bool {
		t.Helper()
		c, err := readProjectConfig()
		if err != nil {
			t.Fatal(err)
		}
		mark, err := consentFile(c)
		return err == nil && hasConsent(mark)
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	workspace(t)
	if got, err := keep(""); err != nil || !strings.Contains(got, "Bash(touch:*)") || !trusted() {
		t.Errorf("%v: %s; trusted: %v", err, got, trusted())
	}
	write(configFile, `{"permissions": {"allow": ["Bash"]}}`) // as a model would
	if got, err := keep("y\n"); err == nil || strings.Contains(got, "touch") || trusted() {
		t.Errorf("%v: %s; trusted: %v", err, got, trusted())
	}
	workspace(t)
	write(".npmrc", "registry=https://example.org")
	if got, err := keep("n\n"); err == nil || got != "" || trusted() {
		t.Errorf("%v: %s; trusted: %v", err, got, trusted())
	}
	if got, err := keep("y\n"); err != nil || got == "" || !trusted() {
		t.Errorf("%v: %s; trusted: %v", err, got, trusted())
	}
}

// TestApprove has rows of what is typed at a question, and what becomes of it.
func TestApprove(t *testing.T) {
	rule := []permission.Rule{{Tool: "Bash", Pattern: "touch a:*", Behavior: permission.Allow}}
	for _, row := range []struct {
		typed   string
		suggest []permission.Rule
		allow   bool
		rules   string
		reason  string
	}{
		{"y\n", rule, true, "", ""},
		{"\nmaybe\nyes\n", rule, true, "", ""},
		{"s\n", rule, true, "Bash(touch a:*)", ""},
		{"s\ny\n", nil, true, "", ""}, // there is no rule to keep
		{"p\nn\n", rule, false, "", ""},
		{"n not today\n", rule, false, "", "not today"},
		{"e\nBash(touch:*)\ns\n", rule, true, "Bash(touch:*)", ""},
		{"e\n\ns\n", rule, true, "Bash(touch a:*)", ""},
		{"e\nBash(rm:*)\nRead\nBash(\nBash\ns\n", rule, true, "Bash", ""},
	} {
		workspace(t)
		p := newPrompt(strings.NewReader(row.typed), new(bytes.Buffer))
		got, err := p.askApproval(t.Context(), &event.Approval{Call: "c", Name: "Bash", Input: []byte(`{"command":"touch a"}`), Suggest: row.suggest})
		if err != nil || got.Allow != row.allow || ruleList(got.Rules) != row.rules || got.Reason != row.reason {
			t.Errorf("%q: %v: %+v", row.typed, err, got)
		}
		for range p.lines { // wait for the reader to end
		}
	}
}
