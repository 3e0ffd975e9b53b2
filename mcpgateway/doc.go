// Package mcpgateway is one MCP server in front of many, so that a host which
// has hundreds of tools behind it is shown a handful.
//
//	cfg, err := mcpgateway.Load("kitbag.json")
//	g, err := mcpgateway.New(ctx, cfg)
//	defer g.Close()
//	err = g.Server.ServeStdio(ctx, os.Stdin, os.Stdout) // or:
//	err = http.ListenAndServe("127.0.0.1:8080", g.Server.Handler())
//
// The servers behind it are [mcpclient.Server] values, started when they are first needed and
// restarted when they die. Their tools are a toolkit in groups, which a [mcpserver.Server] serves.
// This package decides which tool is in which group, and what a server's texts may bring to the
// model, and writes the audit log.
//
// # Names and groups
//
// A tool is called SERVER__TOOL. At first each server is a group of its name: opening the group
// starts that server. A [Group] of the configuration takes tools out of these groups, by globs
// over their names:
//
//	"groups": {"issues": {"tools": ["github__*issue*", "jira__*"], "description": "Bugs and wishes."}}
//
// Opening it starts the servers that its globs can match. A group without globs that has a
// server's name describes that server's group. The servers in [Config.Labels] have groups of
// their own, SERVER.GROUP, in place of the one group. They start with the gateway, because a
// server has to list its groups.
//
// A tool may be in several groups. It is in its server's group only if no group of the
// configuration has it.
//
// # What is passed on
//
// Arguments reach the server as the host sent them, after they were checked against the tool's
// schema. Results are passed on unchanged: text, images, audio, links, embedded resources,
// structured content and errors; and so are progress and cancellation.
//
// A question of a server (elicitation, sampling) goes to the host in whose session the call runs,
// with the server's name before it. One process serves all sessions, and before revision
// 2026-07-28 a question does not name its call. It is refused if another session has a call at
// that server, or has abandoned one since the server was started, so that the wrong person is
// never asked. The servers in [Config.PerSession] have a process for each session: no question is
// refused for that reason, and what such a server remembers is for one session.
//
// A server's instructions are given to the model when a group of its tools is opened, unless the
// configuration has instructions for that group.
//
// # Prompts, resources and logs
//
// A prompt is called SERVER__PROMPT, and the URI of a resource or template is mcp://SERVER/URI.
// They are in groups as tools are: in those whose globs match SERVER__NAME, or else in the
// server's own, by its labels. A client sees those of its open groups that its ceiling grants,
// unless a deny rule matches the server's tools; it does not learn of others. Contents are passed
// on unchanged, except the URIs of a resource that is read. A URI in the result of a tool is the
// server's own; it can be read too, if only one server has it.
//
// As with tools, no server is started to list what is in a closed group. Where tools are only
// searched, as from protocol 2026-07-28 on, only started servers list; a search starts all that
// the client may see, which it is notified of if it listens. Reading starts the server.
//
// A client that subscribes to a resource is notified of updates while its group is open. After a
// restart the gateway subscribes again, and what is watched counts as updated; a server that is
// not restarted because it died too often is not started for a subscription. Arguments of prompts
// and variables of templates are completed by their servers, with 100 values at most.
//
// Log messages of a server go to the sessions that have used it and want messages of that level,
// a hundred a second. One process serves all sessions: if these have several credentials, a
// message goes to the sessions of one only while no other credential has a call in flight.
//
// # Failures
//
// A server that cannot be started, dies or sends invalid messages fails the calls of its own
// tools, with results that say so. The other servers are not affected.
//
// # Trust
//
// The servers are not trusted. Control and invisible characters are removed from their names,
// titles, descriptions and the texts in schemas, and long texts are cut: a text cannot repaint a
// terminal, or hide a part of itself from people. The visible text of a description still reaches
// the model; only a rule of the policy keeps a tool from being called. References in schemas are
// never followed. No tool can take the name of one of the gateway's own or of another server's,
// because all names begin with their server's, which is unique as a prefix.
//
// A credential's ceiling is a boundary. Its groups are made by the configuration: a ceiling of a
// group with globs grants whatever the globs match, also tools, prompts and resources that a
// server adds later, so write globs narrowly there. A ceiling with a group of [Config.Labels]
// trusts that server to label its tools.
//
// The groups of a resource are those of the name that its server lists it by. A URI that the
// server neither lists nor has a template for is in the server's own group. Only the server knows
// whether it is another spelling of a listed one, or a directory that holds it: a group with globs
// does not keep resources from a client that is granted the server's own group.
package mcpgateway
