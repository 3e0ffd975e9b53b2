// Package mcpgateway is one MCP server in front of many: in place of the definitions of all their tools a host sees a few
// tools, with which its model opens groups of the others.
//
//	cfg, err := mcpgateway.Load("kitbag.json") // the same mcpServers as in other hosts, and more
//	cfg.Serve.Version = "1.0.0"
//	g, err := mcpgateway.New(ctx, cfg)
//	defer g.Close()
//	err = g.Server.ServeStdio(ctx, os.Stdin, os.Stdout) // or:
//	err = http.ListenAndServe("127.0.0.1:8080", g.Server.Handler())
//
// The servers behind it are [mcpclient.Server] values. They are started when they are first needed and
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
// Opening it starts the servers that its globs can match. A group without globs that has a server's name
// describes that server's group. A server in [Config.Labels] groups its tools itself, with the groups extension of MCP:
// its groups, called SERVER.GROUP, replace the single group. These servers start with the gateway, because a server
// must run to list its groups.
//
// A host of protocol 2026-07-28 opens no groups, because it has no session that could keep them open: unless the style
// is [StyleFull], it gets search_tools, describe_tools and call_tool; see package mcpserver.
//
// A tool may be in several groups. It is in its server's group only if it is in no group of the configuration.
//
// # What is passed on
//
// Arguments are checked against the tool's schema and passed to the server as the host sent them. Results are
// passed on unchanged: text, images, audio, links, embedded resources, structured content and errors. Progress
// and cancellation are passed on too.
//
// A question of a server (elicitation, sampling) goes to the host in whose session the call runs, with the
// server's name before it. One process serves all sessions, and before revision 2026-07-28 a question does not
// name its call. It is refused if another session has a call in flight to that server, or has abandoned one
// since the server was started, so that the wrong user is never asked. The servers in [Config.PerSession] have
// a process for each session: no question is refused for that reason, and the state of such a server belongs to
// one session.
//
// A server's instructions are given to the model when a group with its tools is opened, unless the
// configuration has instructions for that group.
//
// # Prompts, resources and logs
//
// A prompt is called SERVER__PROMPT, and the URI of a resource or template is mcp://SERVER/URI. They are in
// groups as tools are: in the groups whose globs match SERVER__NAME, or otherwise in the server's group or groups. A
// client sees the items of its open groups that its ceiling ([mcpserver.Credential]) grants, and learns of no others. A rule
// that denies SERVER__PROMPT hides that prompt; one that denies all tools of a server hides all its items. Contents are passed
// on unchanged, except that the result of reading a resource has URIs of the gateway. The results of tools have URIs of
// the server; a client can also read such a URI if only one server has it.
//
// As with tools, no server is started to list the items of a closed group. If tools are only found by
// searching, as from protocol 2026-07-28 on, only running servers list items. A search starts all servers that
// the client may see, and the client is notified of their items if it listens. Reading a resource starts its
// server.
//
// A client that subscribes to a resource is notified of updates while its group is open. After a server has
// restarted, the gateway subscribes again and treats the watched resources as updated. A server that is not
// restarted because it died too often is not started for a subscription. The servers complete arguments of
// prompts and variables of templates, with at most 100 values.
//
// The skills of a server are served under skill://SERVER/, in the groups whose globs match SERVER__PATH, or in the
// server's group. Their files are checked against the digests in the server's list before they are passed on.
//
// Log messages of a server go to the sessions that have used it and want messages of that level, at most a
// hundred per second. A message does not name its call. If the sessions of several credentials use the server, a
// message is only passed on while calls of just one credential are in flight, to the sessions of that one.
//
// # Replicas
//
// Any number of gateways can serve as one; see package mcpserver. Each has its own processes of the servers. The processes
// of [Config.PerSession] end with the replica that has the session; the next call to such a server fails and says so,
// because its state is lost, and the call after that starts a new process.
//
// # Users
//
// With [Config.OAuth] clients send tokens of OAuth issuers, and each user is an [mcpserver.Identity], with sessions and state of
// its own, as each credential has. A server in [Config.UpstreamTokens] gets tokens of its own: one for the gateway, or one for
// each user, in exchange for the user's or by a login of the user to the server. Then each user has a connection to the server;
// at most 256 are kept, and idle ones are closed. A user's own token is sent to no server. What a server does with the tokens
// that it gets is not in the gateway's hands: configure an audience, so that no other server accepts them.
//
// With [UserLogin] a call of a user who has not logged in asks the user to visit a page of the gateway, which has the button for
// the login. It first leads to the user's issuer, one of those of the gateway, and then to that of the server. The tokens are
// stored for the user who has logged in at the first issuer in the same browser; this is the security boundary. The link is the
// same for all users and MCP sessions: whoever sends it to another user gains nothing. A redirect is accepted once, in the
// browser that began the login, with PKCE and the issuer's name. Whoever has the browser of a user, its cookies or the session at
// the issuer is that user. Stored tokens are encrypted, with user and server as additional data; whoever has the key and the
// store has them. A token in an answer of the server that it was sent to is replaced by asterisks, unless it is encoded. The
// definitions of tools are those that [UpstreamToken.ListAs] sees.
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
// The ceiling of a credential, or of a grant of Config.OAuth, is a security boundary. Its groups are those of the
// configuration: a ceiling with a group that has globs grants everything that the globs match, including tools, prompts
// and resources that a server adds later. Use narrow globs for such a group. A ceiling with a group of [Config.Labels] trusts that
// server to label its tools.
//
// The groups of a resource are determined by the name in its server's list. A URI that is neither in the
// server's list nor matches one of its templates is in the server's own group. Only the server knows whether
// such a URI is another spelling of a listed one, or a directory that contains it. Therefore a group with globs
// does not hide resources from a client that is granted the server's own group.
package mcpgateway
