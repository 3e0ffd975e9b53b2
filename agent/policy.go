package agent

import (
	"slices"

	"github.com/kitbag-go/kitbag/internal/policycheck"
	"github.com/kitbag-go/kitbag/tool"
)

// checkPolicy returns an error for rules that cannot work with the agent's tools. It contacts no source.
func (c *Config) checkPolicy(background tool.Tool) error {
	if len(c.Policy.Rules) == 0 { // keeps New cheap
		return c.Policy.Check()
	}
	own, listed := c.tools()
	if background != nil {
		own = append(own, background)
	}
	// Network is not a tool, but rules about confined calls name it.
	return policycheck.Check(&c.Policy, own, listed, "Network")
}

// tools returns the tools whose calls the policy judges, including those of sub-agents: the
// program's own, and those that sources listed last.
func (c *Config) tools() (own, listed []tool.Tool) {
	own, listed = c.Toolkit.Registered()
	for _, t := range slices.Clone(own) {
		if s, ok := tool.As[*subagent](t); ok {
			o, l := s.agent.cfg.tools()
			own, listed = append(own, o...), append(listed, l...)
		}
	}
	return own, listed
}
