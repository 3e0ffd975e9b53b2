package mcpgateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpclient"
)

const (
	// maxValues is how many values of a completion are passed on, as the specification requires. maxValue is the
	// largest value, in bytes.
	maxValues = 100
	maxValue  = 4 << 10
)

// Complete implements [mcpupstream.Completer]. It leaves out values that are too long or not clean, because the
// user must see the text that is sent back.
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
	done(ctx.Err() != nil || errors.Is(err, mcpclient.ErrTimeout))
	if err != nil {
		return nil, 0, clientError(ctx, err)
	}
	values := []string{}
	for _, v := range all[:min(len(all), maxValues)] {
		if len(v) <= maxValue && clean(v, maxValue) == v {
			values = append(values, v)
		}
	}
	return values, total, nil
}

// Watch implements [mcpupstream.Watcher]. If each session or user has its own connection, it watches the resource
// there.
func (o items) Watch(ctx context.Context, v mcpupstream.View, uri string, updated func()) (groups []string, stop func(), err error) {
	u, e, groups, err := o.resolve(ctx, mcpupstream.KindResource, v, uri)
	if err != nil {
		return nil, nil, err
	}
	c, done, err := u.clientOf(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop, err = c.WatchResource(ctx, e.inner, updated)
	if unwatch := stop; err == nil && u.users != nil { // keep the user's connection while it watches
		stop = func() { unwatch(); done(false) }
	} else {
		done(ctx.Err() != nil || errors.Is(err, mcpclient.ErrTimeout))
	}
	if errors.Is(err, mcpclient.ErrNotWatched) {
		return nil, nil, &mcpupstream.RequestError{Code: codeNoMethod, Message: fmt.Sprintf("the MCP server %q does not announce updates of resources; read the resource again instead", u.name)}
	}
	if err != nil {
		return nil, nil, clientError(ctx, err)
	}
	return groups, stop, nil
}
