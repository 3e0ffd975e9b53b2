package mcpclient

import (
	"encoding/json"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/permission"
)

// A server may have a tool by which its others are called, as kitbag's own has for clients
// whose list must not change: call_tool {"name": …, "arguments": …}. A rule that denies one
// of the others, or has a person asked, holds for it there too. An allow rule for another
// does not: any server could say that a tool of it is such a one.

// forwards reports whether the input of a tool is that of a call.
func forwards(schema json.RawMessage) bool {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	return json.Unmarshal(schema, &s) == nil && s.Properties["name"] != nil && s.Properties["arguments"] != nil
}

// CheckPermission judges a call by which another tool of the server is called as one of
// that tool.
func (t *remoteTool) CheckPermission(p *permission.Policy, input json.RawMessage) permission.Verdict {
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if !t.forwards || strictjson.Unmarshal(input, &call) != nil || call.Name == "" {
		return permission.Verdict{}
	}
	if len(call.Arguments) == 0 || string(call.Arguments) == "null" {
		call.Arguments = json.RawMessage("{}")
	}
	rules := *p
	rules.Mode = permission.Default // in which a deny rule denies, and an ask rule asks, and nothing else counts
	d := permission.Decide(&rules, &permission.Call{Tool: t.client.cfg.Prefix + legal(call.Name), Input: call.Arguments})
	if d.Rule == nil || d.Behavior == permission.Allow {
		return permission.Verdict{}
	}
	return permission.Verdict{Behavior: d.Behavior, Safety: true, Reason: d.Reason}
}
