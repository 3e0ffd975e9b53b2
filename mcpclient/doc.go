// Package mcpclient makes the tools of an MCP server tools of a model.
//
// A [Client] is one server. It is a [tool.Source], so that a toolkit can hold
// it:
//
//	files, err := mcpclient.New(mcpclient.Config{
//		Name: "files", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", dir},
//	})
//	defer files.Close()
//	tools, err := files.Tools(ctx) // starts the server
//
// [Load] reads the "mcpServers" files that people already have. A server is
// started, or contacted, when it is first needed; [Connect] does so at once.
//
// # Staying alive
//
// The server is looked after for as long as the client is open. When it dies,
// the calls in flight fail with a [ServerError] that holds the end of its
// stderr, and it is started again, soon at first and then with growing pauses.
// Its last list of tools stays. A call is made again only if the server
// certainly never read it, or if the tool says that it changes nothing or may
// be repeated: nothing runs twice. Close kills the server's whole process group.
//
// The list of tools is kept until the server says that it has changed; the
// slice that [Client.Tools] returns changes only when its content does.
//
// # Names
//
// A tool is called mcp__SERVER__TOOL, with what model APIs do not take replaced
// by underscores. Where two names would be equal or longer than 64 characters
// they end in a hash of the original. [Origin] tells the server's own name.
//
// # Trust
//
// A server's words are claims. Descriptions reach the model as they are, and
// so do results. Hints count unless Config.DistrustHints is set: with
// readOnlyHint a tool claims to be read-only, which lets it run beside others
// and again after a crash, and the permission engine sees the claim. Schemas are
// passed on whole, and no reference in one is ever fetched. Messages, lists and
// results are capped. A started server gets only the variables it is meant to
// have, but it runs with the rights of this program: it is not sandboxed.
package mcpclient
