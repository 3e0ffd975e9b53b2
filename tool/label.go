package tool

import (
	"context"
	"encoding/json"
)

// Labeled is implemented by a tool that names the groups it belongs to, such
// as one of an MCP server that uses the key io.modelcontextprotocol/groups.
// Without it the tool names none.
type Labeled interface{ Labels() []string }

// A Label describes a group that tools name. Labels are the groups that it is
// itself in. The tags are those of MCP's proposed groups/list.
type Label struct {
	Name        string   `json:"name"`
	Title       string   `json:"title,omitempty"`
	Description string   `json:"description,omitempty"`
	Labels      []string `json:"labels,omitempty"`
}

// A Labeler is a [Source] that describes the groups which its tools name.
// Without it the groups have names only.
type Labeler interface {
	Labels(ctx context.Context) ([]Label, error)
}

// A Notifier is a [Source] that says when its list of tools has changed; fn is
// called then, from any goroutine, until stop. Without it the list is fetched
// again after a time only.
type Notifier interface {
	OnChange(fn func()) (stop func())
}

// LabelsKey is the member of a tool's _meta that names its groups, as MCP's
// proposal for grouping has it.
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
