// Package mcpclient gives a model the tools of MCP servers.
//
// A [Client] talks to one server. It is a [tool.Source], for a group of a toolkit:
//
//	files, err := mcpclient.New("files", mcpclient.Command{
//		Path: "npx", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", dir},
//	}, nil)
//	if err != nil {
//		return err
//	}
//	defer files.Close()
//	kit, err := toolkit.New(toolkit.Config{Groups: []toolkit.Group{
//		{Name: "files", Description: "Read and write files.", Sources: []tool.Source{files}},
//	}})
//	if err != nil {
//		return err
//	}
//	files.OnChange(kit.Refresh)
//
// The server starts when its tools are first needed: here, when the model opens the group. There are three
// transports: a [Command] is started as a process, [HTTP] names a running server, and a [Dial] connects in any
// other way. Nil [Options] are the defaults.
//
// [Load] reads the "mcpServers" files of other hosts. A [Server] is one entry, with the arguments of New:
//
//	servers, err := mcpclient.Load(".mcp.json")
//	for _, s := range servers {
//		s.Options.Elicitation = mcpclient.ElicitCaller
//		client, err := mcpclient.New(s.Name, s.Transport, &s.Options)
//		…
//	}
//
// A program without a model calls a tool by the server's own name for it with [Client.Call], which checks no
// permission.
//
// # Names
//
// A tool is called mcp__SERVER__TOOL. Characters that model APIs reject become underscores. A name that is
// longer than 64 characters, or equal to another one, ends in a hash of the original name, which [Origin]
// returns. A server must not have a name with which its tools could be mistaken for those of another server.
// Set Prefix or NoPrefix in [Options] for another prefix or none; rules that name mcp__SERVER__ then do not
// apply to the server's tools.
//
// # Groups
//
// [Client.Groups] returns the groups of a server, from groups/list and from the labels of its
// tools (io.modelcontextprotocol/groups). Each [Group] is a [tool.Source]. A server without
// groups is one group.
//
// # Skills
//
// [Client.Skills] loads the skills of a server with MCP's skills extension (SEP-2640). Models are told that the text of a
// skill is the server's. A file is fetched when it is read, and is used only if it has the listed size and digest. The
// check only shows that the server is consistent; [Options.Pins] withhold a skill that has changed since it was first read.
//
// # Tasks
//
// A server may return the result of a long call later, as a task: with MCP's tasks extension, or in revision 2025-11-25
// for tools whose list entry supports tasks. The call polls for the result as often as the server says, answers the
// server's questions, and continues after a lost connection. [Timeouts].Call limits it like any call, and the task is
// cancelled when the call's context ends. An agent with calls in the background continues in the meantime. From revision
// 2026-07-28 on it waits for the first call of a tool, since only a call shows that the tool has tasks.
//
// # Supervision
//
// When a server dies, the calls in progress fail with a [ServerError] that has the end of its stderr. The
// server is restarted, first at once and then after growing pauses; meanwhile its last list of tools is kept. A
// call is repeated if the server certainly never read it, and once if the tool of a trusted server is read-only
// or idempotent. [Client.Close] kills the server with all processes it has started.
//
// A list of tools is kept until the server announces a change. The slice that [Client.Tools]
// returns is replaced only when its content changes.
//
// # Protocol
//
// The client speaks the revisions 2024-11-05 to 2026-07-28, and finds out once which one a server speaks. It
// reads results from the raw JSON, so that members unknown to the library it uses (mark3labs/mcp-go) are kept.
//
// [Client.Prompts], [Client.Resources] and [Client.Complete] are for programs that show them
// to a user, or pass them on. [Client.WatchResource] follows a resource.
//
// # Elicitation, sampling and roots
//
// A server may ask the user a question (elicitation), use the host's model (sampling), or list
// the working directories (roots). Each is declared to the server only if [Options] sets it. For
// the tools of an agent, let the agent answer:
//
//	&mcpclient.Options{Elicitation: mcpclient.ElicitCaller, Sampling: mcpclient.SampleCaller}
//
// Before revision 2026-07-28 a server does not say which call a request belongs to, except over HTTP, where the
// stream shows it. A request that could belong to calls of several hosts is refused, so that no user sees
// another user's question. A server can still choose the wrong call: if that matters, give each user a separate
// client.
//
// While a question is open, Timeouts.Idle does not run, but Timeouts.Call does. A server may ask 20 times
// within a call, and have 16 requests open for one host.
//
// A server of revision 2025-11-25 may refuse a call until the user has visited a page (code -32042): the user
// is asked to visit the page, and the model is told to call again.
//
// # Logging in
//
// With [HTTP].OAuth the client logs in when the server demands it, and again when a token has expired or has
// too few scopes. The host shows a page and receives the redirect; see [OAuth], and [HTTP.BeginLogin] for a program that
// serves the page of the redirect to many users. Tokens are sent only to the host of the URL, and credentials only to
// their issuer; a token that the server repeats in its answer is replaced by asterisks. A server on another machine
// cannot make the client connect to this one: each address is checked when it is dialled. Behind a proxy only names are
// checked, and the proxy must check addresses.
//
// # Trust
//
// A server is not trusted:
//
//   - Characters that people do not see are removed from names, descriptions and instructions,
//     and from results if they carry text.
//   - A started server has the rights of the program, unless [Command].Confine confines it. A
//     server with a [Sandbox] is not started without Confine.
//   - [Options].Pins withhold what the server changes after it was allowed.
//   - A message that two readers could read differently is an error, and so is an answer to a
//     request that was not made.
//   - The hints of a tool count only with Options.TrustReadOnly. Then a tool with readOnlyHint
//     is read-only for the permission engine and may run in parallel, and its calls, like those
//     of a tool with idempotentHint ([tool.IdempotentChecker]), may be repeated after a crash.
//     Other annotations are passed on as claims ([tool.Info]).
//   - Schemas are passed on unchanged, and no reference in one is ever followed.
//   - The sizes of messages, lists and results are limited.
//   - A started server gets only the environment variables that it is meant to have.
package mcpclient

// Layers: each one uses only the layers above it in this list:
//
//   - process, lineReader, outbox, roundTripper, login: the connection to a server's process or URL. link: a transport
//     of mcp-go over it, with its lifetime. mcp-go frames messages and matches answers with requests.
//   - conn: a link with the negotiated revision: requests, and what the server sends (notifications, questions for
//     the calls in flight, which hub answers). protocol: the part of conn that depends on whether the revision has
//     sessions; without them it sends requests over HTTP and reads the responses itself.
//   - supervisor: at most one conn, and the state of the server.
//   - catalogue: the server's lists, pins, and watched resources.
//   - runner: requests with timeouts, progress and repetition.
//   - Client: the API.
