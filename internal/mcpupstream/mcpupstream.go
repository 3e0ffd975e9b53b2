// Package mcpupstream lets mcpgateway serve the prompts and resources of other MCP servers
// through mcpserver. Only these two packages use its types.
package mcpupstream

import (
	"context"
	"encoding/json"
	"errors"
)

// A Kind is the kind of an [Item].
type Kind string

// The kinds.
const (
	KindPrompt   Kind = "prompts"
	KindResource Kind = "resources"
	KindTemplate Kind = "resourceTemplates"
)

// An Item is a prompt, a resource or a resource template of an upstream server.
type Item struct {
	Name   string                     // the name of a prompt, or the URI or URI template
	Groups []string                   // a client must be able to use one of them; "" is the basic group. Without groups the item is hidden
	Entry  map[string]json.RawMessage // the entry of the list, without its groups
}

// A View describes what a client may see.
type View struct {
	Groups []string // the groups whose members it can use; see [toolkit.Toolkit.Reachable]
	Listed []string // the groups whose tools are in its list; it finds other tools by searching

	// Denied returns an error if a rule of the client's policy denies the tool. Get returns it for an item of that tool.
	Denied func(tool string) error
}

// A Provider has prompts and resources that may change. It must be safe for concurrent use.
type Provider interface {
	// Version returns a string that changes when the items of a kind in these groups may have changed. It is called
	// often and must not block.
	Version(kind Kind, groups []string) string

	// List returns the items that a client sees, without those of servers that fail. mcpserver checks their groups again.
	List(ctx context.Context, kind Kind, v View) []Item

	// Get returns the result of prompts/get for a name, or of resources/read for a URI. The provider checks the
	// groups. The error wraps [ErrNotFound] if the client sees no such item; a [*RequestError] is sent to the
	// client with its code.
	Get(ctx context.Context, kind Kind, v View, name string, args map[string]string) (json.RawMessage, error)

	// OnChange calls changed after lists may have changed, until stop is called.
	OnChange(changed func()) (stop func())
}

// A Watcher is a [Provider] that reports updates of resources.
type Watcher interface {
	// Watch calls updated after each update of the resource, until stop is called, which must happen exactly once.
	// It returns the groups of the resource, and the same errors as Get.
	Watch(ctx context.Context, v View, uri string, updated func()) (groups []string, stop func(), err error)
}

// A Completer is a [Provider] that completes arguments of prompts and variables of templates.
type Completer interface {
	// Complete returns values for the argument of the item with that name, starting with the likeliest, and their
	// total number, which is 0 if unknown. It returns the same errors as Get.
	Complete(ctx context.Context, kind Kind, v View, name string, arg Argument) (values []string, total int, err error)
}

// An Argument is an argument that a user has typed in part.
type Argument struct {
	Name, Value string
	Others      map[string]string // other arguments that have values
}

// ErrNotFound says that the client sees no item with this name.
var ErrNotFound = errors.New("not found")

// A RequestError is sent to the client with its JSON-RPC or MCP error code.
type RequestError struct {
	Code    int
	Message string
	Data    json.RawMessage // may be nil
}

func (e *RequestError) Error() string { return e.Message }

// Attach adds a provider to a configuration, a *mcpserver.Config, so that servers with it also serve the
// provider's items. mcpserver sets Attach, so that its configuration needs no exported field that only a
// gateway may set.
var Attach func(config any, p Provider)
