package mcpgateway_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestRuleHoldsWhereAToolIsForwarded connects kitbag's client to kitbag's server, whose tools are found by
// searching, and checks that a rule for one of them applies to call_tool, by which it is called.
func TestRuleHoldsWhereAToolIsForwarded(t *testing.T) {
	book := tool.Must(tool.New("book", "Books a trip.", func(context.Context, struct{}) (string, error) { return "booked", nil }))
	tk, err := toolkit.New(toolkit.Config{Control: toolkit.Discover(), Groups: []toolkit.Group{{Name: "trips", Description: "Trips.", Tools: []tool.Tool{book}}}})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := mcpserver.New(mcpserver.Config{Toolkit: tk, Name: "trips", Version: "1", MaxListBytes: -1, Policy: &permission.Policy{Mode: permission.ModeBypass}})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	c, err := mcpclient.New("trips", mcpclient.Dial(dial(srv)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tools, err := c.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := c.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if len(g.Members()) == 0 {
			t.Errorf("group %s has no tools", g.Name)
		}
	}
	input := json.RawMessage(`{"name":"book"}`)
	for _, tl := range tools {
		if tl.Info().Name != "mcp__trips__call_tool" {
			continue
		}
		for rule, want := range map[string]permission.Behavior{"mcp__trips__book": permission.Deny, "mcp__trips__*k": permission.Deny, "mcp__trips__look": permission.Allow} {
			p := &permission.Policy{Mode: permission.ModeBypass, Rules: []permission.Rule{{Tool: rule, Behavior: permission.Deny}}}
			if d := permission.Decide(p, tool.PermissionCall(tl, input)); d.Behavior != want {
				t.Errorf("deny %s: %s %s", rule, d.Behavior, d.Reason)
			}
		}
		return
	}
	t.Error("there is no mcp__trips__call_tool")
}
