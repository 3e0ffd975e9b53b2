// Package toolkit holds tools in groups and decides which of them a model sees.
//
// Every tool definition costs tokens in every request, and a model with many tools
// chooses worse. So a [Toolkit] hides most of them until they are needed:
//
//	tk, err := toolkit.New(toolkit.Config{
//		Basic: toolkit.Group{Tools: []tool.Tool{clock}}, // always there
//		Groups: []toolkit.Group{
//			{Name: "database", Description: "Questions about orders.", Tools: []tool.Tool{query}},
//			{Name: "github", Description: "Issues and pull requests.", Sources: []tool.Source{server}},
//		},
//	})
//
// A toolkit is shared by sessions. The groups that a session has open are in its [Scope], which is small, saved as
// JSON, and starts as the zero value. Together they make a [View]: the tools that the model sees at one step,
// against which the calls of its answer run.
//
//	view, err := tk.View(ctx, scope)
//	… send view.Tools() …
//	t, input, err := view.Resolve(ctx, call.Name, call.Input)
//
// Here the model sees clock and reset_tools. Once it has called reset_tools with {"database": true}, the next view
// also has query. A call cannot reach a tool that its view does not list.
//
// # Terms
//
// A [Group] has tools, sources of tools (MCP servers), skills, and instructions that the model reads when it opens
// the group. A group can be opened only while its parents are open; [Config.Exclusive] has sets of groups that
// cannot be open together; quotas limit what is open at once; hooks run before a group is opened or closed and can
// refuse. A [Setting] limits a single tool: to phases, by a predicate, or to other groups than those it was
// registered in.
//
// A transition ([Toolkit.Enable], [Toolkit.Disable], [Toolkit.Set]) is the only way to change which groups are
// open. It is atomic, and a scope runs one at a time; listing and calling never wait for it.
//
// A [Control] provides the tools with which the model opens groups. [ResetTools], the default, takes the full
// desired state; [EnableDisable] takes groups to open or close; [PerGroup] has a tool for every group; [Discover]
// opens nothing and lets the model search, so that the list never changes; with the zero Control only the host
// opens groups. Control tools come first in the list and are allowed in every permission mode unless a rule denies
// them.
//
// A [Ceiling] is the set of groups that the host grants to a session. Other groups are hidden from the model.
//
// A phase is a step of a workflow: a tool may be visible only in some phases,
// and a successful call may move to another phase. See [View.Advance].
//
// # Which tool is visible
//
// A tool is visible if four gates are open: one of its groups is open (or it is in
// the basic group), the ceiling grants one of its groups, the current phase is one of
// its phases, and its predicate is true. The same function lists and resolves.
//
// # Failures
//
// A server that does not start, or a missing folder of skills, does not affect other tools and is not an error of
// New, which contacts no source. The model learns of it when it opens the group or asks for the skill, and
// [View.Skipped] lists what is missing, with the reason: log it when a program starts.
//
// # The cache of the provider
//
// Providers cache the common prefix of consecutive requests, and the list of tools is at its start. Therefore the
// order is fixed, opening a group only appends, definitions are always the same bytes, and [View.Prompt] does not
// change: the instructions and skills of a group are in the answer of the control tool, at the end of the
// conversation, and in [View.Reminder] after compaction. Closing a group does change the list and [View.Digest]. A
// model.Revealer gets the first list, and later changes at the end of the conversation instead.
//
// # Other systems
//
// [Config.Preset] selects the rules of another system that groups tools: [AgentScope], [Wags], [Tmcp],
// [TrustGraph] or [MCP]. Ceilings, phases, quotas and exclusion work with all of them.
//
// # Trust
//
// A group is not a permission: opening one only makes its tools visible, and the permission engine judges every
// call. A ceiling is a boundary between the model and the tools it does not grant. It does not confine the code of
// tools and hooks, nor the author of the configuration. The model reads descriptions, instructions and skills:
// load groups only from sources that you would let write your prompts.
package toolkit
