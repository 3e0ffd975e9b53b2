package tool

import "encoding/json"

// Labeled is implemented by a tool that names the groups it belongs to, such
// as one of an MCP server that labels its tools. Without it the tool names none.
type Labeled interface{ Labels() []string }

// LabelsKey is the member of a primitive's _meta that names its groups, as
// MCP's proposal for grouping has it.
const LabelsKey = "io.modelcontextprotocol/groups"

// MetaLabels returns the groups that an MCP primitive's _meta names. What is
// not a list of strings, or not in one, is left out, without an error: servers
// send all kinds of things.
func MetaLabels(meta json.RawMessage) []string {
	var m map[string]json.RawMessage
	var list []json.RawMessage
	if json.Unmarshal(meta, &m) != nil || json.Unmarshal(m[LabelsKey], &list) != nil {
		return nil
	}
	var out []string
	for _, raw := range list {
		var s *string
		if json.Unmarshal(raw, &s) == nil && s != nil {
			out = append(out, *s)
		}
	}
	return out
}
