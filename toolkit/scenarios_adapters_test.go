package toolkit_test

import (
	"testing"
)

var adapters = map[string]func(testing.TB, scenario) *world{
	"wags":       wagsWorld,
	"tmcp":       tmcpWorld,
	"agentscope": agentscopeWorld,
	"trustgraph": trustgraphWorld,
	"mcp":        mcpWorld,
}

var wordings = []wording{
	{`Unknown group: (.*)`, `group "$1"`},
	{`Group already enabled: (.*)`, `group "$1" is enabled already`},
	{`Group not enabled: (.*)`, `group "$1" is not enabled`},
	{`Group '(.*)' not visible. Enable parent '(.*)' first.`, `group "$1" needs .*$2 to be open first`},
	{`Cannot enable '(.*)': would result in (\d+) tools, exceeding max_tools=(\d+).*`, `group "$1": that would make $2 tools, and $3 are allowed`},
	{`Cannot initially enable '(.*)': parent '(.*)' not enabled`, `initial group "$1": its parent "$2" is not open before it`},
	{`Group '(.*)' has unknown parent '(.*)'`, `group "$1": its parent "$2" does not exist`},
	{`Handler '(.*)' references unknown group '(.*)'\. .*`, `tool "$1": its group "$2" does not exist`},

	{`GroupNotFound:(.*)`, `(there is no group "$1"|(group|parent) "$1" does not exist)`},
	{`GroupInactive:(.*):(.*)`, `group "$1" needs .*$2 to be open first`},
	{`Other:hook failed: ([+-])(.*)`, `group "$2": hook failed: [$1]$2`},
	{`InvalidConfiguration:group already registered: (.*)`, `group "$1": there are two of that name`},
	{`InvalidConfiguration:group name is empty`, `a group has no name`},
	{`InvalidConfiguration:invalid group segment: `, `a part of the path is empty`},
	{`InvalidConfiguration:group '(.*)' must be nested under parent '(.*)'`, `group "$1": its name must start with that of its parent, "$2\."`},
	{`InvalidConfiguration:tool already registered: (.*)`, `tool "$1" in .*: another tool of that name`},

	{`Invalid group name\(s\): (.*)\. The current available groups are: (.*)`, `there is no group "$1"; the groups are $2$`},
	{`Invalid arguments: the argument '(.*)' should be a bool value.*`, `group "$1": true or false is wanted`},
	{`description is required for tool group '(.*)'`, `group "$1": has no description`},

	{`Tool '(.*)' field must be a list of strings`, `tools\[\d+\]\.$1: got .*, want array`},
	{`All group names must be strings`, `\.group\[\d+\]: got .*, want string`},
	{`All state names must be strings`, `states\[\d+\]: got .*, want string`},

	{`Group (.*) is already registered`, `group "$1": there are two of that name`},
}
