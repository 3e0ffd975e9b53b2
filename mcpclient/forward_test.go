package mcpclient

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

// TestForwarded checks that a deny rule for a tool also applies if another tool of its server calls it, and
// that an allow rule for one does not allow the other.
func TestForwarded(t *testing.T) {
	raw := []json.RawMessage{
		json.RawMessage(`{"name":"call_tool","inputSchema":{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object"}}}}`),
		json.RawMessage(`{"name":"rename","inputSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`),
	}
	// The names for the model of these tools end in a hash: the first is too long, and the second would equal the third.
	long := strings.Repeat("book", 20)
	for _, name := range []string{long, "x.y", "x_y"} {
		raw = append(raw, json.RawMessage(`{"name":"`+name+`","inputSchema":{"type":"object"}}`))
	}
	names := toolNames("mcp__srv__", []string{"call_tool", "rename", long, "x.y", "x_y"})
	unlisted := strings.Repeat("read", 20)
	c := unconnected(t)
	c.cat.snap.Store(newSnapshot(c.cat, raw, nil, nil, false))
	for _, row := range []struct {
		rule        string
		behavior    permission.Behavior
		tool, input string
		want        permission.Behavior
	}{
		{"mcp__srv__book", permission.Deny, "call_tool", `{"name":"book"}`, permission.Deny},
		{"mcp__srv__book", permission.Deny, "call_tool", `{"name":"book","arguments":{"a":1}}`, permission.Deny},
		{"mcp__srv__b*", permission.Deny, "call_tool", `{"name":"book","arguments":null}`, permission.Deny},
		{"mcp__srv__book", permission.Ask, "call_tool", `{"name":"book"}`, permission.Ask},
		{"mcp__srv__a_b", permission.Deny, "call_tool", `{"name":"a.b"}`, permission.Deny},
		{names[long], permission.Deny, "call_tool", `{"name":"` + long + `"}`, permission.Deny},
		{names["x.y"], permission.Ask, "call_tool", `{"name":"x.y"}`, permission.Ask},
		{"mcp__srv__x_y", permission.Deny, "call_tool", `{"name":"x.y"}`, permission.Deny},
		{toolNames("mcp__srv__", []string{unlisted})[unlisted], permission.Deny, "call_tool", `{"name":"` + unlisted + `"}`, permission.Deny},
		{"mcp__srv__" + unlisted, permission.Deny, "call_tool", `{"name":"` + unlisted + `"}`, permission.Deny},
		{"mcp__srv__book", permission.Deny, "call_tool", `{"name":"look"}`, permission.Allow},
		{"mcp__srv__book", permission.Deny, "call_tool", `{"arguments":{"name":"book"}}`, permission.Allow},
		{"mcp__other__book", permission.Deny, "call_tool", `{"name":"book"}`, permission.Allow},
		{"mcp__srv__book", permission.Deny, "rename", `{"name":"book"}`, permission.Allow},
	} {
		p := &permission.Policy{Rules: []permission.Rule{{Tool: row.rule, Behavior: row.behavior}, {Tool: "mcp__srv__call_tool", Behavior: permission.Allow}, {Tool: "mcp__srv__rename", Behavior: permission.Allow}}}
		d := permission.Decide(p, tool.PermissionCall(find(t, c, row.tool), json.RawMessage(row.input)))
		if d.Behavior != row.want {
			t.Errorf("%s %s, %s %s: %s %s", row.behavior, row.rule, row.tool, row.input, d.Behavior, d.Reason)
		}
	}
	p := &permission.Policy{Rules: []permission.Rule{{Tool: "mcp__srv__book", Behavior: permission.Allow}}}
	if d := permission.Decide(p, tool.PermissionCall(find(t, c, "call_tool"), json.RawMessage(`{"name":"book"}`))); d.Behavior != permission.Ask {
		t.Errorf("a rule for the other tool: %s %s", d.Behavior, d.Reason)
	}
}
