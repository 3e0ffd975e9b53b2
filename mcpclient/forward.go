package mcpclient

import (
	"cmp"
	"encoding/json"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/permission"
)

// A server may have a tool that calls its other tools, as kitbag's server has for clients whose list cannot
// change: call_tool {"name": …, "arguments": …}. Deny and ask rules for the other tool apply to such a call.
// Allow rules do not, since any server could claim that one of its tools forwards calls.

// forwards reports whether a tool's input has the form of a call.
func forwards(schema json.RawMessage) bool {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	return json.Unmarshal(schema, &s) == nil && s.Properties["name"] != nil && s.Properties["arguments"] != nil
}

// Judge implements [tool.Judge].
func (t *remoteTool) Judge(c *permission.Call) {
	if t.forwards {
		c.Checker = &forwardedCall{tool: t, input: c.Input}
	}
}

// A forwardedCall is the [permission.Checker] for a call of a tool that calls other tools.
type forwardedCall struct {
	permission.BaseChecker
	tool  *remoteTool     // the tool that forwards the call
	input json.RawMessage // of that tool
}

// Check applies the deny and ask rules for the tool that the call is forwarded to. A rule may have the tool's name for the
// model, or the name without a hash.
func (f *forwardedCall) Check(p *permission.Policy) permission.Verdict {
	var call struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if strictjson.Unmarshal(f.input, &call) != nil || call.Name == "" {
		return permission.Verdict{}
	}
	if len(call.Arguments) == 0 || string(call.Arguments) == "null" {
		call.Arguments = json.RawMessage("{}")
	}
	rules := *p
	rules.Mode = permission.ModeDefault // the mode in which only rules decide
	prefix := f.tool.cfg.Prefix
	modelName := cmp.Or(f.tool.modelNames[call.Name], toolNames(prefix, []string{call.Name})[call.Name]) // a tool may be unlisted
	var verdict permission.Verdict
	for _, name := range []string{modelName, prefix + legalName(call.Name)} {
		d := permission.Decide(&rules, &permission.Call{Tool: name, Input: call.Arguments})
		if d.Rule != nil && d.Behavior != permission.Allow && verdict.Behavior != permission.Deny {
			verdict = permission.Verdict{Behavior: d.Behavior, Safety: true, Reason: d.Reason}
		}
	}
	return verdict
}
