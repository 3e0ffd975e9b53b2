package mcpserver

import (
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
)

// changes is the set of changes that a client is notified of.
type changes uint8

const (
	toolsChanged changes = 1 << iota
	groupsChanged
	promptsChanged
	resourcesChanged
	resourceUpdated  // of the resources that takeUpdated returns
	catalogueChanged // not sent to clients: a listener finds out which of its lists have changed
)

// listChanges are the lists that can change, each with its notification and its name in the filter of
// subscriptions/listen.
var listChanges = []struct {
	change         changes
	method, filter string
}{
	{toolsChanged, mcp.MethodNotificationToolsListChanged, "toolsListChanged"},
	{groupsChanged, "notifications/groups/list_changed", "groupsListChanged"}, // of MCP's proposal for primitive grouping
	{promptsChanged, mcp.MethodNotificationPromptsListChanged, "promptsListChanged"},
	{resourcesChanged, mcp.MethodNotificationResourcesListChanged, "resourcesListChanged"},
}

// visibleItems says which prompts and resources a client sees: a byte 1 or 0 for each configured item, and then the
// version of the upstream servers' items.
type visibleItems struct{ Prompts, Resources string }

const (
	maxSubscriptions = 1000    // of a client
	maxWatched       = 10_000  // subscriptions of all clients of a credential, which a gateway may pass on to a single server; see newBudgets
	maxWatchedURI    = 8 << 10 // bytes of the URI of a subscription
)

var errTooManySubscriptions = rpc.Errorf(mcp.INVALID_REQUEST, "this client or its credential has subscribed to too many resources; unsubscribe from some")
