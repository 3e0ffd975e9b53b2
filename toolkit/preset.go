package toolkit

// A Preset is a set of rules for how tools are grouped. The zero Preset has kitbag's own rules; [AgentScope], [Wags],
// [Tmcp], [TrustGraph] and [MCP] return the rules of other systems. See [Config.Preset].
type Preset struct {
	rules
	asDocumented *rules // if the system's documents differ from its code
}

// Documented returns the preset with the rules of the system's documents, where they differ from its code.
func (p Preset) Documented() Preset {
	if p.asDocumented != nil {
		p.rules = *p.asDocumented
	}
	return p
}

// LabelsOnly reports whether the preset implies [Config.LabelsOnly].
func (p Preset) LabelsOnly() bool { return p.labelsOnly }

// Replaces reports whether the later of two tools or settings with one name replaces the earlier.
// With other presets two settings are an error, and two tools are an error or are both kept.
func (p Preset) Replaces() bool { return p.onDuplicate == laterReplaces }

// AgentScope returns the rules of AgentScope's Toolkit: [ResetTools]; tools are listed in order of registration; later
// tools shadow earlier ones. According to its documents, an answer has only the instructions of newly opened groups.
func AgentScope() Preset {
	code := rules{
		control:         ResetTools(nil),
		order:           byRegistration,
		onDuplicate:     laterShadows,
		replaceControls: true,
	}
	documented := code
	documented.control = ResetTools(&ResetOptions{NewOnly: true})
	return Preset{code, &documented}
}

// Wags returns the rules of wags' GroupsMiddleware: [EnableDisable]; tools in
// no group are hidden; a tool may name its groups by a method Labels() []string.
func Wags() Preset {
	return Preset{rules: rules{
		control:         EnableDisable(),
		order:           byRegistration,
		parents:         gateWithCycles,
		ungrouped:       hiddenUngrouped,
		toolLabels:      true,
		everyTransition: true,
		looseQuota:      true,
		quietRefusals:   true,
	}}
}

// Tmcp returns the rules of tmcp's ToolSet: [PerGroup]; names are paths; tools are listed by name; hidden tools look
// unknown. According to its documents, a transition is reported only if it changes what is visible.
func Tmcp() Preset {
	code := rules{
		control:         perGroup{"."}.control(),
		order:           byName,
		pathNames:       true,
		opaque:          true,
		replaceControls: true,
		everyTransition: true,
		quietUpdates:    true,
		offsetCursors:   true,
	}
	documented := code
	documented.everyTransition = false
	return Preset{code, &documented}
}

// TrustGraph returns the rules of TrustGraph's agents: groups are labels; a request's ceiling
// selects among the labels and defaults to "default".
func TrustGraph() Preset {
	return Preset{rules: rules{
		labelsOnly:   true,
		order:        byRegistration,
		onDuplicate:  laterReplaces,
		defaultLabel: "default",
		opaque:       true,
	}}
}

// MCP returns the rules of MCP's primitive grouping: groups are overlapping
// labels, which tools name by a method Labels() []string; [Toolkit.Select] selects among the labels.
func MCP() Preset {
	return Preset{rules: rules{
		labelsOnly: true,
		order:      byRegistration,
		parents:    parentContains,
		ungrouped:  unlabelled,
		toolLabels: true,
	}}
}
