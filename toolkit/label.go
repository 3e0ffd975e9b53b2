package toolkit

// Labeled is implemented by a tool that names the groups it belongs to, such
// as one of an MCP server that labels its tools. Without it the tool names none.
type Labeled interface{ Labels() []string }
