package mcpgateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpclient"
)

const (
	maxValues = 100     // of a completion, as the specification requires
	maxValue  = 4 << 10 // the longest value, in bytes
)

// Complete implements [mcpupstream.Completer]. It leaves out values that are too long or not clean: the client sends the
// value that the user chooses, and the user must see all of it.
func (o items) Complete(ctx context.Context, kind mcpupstream.Kind, v mcpupstream.View, name string, arg mcpupstream.Argument) ([]string, int, error) {
	u, e, _, err := o.resolve(ctx, kind, v, name)
	if err != nil {
		return nil, 0, err
	}
	request := mcpclient.CompleteRequest{Prompt: e.inner, Argument: arg.Name, Value: arg.Value, Arguments: arg.Others}
	if kind == mcpupstream.KindTemplate {
		request.Prompt, request.ResourceTemplate = "", e.inner
	}
	c, done, err := u.clientOf(ctx)
	if err != nil {
		return nil, 0, err
	}
	all, total, err := c.Complete(ctx, request)
	done(wasAbandoned(ctx, err))
	if err != nil {
		return nil, 0, clientError(ctx, err)
	}
	values := []string{}
	for _, value := range all[:min(len(all), maxValues)] {
		if clean(value, maxValue) == value {
			values = append(values, value)
		}
	}
	return values, total, nil
}

// Watch implements [mcpupstream.Watcher]. It watches on the connection of the session or user, if the server has one for
// each.
func (o items) Watch(ctx context.Context, v mcpupstream.View, uri string, updated func()) (groups []string, stop func(), err error) {
	u, e, groups, err := o.resolve(ctx, mcpupstream.KindResource, v, uri)
	if err != nil {
		return nil, nil, err
	}
	c, done, err := u.clientOf(ctx)
	if err != nil {
		return nil, nil, err
	}
	unwatch, err := c.WatchResource(ctx, e.inner, updated)
	if err == nil && u.users != nil { // without done, the user's connection is not closed as idle
		return groups, func() { unwatch(); done(false) }, nil
	}
	done(wasAbandoned(ctx, err))
	if errors.Is(err, mcpclient.ErrNotWatched) {
		return nil, nil, &mcpupstream.RequestError{Code: codeNoMethod, Message: fmt.Sprintf("the MCP server %q does not announce updates of resources; read the resource again instead", u.name)}
	}
	if err != nil {
		return nil, nil, clientError(ctx, err)
	}
	return groups, unwatch, nil
}
