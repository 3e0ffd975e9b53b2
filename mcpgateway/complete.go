package mcpgateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
)

const (
	// maxValues is how many values of a completion are passed on, by the specification.
	// maxValue is how long one may be, in bytes.
	maxValues = 100
	maxValue  = 4 << 10
)

// Complete implements [mcpserver.Completer]. Values that are too long, or not clean, are left
// out, because a user must see what is sent back.
func (o offers) Complete(ctx context.Context, kind mcpserver.OfferKind, reach mcpserver.Reach, name string, arg mcpserver.Typed) ([]string, int, error) {
	u, e, _, err := o.resolve(ctx, kind, reach, name)
	if err != nil {
		return nil, 0, err
	}
	request := mcpclient.CompleteRequest{Prompt: e.inner, Argument: arg.Argument, Value: arg.Value, Arguments: arg.Others}
	if kind == mcpserver.TemplateOffer {
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

// Watch implements [mcpserver.Watcher]. If sessions have processes of their own, it watches the
// session's.
func (o offers) Watch(ctx context.Context, reach mcpserver.Reach, uri string, updated func()) (groups []string, stop func(), err error) {
	u, e, groups, err := o.resolve(ctx, mcpserver.ResourceOffer, reach, uri)
	if err != nil {
		return nil, nil, err
	}
	c, done, err := u.clientOf(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop, err = c.WatchResource(ctx, e.inner, updated)
	done(ctx.Err() != nil || errors.Is(err, mcpclient.ErrTimeout))
	if errors.Is(err, mcpclient.ErrNotWatched) {
		return nil, nil, &mcpserver.RequestError{Code: codeNoMethod, Message: fmt.Sprintf("the MCP server %q does not announce updates of resources; read it again", u.name)}
	}
	if err != nil {
		return nil, nil, clientError(ctx, err)
	}
	return groups, stop, nil
}
