// Package mcpserver serves a toolkit as an MCP server, so that any MCP host can open its groups and call its tools.
//
//	server, err := mcpserver.New(mcpserver.Config{
//		Toolkit: tk, Name: "orders", Version: "1.0.0",
//		Policy: &permission.Policy{TrustReadOnly: true},
//	})
//	if err != nil {
//		return err
//	}
//	defer server.Close()
//	err = server.ServeStdio(ctx, os.Stdin, os.Stdout) // or:
//	err = http.ListenAndServe("127.0.0.1:8080", server.Handler())
//
// Each client has a session with its own [toolkit.Scope]: the groups that it opens are open only for it. A call is
// resolved on the session's view, its arguments are checked, the permission engine decides, and then the tool runs.
// If one of these steps fails, the client gets a result with isError, which the model reads. If a call changes the
// tools of its session, the client is notified before it gets the result.
//
// # Asking
//
// If the permission engine requires the user's consent, the server asks the client's user by elicitation. If
// the client does not support that, the call fails, and its result names the rule that would allow it.
//
// A tool can ask too: its context has a [host.Host], which shows forms and pages to the user and samples from
// the client's model if the client has declared these capabilities. [Roots] requests the client's working
// directories. From revision 2026-07-28 on the call waits until the client repeats its request with the answers.
//
// # Revisions with and without sessions
//
// From revision 2026-07-28 on there are no sessions, and the list of tools must not depend on the connection.
// Clients of that revision get all tools if the list is short (see [Config.MaxListBytes]), or else the tools of
// [toolkit.Discover], with which every tool can be found and called. A server serves all revisions at the same time.
//
// # Tasks
//
// With [Config.TaskAfter] a call that takes longer becomes a task, if its client declares MCP's tasks extension
// (SEP-2663, from revision 2026-07-28 on): the client gets an id, and polls for the result with tasks/get. It answers
// questions of the task with tasks/update, and cancels the task with tasks/cancel. Before a call becomes a task, it asks
// its questions as without tasks. A task exists only for its credential, or over stdio for its connection, and is kept for
// [Limits].Task. [Server.Drain] waits for tasks; [Server.Close] ends running tasks, which are lost. The server sends no
// notifications about tasks.
//
// # Lost connections
//
// Before revision 2026-07-28 a lost connection does not cancel a call. The client gets the messages that it has
// missed by a GET with Last-Event-ID, in its session and with its credential, within [Limits].Resume; after
// that the call is cancelled. Up to 1 MiB of messages is kept for a session, and 64 MiB for a credential, or 16
// MiB if there are several credentials. To cancel a call, a client sends notifications/cancelled.
//
// From 2026-07-28 on a client cancels a call by closing its connection. An idle stream sends a comment every 25 s, so
// that no proxy closes it. The HTTP request of a call lasts as long as the call, so [http.Server.Shutdown] waits for
// it: close the Server first.
//
// # Replicas
//
// With [Config.Replicas] any number of servers serve as one over HTTP, behind a load balancer that sends a request
// to any of them. They share data in a [Shared], such as that of package postgres/pggateway.
//
// One replica holds a session, or a call without a session that waits for its client's answer. The other replicas forward
// requests for the session or the call to the holder, which they find in the Shared or in the sealed requestState. A
// replica that is stopped by [Server.Drain] hands its sessions over, with their open groups, subscriptions, kept events and
// state of tools. If a replica dies, other replicas take over its sessions in the state after their last request. The calls
// in flight on that replica fail, kept events are lost, and the sessions are notified as if all lists had changed.
//
// Requests in flight and sessions of each credential and of each [Identity] are limited over all replicas, and so is how
// often tools run; see [Rate]. For requests and sessions each replica reserves a part of the limit. A replica that needs
// more reserves more, if some is left, and returns within two seconds what it does not need. Two things can exceed a limit:
//
//   - A session that a replica takes over counts, but is not refused.
//   - A replica that cannot reach the Shared may have requests in flight after the others have taken over its part.
//
// The other limits are for each replica. A replica that cannot reach the Shared for several seconds refuses requests of
// sessions, because other replicas may have taken the sessions over, and requests of identities that had no request in
// flight there. [Server.ResourceUpdated] notifies the clients of one replica: call it on all replicas.
//
// # Prompts, resources and skills
//
// Config.Prompts and Config.Resources are served. When a group opens or closes, clients are notified as for tools.
//
// The skills of the toolkit's open groups are served by MCP's skills extension, io.modelcontextprotocol/skills
// (SEP-2640), in all revisions: skills/list and skills/get return the digests of all files of a skill, and each file is
// a resource with a URI such as skill://pdf/references/forms.md. A skill that breaks the specification of skills, or the
// limits of the extension, is left out and logged. There is no resources/directory/read: the manifest has every file.
//
// # Groups
//
// For hosts that support MCP's proposal for primitive grouping the server declares the capability "groups",
// handles the method groups/list, and lists the groups of each tool in the tool's _meta.
//
// # Trust
//
// Over HTTP a request must name a known Host and, if it comes from a browser, a known Origin. Without
// [Config.Credentials] and [Config.Authenticator] only connections to a loopback address are accepted, which
// excludes other machines, but not other users of this machine. With Credentials or an Authenticator, a session belongs
// to the [Identity] that opened it and does not exist for other identities. HTTP+SSE, the transport of 2024, is guarded in
// the same way. The ceiling of an identity is a security boundary; the groups below it are not. When an identity expires,
// its streams and calls end; its session continues with a new token of the same identity, and so does a task whose client
// has polled with a new token. The clients of one identity are not separated from each other.
//
// Requests, sessions, calls and the data that is kept for clients are limited, for each credential and in
// total; see [Limits]. Over HTTP a client that does not read is disconnected after [Limits].Write, and its
// calls are cancelled; over stdio the server stops reading the client's input until the client reads again.
// Tokens are compared in constant time and never logged. Texts of tools are sent to the host unchanged.
//
// From revision 2026-07-28 on a server cannot distinguish the clients of one credential. The state of tools
// ([toolstate.State], such as a list of tasks, or which files were read) is therefore shared by all clients of
// a credential, or by all clients if there are no credentials. Give clients that must not share it different
// credentials. Over stdio each connection has its own state. Without sessions each replica has its own state.
package mcpserver

// mcp-go provides the vocabulary: revisions, error codes, rules for headers, URI templates. Its server is not used:
// it does not list tools in the toolkit's order, serve several stdio sessions in a process, send the notifications
// of a call before its result, or let only the client of a request cancel it.
//
// Layers: each one uses only the layers above it in this list:
//
//   - internal/rpc: messages of JSON-RPC. internal/wire: a Responder for each transport (Lines for stdio, Events
//     for HTTP without sessions and for HTTP+SSE, Stream for HTTP with sessions). internal/park: calls that wait
//     until their client repeats its request, with the ticket that it was sent. internal/replica: keys, the list of
//     replicas, and forwarding, for Replicas.
//   - Config and catalogue: what is served.
//   - Identity and account: who sends a request over HTTP.
//   - client: limits, the state of tools, and the client's own state as plain values. session: a client that the server
//     can also send requests to. registry: all clients.
//   - request: a request in flight and the methods that all revisions have. What depends on the revision is
//     behind the interface revision, which *session and *sessionless implement.
//   - Server, and a file for each transport, which decides the revision of a message.
