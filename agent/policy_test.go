package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// patterned is a tool that supports patterns, also those of rules for Read.
type patterned struct{ tool.Tool }

func (p patterned) Unwrap() tool.Tool { return p.Tool }
func (p patterned) Judge(c *permission.Call) {
	c.Borrows, c.Checker = []string{"Read"}, patternedCall{input: c.Input}
}

type patternedCall struct {
	permission.BaseChecker
	input json.RawMessage
}

func (p patternedCall) Match(_ *permission.Policy, r permission.Rule) (bool, error) {
	var in struct{ Path string }
	if json.Unmarshal(p.input, &in) != nil || in.Path == "" {
		return false, errors.New("called with arguments that do not fit the schema")
	}
	if r.Pattern == "[" {
		return false, errors.New("the bracket is not closed")
	}
	return r.Pattern == in.Path, nil
}

// lister is a source with one tool.
type lister struct{ name string }

func (l lister) Tools(context.Context) ([]tool.Tool, error) {
	return []tool.Tool{plainTool(l.name)}, nil
}

func plainTool(name string) tool.Tool {
	return tool.Must(tool.New(name, "Does "+name+".", func(context.Context, struct {
		Path string `json:"path"`
	}) (string, error) {
		return "", nil
	}))
}

// TestPolicyOfTools: New fails on rules that cannot work with the tools.
func TestPolicyOfTools(t *testing.T) {
	below, err := New(Config{Model: &turnModel{}, Toolkit: toolkit.Of(plainTool("deploy"))})
	if err != nil {
		t.Fatal(err)
	}
	delegate, err := AsTool[string, string](below, "delegate", "Works.", nil)
	if err != nil {
		t.Fatal(err)
	}
	unlisted, err := toolkit.New(toolkit.Config{
		Basic:  toolkit.Group{Tools: []tool.Tool{plainTool("add"), plainTool("send_mail"), patterned{plainTool("Look")}, delegate}},
		Groups: []toolkit.Group{{Name: "db", Description: "Data.", Tools: []tool.Tool{plainTool("query")}, Sources: []tool.Source{lister{"mcp__trips__book"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		rule string
		want string // in the error; empty for none
	}{
		{"add", ""}, {"query", ""}, {"reset_tools", ""}, {"background", ""}, {"deploy", ""}, {"Network", ""}, {"Look(a)", ""},
		{"Read", ""}, {"Read(.env)", ""}, {"*", ""}, {"mcp__*", ""}, {"sen*", ""}, {"nothing*", ""},
		{"mcp__trips__book", ""}, {"mcp__trips__look", ""}, {"WebFetch", ""}, {"mail", ""}, {"WebFetch(domain:example.org)", ""},
		{"ad", `rule "ad" (deny): there is no tool "ad"; did you mean add?`},
		{"Add", `there is no tool "Add"; did you mean add?`},
		{"send-mail", "did you mean send_mail?"},
		{"querry", "did you mean query?"},
		{"reset_tool", "did you mean reset_tools?"},
		{"backgroud", "did you mean background?"},
		{"deplo", "did you mean deploy?"},
		{"Reed(.env)", "did you mean Read?"},
		{"add(1)", "add takes no patterns; write add without one"},
		{"deploy(prod)", "deploy takes no patterns"},
		{"Look([)", "the bracket is not closed"},
		{"reset_tools(db)", "reset_tools takes no patterns"},
	} {
		rule, err := permission.ParseRule(row.rule, permission.Deny)
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Model: &turnModel{}, Toolkit: unlisted, Background: 1, Policy: permission.Policy{Rules: []permission.Rule{rule}}}
		text := ""
		if _, err := New(cfg); err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, row.want) || row.want == "" && text != "" {
			t.Errorf("%s: %q, want %q", row.rule, text, row.want)
		}
	}
}

// TestPolicyOfListedTools: a rule for a tool that a source has listed is accepted; names similar to
// it are too, since the source may list them later.
func TestPolicyOfListedTools(t *testing.T) {
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: []tool.Tool{plainTool("seek")}, Sources: []tool.Source{lister{"seeks"}}}})
	if err != nil {
		t.Fatal(err)
	}
	try := func(rule permission.Rule) error {
		_, err := New(Config{Model: &turnModel{}, Toolkit: tk, Policy: permission.Policy{Rules: []permission.Rule{rule}}})
		return err
	}
	if err := try(permission.Rule{Tool: "seeks", Behavior: permission.Deny}); err == nil {
		t.Error("a rule with a name like that of a tool was accepted before a source listed the name")
	}
	if _, err := tk.View(t.Context(), new(toolkit.Scope)); err != nil {
		t.Fatal(err)
	}
	if err := try(permission.Rule{Tool: "seeks", Behavior: permission.Deny}); err != nil {
		t.Errorf("the tool is listed: %v", err)
	}
	if err := try(permission.Rule{Tool: "seeks", Pattern: "x", Behavior: permission.Deny}); err == nil {
		t.Error("a pattern for a listed tool without patterns was accepted")
	}
}
