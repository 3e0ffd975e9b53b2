package mcpgateway

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
)

const (
	// maxValues is how many values of a completion are passed on, by the specification,
	// maxValue how long one may be, in bytes.
	maxValues = 100
	maxValue  = 4 << 10
)

// Complete implements [mcpserver.Completer]. Values that hide something, or are too long, are
// left out: what a person picks must be what is sent back.
func (o offers) Complete(ctx context.Context, kind mcpserver.OfferKind, reach mcpserver.Reach, name string, arg mcpserver.Typed) ([]string, int, error) {
	u, e, _, err := o.seen(ctx, kind, reach, name)
	if err != nil {
		return nil, 0, err
	}
	ref := map[string]any{"type": "ref/prompt", "name": e.inner}
	if kind == mcpserver.TemplateOffer {
		ref = map[string]any{"type": "ref/resource", "uri": e.inner}
	}
	c, done, err := u.clientOf(ctx)
	if err != nil {
		return nil, 0, err
	}
	raw, err := c.Complete(ctx, ref, arg.Argument, arg.Value, arg.Others)
	done(ctx.Err() != nil || errors.Is(err, mcpclient.ErrTimeout))
	if err != nil {
		return nil, 0, refused(ctx, err)
	}
	if raw == nil { // it completes nothing
		return []string{}, 0, nil
	}
	var got struct {
		Completion *struct {
			Values  []string `json:"values"`
			Total   int      `json:"total"`
			HasMore bool     `json:"hasMore"`
		} `json:"completion"`
	}
	if strictjson.Unmarshal(raw, &got) != nil || got.Completion == nil {
		return nil, 0, fmt.Errorf("MCP server %q: what it says of a completion cannot be read", u.name)
	}
	values, total := []string{}, max(0, got.Completion.Total)
	for i, v := range got.Completion.Values {
		if i == maxValues {
			total = max(total, maxValues+1)
			break
		}
		if len(v) <= maxValue && clean(v, maxValue) == v {
			values = append(values, v)
		}
	}
	if got.Completion.HasMore {
		total = max(total, len(values)+1)
	}
	return values, total, nil
}

// Watch implements [mcpserver.Watcher]. What sessions have a process of their own for is
// watched there.
func (o offers) Watch(ctx context.Context, reach mcpserver.Reach, uri string, updated func()) (groups []string, stop func(), err error) {
	u, e, groups, err := o.seen(ctx, mcpserver.ResourceOffer, reach, uri)
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
		return nil, nil, &mcpserver.RequestError{Code: codeNoMethod, Message: fmt.Sprintf("the MCP server %q does not tell when a resource is updated; read it again", u.name)}
	}
	if err != nil {
		return nil, nil, refused(ctx, err)
	}
	return groups, stop, nil
}
