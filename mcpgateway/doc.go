// Package mcpgateway is one MCP server in front of many. In place of the tools of all these servers a host sees a few
// control tools, with which its model opens groups of the servers' tools.
//
//	cfg, err := mcpgateway.Load("kitbag.json") // the same mcpServers as in other hosts, and more
//	cfg.Serve.Version = "1.0.0"
//	g, err := mcpgateway.New(ctx, cfg)
//	defer g.Close()
//	err = g.Server.ServeStdio(ctx, os.Stdin, os.Stdout) // or:
//	err = http.ListenAndServe("127.0.0.1:8080", g.Server.Handler())
//
// The servers behind the gateway are [mcpclient.Server] values. They are started when they are first needed and
// restarted when they die. Their tools form a toolkit with groups, which a [mcpserver.Server] serves. This
// package decides which tool is in which group and which of a server's texts reach the model, and writes the
// audit log.
//
// # Names and groups
//
// A tool is called SERVER__TOOL. By default each server is a group with the server's name: opening the group
// starts the server. A [Group] of the configuration takes tools out of these groups, by globs over their names:
//
//	"groups": {"issues": {"tools": ["github__*issue*", "jira__*"], "description": "Bugs and wishes."}}
//
// Opening this group starts the servers whose tools its globs can match. A group of the configuration without globs
// describes the group of the server with the same name. A server in [Config.Labels] groups its tools itself, with the
// groups extension of MCP: its groups, called SERVER.GROUP, replace the single group. Such a server starts with the gateway,
// because a server must run to list its groups.
//
// A host of protocol 2026-07-28 has no session, in which groups could be open. Unless the style is [StyleFull], such a
// host gets search_tools, describe_tools and call_tool; see package mcpserver.
//
// A tool may be in several groups. It is in its server's group only if it is in no group of the configuration.
//
// # What is passed on
//
// Arguments are checked against the tool's schema and passed to the server as the host sent them. Results are
// passed on unchanged: text, images, audio, links, embedded resources, structured content and errors. Progress
// and cancellation are passed on too.
//
// A question of a server (elicitation, sampling) goes to the host in whose session the call runs; the question begins
// with the server's name. One process serves all sessions, and before revision 2026-07-28 a question does not name its
// call. Such a question is refused if another session has a call in flight to that server, or has abandoned a call since
// the server was started, so that the wrong user is never asked. A server in [Config.PerSession] has a process for each
// session: no question is refused for that reason, and the server's state belongs to one session.
//
// A server's instructions are given to the model when a group with its tools is opened, unless the
// configuration has instructions for that group.
//
// # Prompts, resources and logs
//
// A prompt is called SERVER__PROMPT, and the URI of a resource or template is mcp://SERVER/URI. They are in
// groups as tools are: in the groups whose globs match SERVER__NAME, or otherwise in the server's group or groups. A
// client sees only the prompts and resources of its open groups that its ceiling ([mcpserver.Credential]) grants. A rule
// that denies SERVER__PROMPT hides that prompt; a rule that denies all tools of a server hides all its prompts and resources.
// Contents are passed on unchanged, except that the result of reading a resource has URIs of the gateway. The results of
// tools have URIs of the server; a client can also read a URI of a server if only one server has it.
//
// As with tools, no server is started to list the prompts and resources of a closed group. If the client only finds tools
// by searching, as from protocol 2026-07-28 on, only running servers list their prompts and resources. A search starts all
// servers that the client may see, and the client is then notified of these lists if it listens. Reading a resource starts
// its server.
//
// A client that subscribes to a resource is notified of updates while its group is open. After a server has
// restarted, the gateway subscribes again and treats the watched resources as updated. A server that is not
// restarted because it died too often is not started for a subscription. Requests to complete arguments of prompts and
// variables of templates are passed on; at most 100 values are returned.
//
// The skills of a server are served under skill://SERVER/, in the groups whose globs match SERVER__PATH, or in the
// server's group. Their files are checked against the digests in the server's list before they are passed on.
//
// Log messages of a server go to the sessions that have used it and want messages of that level, at most a
// hundred per second. A message does not name its call. If sessions of several credentials use the server, a message is
// only passed on while calls of a single credential are in flight, and only to the sessions of that credential.
//
// # Replicas
//
// Any number of gateways can serve as one; see package mcpserver. Each replica has its own processes of the servers. When
// a replica ends, the processes that it has for sessions ([Config.PerSession]) end too, and their state is lost: the next
// call of such a session to such a server fails with an error that says so, and the call after that starts a new process.
//
// # Users
//
// With [Config.OAuth] clients send tokens of OAuth issuers. Each user is an [mcpserver.Identity] and has, like each
// credential, separate sessions and state. The gateway gets access tokens for each server in [Config.UpstreamTokens]: one for
// all clients, or one for each user. A user's token for the server comes from an exchange of the token that the user has sent, or
// from a login of the user to the server. A server with tokens of users has a connection for each user; at most 256 are kept, and idle
// connections are closed. The token that a user has sent to the gateway is sent to no server. A server could misuse the tokens
// that it gets: configure an audience, so that no other server accepts them.
//
// With [UserLogin] a call of a user who has not logged in asks the user to visit a page of the gateway. Its button leads to the
// user's issuer, one of Config.OAuth.Issuers, and then to the server's authorization server. The tokens are stored for the user
// who has logged in at the issuer in the same browser; this is the security boundary. The link to the page is the same for all
// users and MCP sessions: whoever sends it to another user gains nothing. A redirect is accepted once, in the browser that began
// the login, with PKCE and the issuer's name. Whoever controls a user's browser, its cookies or the user's session at the issuer
// can act as that user. Stored tokens are encrypted, with user and server as additional data; whoever has the key and the store
// can read them. If a server's answer contains the token that was sent to the server, the token is replaced by asterisks, unless
// it is encoded. Tools have the definitions that the user [UpstreamToken.ListAs] sees.
//
// # Failures
//
// If a server cannot be started, dies or sends invalid messages, calls of its tools fail with results that say
// so. The other servers are not affected.
//
// # Trust
//
// The servers are not trusted. Control and invisible characters are removed from their names, titles,
// descriptions and the texts in schemas, and long texts are cut: a text cannot change other output of a
// terminal, or hide a part of itself from people. The visible text of a description still reaches the model;
// only a rule of the policy keeps a tool from being called. References in schemas are never followed. No
// server's tool can have the name of one of the gateway's own tools or of another server's tool, because every
// name begins with the server's unique prefix.
//
// The ceiling of a credential, or of a grant of Config.OAuth, is a security boundary. A ceiling with a group that has
// globs grants everything that the globs match, including tools, prompts and resources that a server adds later. Use narrow
// globs for such a group. A ceiling with a group of a server in [Config.Labels] trusts that server to label its tools.
//
// The groups of a resource are determined by the name in its server's list. A URI that is neither in the
// server's list nor matches one of its templates is in the server's own group. Only the server knows whether
// such a URI is another spelling of a listed URI, or a directory that contains a listed resource. Therefore a group with
// globs does not hide resources from a client that is granted the server's own group.
package mcpgateway
