// Package toolkit holds tools in groups and decides which of them a model sees.
//
// Every definition of a tool that is sent costs tokens in every request, and
// the more there are the worse a model chooses. So a [Toolkit] keeps most of
// them out of sight until they are wanted:
//
//	tk, err := toolkit.New(toolkit.Config{
//		Basic: toolkit.Group{Tools: []tool.Tool{clock}}, // always there
//		Groups: []toolkit.Group{
//			{Name: "database", Description: "Questions about orders.", Tools: []tool.Tool{query}},
//			{Name: "github", Description: "Issues and pull requests.", Sources: []tool.Source{server}},
//		},
//	})
//
// A toolkit is shared. What one session has open is in its [Scope], which is
// small, saved as JSON, and starts as the zero value. Together they give a
// [View]: what the model is shown at one step, and what the calls of its
// answer run against.
//
//	view, err := tk.View(ctx, scope)
//	… send view.Tools() …
//	t, input, err := view.Resolve(ctx, call.Name, call.Input)
//
// Here the model sees clock and reset_tools. Once it has called reset_tools
// with {"database": true}, the next view has query, too. What was shown is
// what runs: a call cannot reach a tool that its view does not list.
//
// # The nouns
//
// A [Group] has tools, sources of tools (MCP servers), skills, and
// instructions that are told when it is opened. Parents gate their children;
// [Config.Exclusive] names groups that do not go together; quotas limit what is
// open at once; hooks run before a group is opened or closed and can refuse.
// A [Setting] limits a single tool: to phases, by a predicate, or to other
// groups than those it was registered in.
//
// A transition ([Toolkit.Enable], [Toolkit.Disable], [Toolkit.Set]) is the only
// way to change what is open. It happens whole or not at all, one at a time
// for a scope; listing and calling never wait for one.
//
// A [Control] is how the model asks for transitions. [ResetTools] takes the
// full state wanted and is the default; [EnableDisable] takes steps; [PerGroup]
// has a tool for every group; [Discover] opens nothing and has the model
// search, so that its list never changes; with [NoControl] the host decides.
// Control tools come first in the list and are allowed in every permission
// mode unless a rule denies them.
//
// A [Ceiling] is what the caller of a session grants. It comes from the host
// only: what is above it does not exist for the model, whatever it opens.
//
// A phase is a step of a workflow: a tool may be visible in some phases only,
// and a successful call may move to another. See [View.Advance].
//
// # Which tool is visible
//
// A tool is visible if four gates are open: one of its groups is (or it is in
// the basic group), the ceiling grants one of its groups, the phase is one of
// its own, and its predicate holds. The same function lists and resolves.
//
// # What is missing
//
// A server that does not start, or a folder of skills that is not there, takes nothing
// else away and is no error of New, which contacts no source. The model is told
// when it opens the group or asks for the skill, and [View.Skipped] lists what is
// missing, with the reason: look at it when a program starts, and log it.
//
// # The cache of the provider
//
// Providers keep what a request has in common with the one before, from its
// start on, and the list of tools is at the start. Therefore the order is
// fixed, opening a group only appends, definitions are the same bytes every
// time, and [View.Prompt] does not change: instructions and skills of groups
// are told in the answer of the control tool, at the end of the conversation,
// and again by [View.Reminder] when that was compacted away. Closing a group
// does change the list. [View.Digest] tells when it has.
//
// # What it costs
//
// [Toolkit.View] returns the last view as long as nothing has changed: a look-up
// without an allocation. A new one costs what is visible, not what is registered:
// opening and closing a group takes 30 allocations and 1.2 KiB with 10,000 tools as
// with 200. Definitions are hashed once. A toolkit of 20 tools takes 2.8 KiB beside
// them, so that a conversation may well have one of its own. The tests named TestCost…
// hold these figures.
//
// # Other systems
//
// [Config.Preset] takes the rules of another system that groups tools: [AgentScope],
// [Wags], [Tmcp], [TrustGraph] or [MCP]. Ceilings, phases, quotas and exclusion work
// with each.
//
// # Trust
//
// A group is not a permission: opening one grants nothing but sight, and the
// permission engine judges every call by itself. A ceiling is a boundary
// between the model and the tools above it. It is none for the code of tools
// and hooks, nor for whoever writes the configuration. Descriptions,
// instructions and skills are read by the model: take groups only from those
// you would let write your prompts.
package toolkit
