// Package mcpgateway is one MCP server in front of many, so that a host which
// has hundreds of tools behind it is shown a handful.
//
//	cfg, err := mcpgateway.Load("kitbag.json")
//	g, err := mcpgateway.New(ctx, cfg)
//	defer g.Close()
//	err = g.Server.ServeStdio(ctx, os.Stdin, os.Stdout) // or:
//	err = http.ListenAndServe("127.0.0.1:8080", g.Server.Handler())
//
// The servers behind it ("upstream" servers) are clients of package mcpclient:
// started when they are first needed, looked after, and started again when they
// die. What they offer is a toolkit in groups, and package mcpserver serves it.
// This package joins the two, and holds what neither has: which tool is in which
// group, what of a server's words may reach the model, and the audit log.
//
// # Names and groups
//
// A tool is called SERVER__TOOL. Every server is a group of that name at first:
// opening the group starts the server, and no other. A [Group] of a configuration
// takes tools out of the servers' groups, by globs over their names:
//
//	"groups": {"issues": {"tools": ["github__*issue*", "jira__*"], "description": "Bugs and wishes."}}
//
// Opening it starts the servers whose tools its globs can match. A group without
// globs that is named like a server describes that server's group. The servers in
// [Config.Labels] have groups of their own, which are used instead of the one
// group: SERVER.GROUP. Those servers are started at once, because a server has to
// be asked for its groups.
//
// A tool may be in several groups. It is in its server's group only if no group of
// the configuration has it.
//
// # What passes
//
// Arguments reach the upstream server as the host sent them, after they were
// checked against the tool's schema, and results come back as they are: text,
// images, audio, links, embedded resources, structured content, errors. So do
// progress and, in both directions, cancellation.
//
// A question of an upstream server (elicitation, sampling) goes to the host in
// whose session the call runs, with the server's name before it. One process serves
// all sessions, and the revisions of the protocol before 2026-07-28 do not say of a
// question which call it belongs to. So it is refused, rather than put to the wrong
// person, where another session has a call at the server, or has given one up since
// the server was started. The servers in [Config.PerSession] have a process for each
// session, which knows nothing of the others: there no question is refused for that,
// and what such a server remembers is for one session only.
//
// A server's own instructions are told when a group of its tools is opened, unless
// the configuration has instructions for that group.
//
// # Prompts, resources and logs
//
// A prompt of a server is called SERVER__PROMPT, and the URI of a resource, or its
// template, is mcp://SERVER/URI. They are in groups as tools are: in those whose globs
// cover SERVER__NAME, or else in the server's own, by its labels. A client sees those of
// the groups that it has open and that its ceiling grants, unless a deny rule covers the
// server's tools; of others it does not learn that they exist. Contents are passed on as
// they are, but for the URIs of what is read. A URI in the result of a tool stays the
// server's own; it can be read as well, if only one server has it.
//
// As with tools, no server is started to list what is in a closed group, and where tools
// are only searched, as from protocol 2026-07-28 on, those servers list that were needed
// before: all that the client may see once it has searched tools, of which it is told if it
// listens. What is read starts its server.
//
// Who subscribes to a resource is told of updates, by servers that tell of them, collected
// for a moment, as long as its group is open. A server that is started again is asked anew,
// and what is watched counts as updated. One that is left alone after it has died often is
// not started for that. Arguments of prompts and variables of templates are completed by
// their servers, with 100 values at most.
//
// What a server logs goes to the sessions that have called it, or subscribed to a resource
// of it, and want messages of that level, a hundred in a second. One process serves all
// sessions: where they are of several credentials, it goes to one of them only while nobody
// else has a call in flight, and else to nobody.
//
// # Failures
//
// A server that cannot be started, dies or answers nonsense fails the calls of its
// own tools, with results that say so. It has no part in the others.
//
// # Trust
//
// Upstream servers are not trusted. Of the names, titles and descriptions that
// they choose for tools and groups, and of the words in schemas, control
// characters, invisible ones and what is too long are taken out: a text cannot
// repaint a terminal or hide a part of itself from people who read it. What a
// description says in plain sight still reaches the model; a rule in the policy is
// what keeps a tool from being called. No reference in a schema is ever followed.
// No tool can take the name of one of the gateway's own or of another server's,
// because all names begin with their server's, and no server may be called so that its names
// begin like those of another.
//
// A credential's ceiling is a boundary. Its groups are made by the configuration,
// so a ceiling of a group with globs grants what the globs match, also when the
// upstream server adds tools, prompts or resources: write globs narrowly there. A ceiling that names a
// group of [Config.Labels] trusts that server to label its tools.
//
// The groups of a resource are those of the name that its server lists it by. A URI that
// the server does not list, nor has a template for, is in the server's own group, and only
// the server knows whether it is another spelling of one that is listed, or a directory that
// holds it, of which who subscribes is told that something below it was updated. So a group
// with globs keeps resources from nobody who is granted the server's own group.
package mcpgateway
