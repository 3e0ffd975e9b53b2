package toolkit_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/internal/groupcase"
)

var adapters = map[string]func(testing.TB, groupcase.Scenario) *world{
	"wags":       wagsWorld,
	"tmcp":       tmcpWorld,
	"agentscope": agentscopeWorld,
	"trustgraph": trustgraphWorld,
	"mcp":        mcpWorld,
}
