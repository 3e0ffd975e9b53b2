package mcpserver

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
)

// configuredResources returns the resources of the configuration that the client sees.
func (r *request) configuredResources() []*resource {
	reachable := r.tk.Reachable(r.scope)
	var all []*resource
	for _, o := range r.cat.resources {
		if isVisible(reachable, o.Groups) {
			visible := *o // a copy, because the labels depend on the client
			visible.Groups = r.granted(o.Groups)
			all = append(all, &visible)
		}
	}
	return all
}

// listResources handles resources/list. Templates have their own list.
func (r *request) listResources(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, o := range r.configuredResources() {
		if o.template == nil {
			all = append(all, entry{o.URI, o.describe()})
		}
	}
	for _, s := range r.skills(ctx) {
		all = append(all, s.fileEntries()...)
	}
	return requestedPage(r, "resources", append(all, r.upstreamEntries(ctx, mcpupstream.KindResource)...))
}

// listTemplates handles resources/templates/list.
func (r *request) listTemplates(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, o := range r.configuredResources() {
		if o.template != nil {
			all = append(all, entry{o.URI, o.describe()})
		}
	}
	return requestedPage(r, "resourceTemplates", append(all, r.upstreamEntries(ctx, mcpupstream.KindTemplate)...))
}

// readResource handles resources/read. If there is no such resource it returns an error, not an empty list of contents.
func (r *request) readResource(ctx context.Context) (any, *rpc.Error) {
	uri, rpcErr := r.uri()
	if rpcErr != nil {
		return nil, rpcErr
	}
	data, mediaType, err := r.readOwn(ctx, uri)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.getUpstream(ctx, mcpupstream.KindResource, uri, nil, r.notFound(uri))
	case err != nil:
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "resource %q: %v", uri, err)
	}
	return object{"contents": []object{contentsOf(uri, mediaType, data)}}, nil
}

// readOwn returns the content and the media type of a configured resource, or of a file of a skill, that the client sees. If
// several resources match, it reads the one with the fewest variables: a plain URI before templates.
func (r *request) readOwn(ctx context.Context, uri string) (data []byte, mediaType string, err error) {
	all := r.configuredResources()
	slices.SortStableFunc(all, func(a, b *resource) int { return cmp.Compare(len(a.variables()), len(b.variables())) })
	for _, o := range all {
		if vars, ok := o.match(uri); ok {
			data, err := o.Read(ctx, uri, vars)
			return data, o.MediaType, err
		}
	}
	return r.readSkill(ctx, uri)
}

// uri returns the URI in the request.
func (r *request) uri() (string, *rpc.Error) {
	var p struct {
		URI string `json:"uri"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return "", err
	}
	if p.URI == "" {
		return "", rpc.Errorf(mcp.INVALID_PARAMS, "%s: uri is missing", r.msg.Method)
	}
	return p.URI, nil
}

// notFound returns the error for a resource that does not exist, and for a resource that the client may not see.
func (r *request) notFound(uri string) *rpc.Error {
	e := rpc.Errorf(r.notFoundCode, "unknown resource %q", uri)
	e.Data = object{"uri": uri}
	return e
}

// watchResource subscribes c, the session or the listener of the request, to a resource that the client sees.
func (r *request) watchResource(ctx context.Context, c *session, uri string) *rpc.Error {
	if len(uri) > maxWatchedURI {
		return rpc.Errorf(mcp.INVALID_PARAMS, "the URI has %d bytes; the limit for a subscription is %d", len(uri), maxWatchedURI)
	}
	if c.watchLimitReached(uri) {
		return errTooManySubscriptions
	}
	if !r.hasOwn(ctx, uri) {
		return r.watchUpstream(ctx, c, uri)
	}
	if _, ok := c.watch(uri, nil); !ok {
		return errTooManySubscriptions
	}
	return nil
}

// hasOwn reports whether the client sees a configured resource, or a file of a skill, with the URI. A URI that matches a
// template is enough: only reading would show whether the resource exists.
func (r *request) hasOwn(ctx context.Context, uri string) bool {
	for _, o := range r.configuredResources() {
		if _, ok := o.match(uri); ok {
			return true
		}
	}
	_, _, err := r.readSkill(ctx, uri)
	return err == nil
}
