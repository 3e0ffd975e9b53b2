package tool_test

import (
	"context"
	"encoding/json"
	"path"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

type deleteIn struct {
	Path  string `json:"path"`
	Force bool   `json:"force,omitempty"`
}

func deletes(context.Context, deleteIn) (string, error) { return "deleted", nil }

var deleteOptions = tool.Options{
	Match: tool.Match(func(in deleteIn, pattern string) (bool, error) { return path.Match(pattern, in.Path) }),
	Suggest: tool.Suggest(func(in *deleteIn) []string {
		return []string{path.Dir(in.Path) + "/*", "elsewhere", "", "["}
	}),
}

// TestPatterns: the patterns of rules are matched with the arguments of the function.
func TestPatterns(t *testing.T) {
	del := tool.Must(tool.New("delete", "Deletes.", deletes, deleteOptions))
	for _, row := range []struct{ rule, behavior, input, want string }{
		{"delete(tmp/*)", "allow", `{"path":"tmp/a"}`, "allow"},
		{"delete(tmp/*)", "allow", `{"path":"src/a"}`, "ask"},
		{"delete(tmp/*)", "deny", `{"path":"tmp/a"}`, "deny"},
		{"delete(tmp/*)", "deny", `{"path":"src/a"}`, "ask"},
		{"delete([)", "allow", `{"path":"tmp/a"}`, "ask"},
		{"delete([)", "deny", `{"path":"tmp/a"}`, "deny"},
		{"delete(tmp/*)", "allow", `{"path":3}`, "ask"},
		{"delete(tmp/*)", "deny", `{"path":3}`, "deny"},
	} {
		r, err := permission.ParseRule(row.rule, permission.Behavior(row.behavior))
		if err != nil {
			t.Fatal(err)
		}
		for _, tl := range []tool.Tool{del, tool.With(del)} {
			d := permission.Decide(&permission.Policy{Rules: []permission.Rule{r}}, tool.PermissionCall(tl, json.RawMessage(row.input)))
			if string(d.Behavior) != row.want {
				t.Errorf("%s %s %s: %s (%s), want %s", row.behavior, row.rule, row.input, d.Behavior, d.Reason, row.want)
			}
		}
	}
	ask := permission.Decide(&permission.Policy{}, tool.PermissionCall(del, json.RawMessage(`{"path":"tmp/a"}`)))
	if len(ask.Suggest) != 1 || ask.Suggest[0].String() != "delete(tmp/*)" {
		t.Errorf("suggested %v", ask.Suggest)
	}
	if err := (&permission.Policy{Rules: []permission.Rule{{Tool: "delete", Pattern: "[", Behavior: permission.Allow}}}).Check(tool.AnyCall(del)); err == nil {
		t.Error("Check accepts a pattern that cannot be read")
	}
	all, err := tool.Methods(deleter{}, map[string]tool.Options{"Delete": deleteOptions})
	if err != nil {
		t.Fatal(err)
	}
	if c := tool.PermissionCall(all[0], json.RawMessage(`{"path":"a"}`)); !c.TakesPatterns(&permission.Policy{}) {
		t.Error("a method takes no patterns")
	}
}

type deleter struct{}

func (deleter) Delete(context.Context, *deleteIn) (string, error) { return "", nil }

// TestPatternsRefused: patterns that do not fit the function are an error of New.
func TestPatternsRefused(t *testing.T) {
	other := func(in echoIn, pattern string) (bool, error) { return in.Text == pattern, nil }
	for _, row := range []struct {
		options tool.Options
		want    string
	}{
		{tool.Options{Match: tool.Match(other)}, "Options.Match is for arguments of type tool_test.echoIn; the tool's are tool_test.deleteIn"},
		{tool.Options{Match: tool.Match[deleteIn](nil)}, "Options.Match has no function"},
		{tool.Options{Suggest: deleteOptions.Suggest}, "Options.Match has no function"},
		{tool.Options{Match: deleteOptions.Match, Suggest: tool.Suggest(func(echoIn) []string { return nil })}, "Options.Suggest is for arguments of type"},
		{tool.Options{Match: deleteOptions.Match, Suggest: tool.Suggest[deleteIn](nil)}, "Options.Suggest has no function"},
	} {
		if _, err := tool.New("delete", "Deletes.", deletes, row.options); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%v, want %q", err, row.want)
		}
	}
}
