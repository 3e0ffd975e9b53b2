package agent

import (
	"github.com/kitbag-go/kitbag/internal/policycheck"
	"github.com/kitbag-go/kitbag/tool"
)

// checkPolicy returns an error for rules that cannot work with the agent's tools. It lists no [tool.Source] for that.
func (c *Config) checkPolicy(background tool.Tool) error {
	if len(c.Policy.Rules) == 0 { // then the tools, which are expensive to collect, are not needed
		return c.Policy.Check()
	}
	own, listed := c.tools()
	if background != nil {
		own = append(own, background)
	}
	// Network is not a tool, but rules about confined calls name it.
	return policycheck.Check(&c.Policy, own, listed, "Network")
}

// tools returns the tools whose calls the policy judges, including the tools of sub-agents: own are the program's, listed
// are those that sources returned when they were last listed.
func (c *Config) tools() (own, listed []tool.Tool) {
	own, listed = c.Toolkit.Registered()
	for _, t := range own {
		if s, ok := tool.As[*subagent](t); ok {
			subOwn, subListed := s.agent.cfg.tools()
			own, listed = append(own, subOwn...), append(listed, subListed...)
		}
	}
	return own, listed
}
