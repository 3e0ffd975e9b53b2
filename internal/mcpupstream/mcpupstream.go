// Package mcpupstream lets mcpgateway serve the prompts and resources of other MCP servers
// through mcpserver. Only these two packages use its types.
package mcpupstream

import (
	"context"
	"encoding/json"
	"errors"
)

// A Kind is what an [Item] is.
type Kind string

// The kinds.
const (
	KindPrompt   Kind = "prompts"
	KindResource Kind = "resources"
	KindTemplate Kind = "resourceTemplates"
)

// An Item is a prompt, a resource or a resource template of an upstream server.
type Item struct {
	Name   string                     // of a prompt; else the URI or the URI template
	Groups []string                   // a client must be able to use one of them; "" is the basic group. Empty hides the item
	Entry  map[string]json.RawMessage // the entry of the list, without its groups
}

// A View is what a client may see.
type View struct {
	Groups []string // whose members it can use; see [toolkit.Toolkit.Reachable]
	Listed []string // those of Groups whose tools it is shown, rather than finds by searching

	// Denied reports whether a rule of the client's policy denies a tool of that name.
	Denied func(tool string) bool
}

// A Provider has prompts and resources that may change. It must be safe for concurrent use.
type Provider interface {
	// Version returns a text that differs when the items of a kind in these groups may
	// differ. It is called often and must not block.
	Version(kind Kind, groups []string) string

	// List returns the items of a client, except those of servers that fail. mcpserver checks
	// their groups again.
	List(ctx context.Context, kind Kind, v View) []Item

	// Get returns the result of prompts/get for a name, or of resources/read for a URI. The
	// provider checks the groups. The error wraps [ErrNotFound] if the client sees no such
	// item; a [*RequestError] is sent to the client with its code.
	Get(ctx context.Context, kind Kind, v View, name string, args map[string]string) (json.RawMessage, error)

	// OnChange calls changed after lists may have changed, until stop is called.
	OnChange(changed func()) (stop func())
}

// A Watcher is a [Provider] that reports updates of resources.
type Watcher interface {
	// Watch calls updated after each update of the resource, until stop is called, which
	// happens once. The groups are those of the resource. Errors are those of Get.
	Watch(ctx context.Context, v View, uri string, updated func()) (groups []string, stop func(), err error)
}

// A Completer is a [Provider] that completes arguments of prompts and variables of templates.
type Completer interface {
	// Complete returns values for the argument of the item with that name, the likeliest
	// first, and how many there are in all; 0 is unknown. Errors are those of Get.
	Complete(ctx context.Context, kind Kind, v View, name string, arg Argument) (values []string, total int, err error)
}

// An Argument is one that a user has typed in part.
type Argument struct {
	Name, Value string
	Others      map[string]string // arguments that are known already
}

// ErrNotFound says that a client sees no item of a name.
var ErrNotFound = errors.New("not found")

// A RequestError is sent to the client with its JSON-RPC or MCP error code.
type RequestError struct {
	Code    int
	Message string
	Data    json.RawMessage // may be nil
}

func (e *RequestError) Error() string { return e.Message }

// Attach makes servers with a configuration, a *mcpserver.Config, serve the provider as well.
// mcpserver sets it: its configuration has no exported field that only a gateway may set.
var Attach func(config any, p Provider)
