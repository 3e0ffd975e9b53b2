package tool

import "context"

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
