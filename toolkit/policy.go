package toolkit

// A Policy is where systems that group tools differ. The zero Policy is
// kitbag's own; [AgentScope], [Wags], [Tmcp], [TrustGraph] and [MCP] return
// those of other systems.
type Policy struct {
	// NoActivation makes groups mere labels: every group counts as open, and
	// nothing opens or closes one. A ceiling selects among them.
	NoActivation bool

	// Contain makes a parent contain its children instead of gating them: a
	// child opens without its parent, and [Toolkit.Select] includes children.
	// Unknown parents and cycles are harmless then.
	Contain bool

	// HideUngrouped hides the tools of the basic group, which is where tools
	// that are in no named group live.
	HideUngrouped bool

	// DefaultGroup is the label under which a ceiling grants the tools of the
	// basic group, and what an unset ceiling grants. Empty, that label is
	// "basic" and an unset ceiling grants everything.
	DefaultGroup string

	// Labels makes tools of the basic group members of the groups that they
	// name themselves; see [tool.Labeled]. Names of unknown groups are ignored.
	// Whoever provides a tool can then put it into any group: trust them.
	Labels bool

	// Opaque makes a hidden tool look like one that does not exist.
	Opaque bool

	// ByRegistration lists tools in the order in which they were registered,
	// ByName by name. Without either, tools of groups come in the order in
	// which the groups were opened, so that opening one only appends.
	ByRegistration, ByName bool

	// ShowActive makes reset_tools say in its field descriptions what is open.
	// The list then changes with every transition, from its start on, which
	// costs the provider's cache of the whole conversation.
	ShowActive bool

	// NewOnly makes reset_tools tell the instructions of groups that it opens
	// only, instead of those of all that are open.
	NewOnly bool

	// NotifyAlways reports a transition also when what is visible stays the
	// same. Quiet reports no change of the catalogue; see [Toolkit.Refresh].
	NotifyAlways, Quiet bool

	// Offsets makes the cursors of [View.Page] decimal positions.
	Offsets bool

	// Paths demands names made of paths: a group's name starts with its
	// parent's and a dot, a tool's with its group's.
	Paths bool

	// Replace lets a later tool replace an earlier one of the same name; Shadow
	// lets the later of two that are visible take the earlier one's place.
	// Without either, two tools of one name are an error.
	Replace, Shadow bool

	// Override lets a tool replace the control tool of its name.
	Override bool

	// AllowCycles accepts groups that are their own ancestors. Such a group can
	// never be opened.
	AllowCycles bool

	// LooseQuota leaves the initial groups out of the quotas, and refuses to
	// open any group while a quota is exceeded.
	LooseQuota bool

	control Control // what Config.Control defaults to
}

// AgentScope returns the rules of AgentScope's Toolkit: [ResetTools], listed in
// order of registration; later tools shadow earlier ones.
func AgentScope() Policy {
	return Policy{ByRegistration: true, Shadow: true, Override: true, control: ResetTools()}
}

// Wags returns the rules of wags' GroupsMiddleware: [EnableDisable], tools in
// no group are hidden, tools may name their groups.
func Wags() Policy {
	return Policy{ByRegistration: true, HideUngrouped: true, Labels: true, NotifyAlways: true, AllowCycles: true,
		LooseQuota: true, control: EnableDisable()}
}

// Tmcp returns the rules of tmcp's ToolSet: [PerGroup], names are paths, listed
// by name, hidden tools look unknown.
func Tmcp() Policy {
	return Policy{ByName: true, Opaque: true, Paths: true, Override: true, NotifyAlways: true,
		Quiet: true, Offsets: true, control: PerGroup()}
}

// TrustGraph returns the rules of TrustGraph's agents: groups are labels, a
// request's ceiling selects among them and defaults to "default".
func TrustGraph() Policy {
	return Policy{NoActivation: true, DefaultGroup: "default", ByRegistration: true, Opaque: true,
		Replace: true, control: NoControl()}
}

// MCP returns the rules of MCP's primitive grouping: groups are overlapping
// labels that tools carry themselves, and [Toolkit.Select] selects among them.
func MCP() Policy {
	return Policy{NoActivation: true, Contain: true, Labels: true, ByRegistration: true, control: NoControl()}
}
