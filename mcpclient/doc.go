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
// certainly never read it, or if the tool of a trusted server says that it changes
// nothing or may be repeated: nothing else runs twice. Close kills the server's whole process group.
//
// The list of tools is kept until the server says that it has changed; the
// slice that [Client.Tools] returns changes only when its content does.
//
// A list that changes is told to [Client.OnChange]; a toolkit is kept up to date
// with
//
//	files.OnChange(tk.Refresh)
//
// # Protocols
//
// Servers of the revisions 2024-11-05 to 2026-07-28 are spoken to, over stdio,
// streamable HTTP, SSE, or whatever Config.Dial returns. The client asks a
// server once which revision it speaks, and remembers. The library that carries
// the messages, mark3labs/mcp-go, is not seen outside: results are read from the
// raw JSON, so that nothing is lost that it does not know.
//
// # Groups
//
// [Client.Groups] returns a server's groups, from groups/list and from the
// labels of its tools (io.modelcontextprotocol/groups). Each is a [tool.Source],
// for a group of a toolkit. A server without groups is one group.
//
// # Prompts, resources, logs
//
// A model is given tools. For programs that pass on what else a server has, such as a
// gateway, [Client.Prompts], [Client.Resources] and their like return the JSON that the
// server sent, [Client.WatchResource] tells when a resource was updated, and Config.Log is
// told what it logs.
//
// # What servers ask
//
// A server may want to ask the person something, to use the host's model, or to
// know the working directories. It is told that it may only where Config.Elicit,
// Config.Sample or Config.Roots is set. An agent answers for its own calls with
//
//	Config{Elicit: mcpclient.AskCaller, Sample: mcpclient.SampleCaller, …}
//
// Until 2025-11-25 a server does not say which call a question belongs to, but over
// HTTP, where the stream tells. Where it could be calls of several hosts, it is
// refused: nobody sees what somebody else is asked. That a server asks the wrong
// person on purpose nobody can prevent but by giving each user a client of their
// own. While a question is open the call's Timeout stands still, its MaxTimeout
// does not. A server may ask 20 times within one call, and have 16 questions open;
// Config.MaxSamples bounds the samples in its lifetime.
//
// A server of 2025-11-25 may also refuse a call until the person has visited a page
// (code -32042): the page goes to Config.Elicit, and the model is told to call again.
//
// # Logging in
//
// With Config.OAuth a client logs in when a server asks for it, and again when a
// token no longer does or has too small a scope. The host only has to show a page
// and to catch the redirect. Tokens go to the host of Config.URL and nowhere
// else, and credentials to the issuer that gave them. A server elsewhere cannot have
// us connect to this machine: each address is judged when it is dialled. Where requests
// go through a proxy only names are judged, and the addresses are for the proxy to judge.
//
// # Names
//
// A tool is called mcp__SERVER__TOOL, with what model APIs do not take replaced
// by underscores. Where two names would be equal or longer than 64 characters
// they end in a hash of the original. [Origin] tells the server's own name. A server's
// name that would let its tools have the names of another server's is refused.
//
// # Trust
//
// A server's words are claims. Descriptions and instructions reach the model without
// characters that people do not see, and results without those that carry words. What a
// server changes about a tool that was allowed is held back where Config.Pins is set. A
// message that two readers could read differently is refused, and so is an answer to
// another request than the one that was made. Hints count only where Config.TrustReadOnly is set: then a tool with
// readOnlyHint is read-only to the permission engine and runs beside others, and a call
// with that hint or idempotentHint of which nobody knows whether it had its effect is
// made once more: when the connection was lost, and after a crash
// ([tool.IdempotentChecker]). The annotations of others are passed on as the claims that
// they are ([tool.Info]). Schemas are passed on whole, and no reference in one is ever fetched. Messages, lists and
// results are capped. A started server gets only the variables it is meant to
// have, but it runs with the rights of this program: it is not sandboxed.
package mcpclient
