package agent

import (
	"slices"

	"github.com/kitbag-go/kitbag/internal/policycheck"
	"github.com/kitbag-go/kitbag/tool"
)

// checkPolicy reports rules of the policy that cannot work with the tools there are. No source is
// contacted.
func (c *Config) checkPolicy(background tool.Tool) error {
	if len(c.Policy.Rules) == 0 { // to make an agent is cheap
		return c.Policy.Check()
	}
	own, listed := c.tools()
	if background != nil {
		own = append(own, background)
	}
	// Network is not a tool: rules about confined calls name it.
	return policycheck.Check(&c.Policy, own, listed, "Network")
}

// tools returns the tools whose calls the policy is asked about, those of sub-agents included: the
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
