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

// groupsListChanged is the notification of MCP's proposal for primitive grouping.
const groupsListChanged = "notifications/groups/list_changed"

// listChanges are the lists that can change, each with its notification and its name in the filter of
// subscriptions/listen.
var listChanges = []struct {
	change         changes
	method, filter string
}{
	{toolsChanged, mcp.MethodNotificationToolsListChanged, "toolsListChanged"},
	{groupsChanged, groupsListChanged, "groupsListChanged"},
	{promptsChanged, mcp.MethodNotificationPromptsListChanged, "promptsListChanged"},
	{resourcesChanged, mcp.MethodNotificationResourcesListChanged, "resourcesListChanged"},
}

// visibleItems are the prompts and resources that a client sees: the configured ones, one byte each, and the
// version of those of upstream servers.
type visibleItems struct{ Prompts, Resources string }

// maxSubscriptions is how many resources a client may subscribe to. maxWatched is the limit for all clients of
// a credential; with several credentials each has a quarter of it. It exists because a gateway's upstream
// server gets the subscriptions of all clients. maxWatchedURI is the largest URI, in bytes.
const (
	maxSubscriptions = 1000
	maxWatched       = 10_000
	maxWatchedURI    = 8 << 10
)

// errWatched is the error of a subscription beyond the limit.
var errWatched = rpc.Errorf(mcp.INVALID_REQUEST, "this client or its credential has subscribed to too many resources; unsubscribe from some")
