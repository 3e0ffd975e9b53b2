package toolkit_test

import (
	"testing"

	"github.com/kitbag-go/kitbag/internal/groupcase"
)

var adapters = map[string]func(testing.TB, groupcase.Scenario) *fixture{
	"wags":       wagsFixture,
	"tmcp":       tmcpFixture,
	"agentscope": agentscopeFixture,
	"trustgraph": trustgraphFixture,
	"mcp":        mcpFixture,
}
