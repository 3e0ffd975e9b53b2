// Package toolkit holds tools in groups and decides which of them a model sees.
//
// Every tool definition costs tokens in every request, and a model with many tools chooses worse. So a [Toolkit]
// hides most of them until they are needed:
//
//	tk, err := toolkit.New(toolkit.Config{
//		Basic: toolkit.Group{Tools: []tool.Tool{clock}}, // always open
//		Groups: []toolkit.Group{
//			{Name: "database", Description: "Questions about orders.", Tools: []tool.Tool{query}},
//			{Name: "github", Description: "Issues and pull requests.", Sources: []tool.Source{server}},
//		},
//	})
//
// Sessions share a toolkit. A [Scope] is the state of one session: the groups that it has open. It is saved as JSON;
// the zero Scope is a new session. A [View] is the list of tools for one step, and the calls of the model's answer
// run against it:
//
//	view, err := tk.View(ctx, &scope)
//	… send view.Tools() …
//	t, input, err := view.Resolve(ctx, call.Name, call.Input)
//
// Here the model sees clock and reset_tools. After it has called reset_tools with {"database": true}, the next view
// also has query. A call cannot reach a tool that its view does not list.
//
// # Terms
//
//   - A [Group] has tools, sources of tools (MCP servers), skills, and instructions that the model reads when it
//     opens the group. Parents, exclusion sets, quotas and hooks limit which groups can be open together.
//   - A transition ([Toolkit.Enable], [Toolkit.Disable], [Toolkit.Set]) opens and closes groups. It is atomic.
//   - A [Control] has the tools with which the model makes transitions: [ResetTools] (the default), [EnableDisable],
//     [PerGroup], or [Discover], which opens nothing and lets the model search instead. These tools come first in the list.
//   - A [Ceiling] is the set of groups that the host grants to a session. The model never learns of other groups.
//   - A phase is a step of a workflow, to which a [Setting] can limit a tool; see [View.Advance].
//
// A tool is visible if one of its groups is open (or it is in the basic group), the ceiling grants one of its
// groups, the phase is one of its phases, and the predicate of its Setting is true.
//
// # Failures
//
// New contacts no source. A server that does not start, or a missing folder of skills, does not affect other tools.
// The model learns of the failure when it opens the group, and the host from [View.Skipped], which a program should
// log when it starts.
//
// # The cache of the provider
//
// Providers cache the common prefix of consecutive requests, which begins with the list of tools. So opening a group
// only appends to the list, definitions are always the same bytes, and [View.Prompt] does not change: the
// instructions of a group are in the answer of the control tool, and in [View.Reminder] after compaction. Closing a
// group does change the list and [View.Digest]. [Config.Preset] selects the rules of another system, such as [Wags].
//
// # Trust
//
// A group is not a permission: opening one only makes its tools visible, and the permission engine judges every
// call. The engine allows control tools in every mode unless a rule denies them. A ceiling is a boundary between the
// model and the tools of other groups. It does not confine the code of tools and hooks, nor the author of the
// configuration. The model reads descriptions, instructions and skills: load groups only from sources that you
// would let write your prompts.
package toolkit
