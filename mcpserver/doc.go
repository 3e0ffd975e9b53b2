// Package mcpserver serves a toolkit as an MCP server, so that any MCP host can
// open its groups and call its tools.
//
//	server, err := mcpserver.New(mcpserver.Config{
//		Toolkit: tk, Name: "orders", Version: "1.0.0",
//		Policy: &permission.Policy{TrustReadOnly: true},
//	})
//	defer server.Close()
//	err = server.ServeStdio(ctx, os.Stdin, os.Stdout) // or:
//	err = http.ListenAndServe("127.0.0.1:8080", server.Handler())
//
// Whoever connects has a session with a [toolkit.Scope] of its own: what it
// opens, nobody else sees. A call takes the one path that calls take in this
// module: it is resolved on the session's view, its arguments are checked, the
// permission engine decides, and then it runs. What goes wrong on the way is a
// result that the model reads, with isError set.
//
// When a call changes which tools its session sees, that session gets one
// notifications/tools/list_changed, on the stream of the call and before its
// result.
//
// # Asking
//
// When the permission engine wants somebody asked, the host is, by an
// elicitation, if it said that it can. Otherwise the call fails and its result
// names the rule that would allow it.
//
// A tool can ask, too: its context carries a [host.Host], which puts forms and pages
// to the person and samples from the client's model, as far as the client declared
// that it can; [Roots] are asked for in the same way. From revision 2026-07-28 on,
// the call waits in between for the client to repeat its request with the answers.
//
// # Revisions with and without sessions
//
// From revision 2026-07-28 on there are no sessions, and the list of tools must not depend on
// the connection. Clients of that revision are served a second toolkit of the same configuration:
// all tools, if the list is short ([Config.MaxListBytes]), or else a list that never changes, with
// [toolkit.Discover] as its control, by which every tool can be found and called. A server serves
// clients of all revisions at the same time.
//
// # Lost connections
//
// Before revision 2026-07-28 a lost connection cancels nothing: the call goes on, and its
// client gets what it has missed by a GET with Last-Event-ID, in its session and with its
// credential. A call whose client does not come back within [Limits].Resume ends; so long
// answers are kept, too, as far as 1 MiB for a session goes. To cancel, a client sends
// notifications/cancelled. From 2026-07-28 on, leaving is cancelling, and a stream
// that has been silent for 25 s says that it lives, so that nothing in between cuts it off. While
// a call goes on its HTTP request does, for [http.Server.Shutdown] as well: close the Server first.
//
// # Prompts and resources
//
// The skills of the toolkit are prompts, and their files resources with URIs such as
// skill://pdf/SKILL.md: those of the groups that a session has open, with the same
// notifications as for tools. Config.Prompts and Config.Resources come besides.
//
// # Groups
//
// Hosts that know the proposal for primitive grouping find the capability
// "groups", the method groups/list, and the groups of every tool in its _meta.
//
// # Why the wire is our own
//
// mcp-go gives us the vocabulary (revisions, codes, header rules) but not its
// server: that sorts lists by name, keeps one stdio session in a process, lets
// clients of the new era cancel each other's calls, may send a notification after
// the result that it belongs to, and knows no further methods. Views, scopes and
// the order of notifications are what this package is for.
//
// # Trust
//
// Over HTTP, a request must name a known Host and, if it comes from a browser, a
// known Origin. Without [Config.Credentials] only connections that arrive on a
// loopback address are served; that keeps other machines out, not other users of
// this one. With credentials, a session belongs to the one that opened it: for
// all others it does not exist. HTTP+SSE, the transport of 2024, which the same
// handler serves, is guarded in the same way. A credential's ceiling is a boundary, the groups
// below it are none.
//
// Requests, sessions and calls are limited, and so is what one credential may have of
// them; see [Limits]. Over HTTP a client that does not read is disconnected after a while
// and its calls end; over stdio nothing more is read of it until it does. Tokens are
// compared in constant time and never logged. Text of tools reaches the host as it is.
//
// From protocol 2026-07-28 on there is nothing by which a server could tell the clients
// of one credential from each other. What tools keep ([toolstate.State], such as a list of
// tasks, or which files were read) is therefore one for all of them, and without
// credentials one for all that reach the server. Give those that should not see each
// other's a credential each. Over stdio each connection has its own.
package mcpserver
