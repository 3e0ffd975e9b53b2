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
	all := slices.DeleteFunc(slices.Clone(r.cat.resources), func(o *resource) bool { return !isVisible(reachable, o.Groups) })
	for i, o := range all {
		visible := *o // as this client sees it
		visible.Groups = r.granted(o.Groups)
		all[i] = &visible
	}
	return all
}

// listResources returns a page of the resources that are not templates.
func (r *request) listResources(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, o := range r.configuredResources() {
		if o.template == nil {
			all = append(all, entry{o.URI, o.describe()})
		}
	}
	for _, s := range r.skills(ctx) {
		for _, o := range s.resources() {
			all = append(all, entry{o["uri"].(string), o})
		}
	}
	return requestedPage(r, "resources", append(all, r.upstreamEntries(ctx, mcpupstream.KindResource)...))
}

// listTemplates returns a page of the templates.
func (r *request) listTemplates(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, o := range r.configuredResources() {
		if o.template != nil {
			all = append(all, entry{o.URI, o.describe()})
		}
	}
	return requestedPage(r, "resourceTemplates", append(all, r.upstreamEntries(ctx, mcpupstream.KindTemplate)...))
}

// readResource returns the content of a resource. If there is no such resource it returns an error, not an
// empty list of contents.
func (r *request) readResource(ctx context.Context) (any, *rpc.Error) {
	uri, bad := r.uri()
	if bad != nil {
		return nil, bad
	}
	data, kind, err := r.read(ctx, uri)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.getUpstream(ctx, mcpupstream.KindResource, uri, nil, r.notFound(uri))
	case err != nil:
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "resource %q: %v", uri, err)
	}
	return object{"contents": []object{contentsOf(uri, kind, data)}}, nil
}

// read returns the content for a URI that the client sees. It looks at plain URIs first, then at templates,
// then at skills.
func (r *request) read(ctx context.Context, uri string) ([]byte, string, error) {
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

// notFound returns the same error whether there is no such resource or the client may not see it. Its code
// depends on the revision (SEP-2164).
func (r *request) notFound(uri string) *rpc.Error {
	e := rpc.Errorf(r.notFoundCode, "unknown resource %q", uri)
	e.Data = object{"uri": uri}
	return e
}

// watchFor subscribes a client to a resource that the client of the request sees.
func (r *request) watchFor(ctx context.Context, c *session, uri string) *rpc.Error {
	if len(uri) > maxWatchedURI {
		return rpc.Errorf(mcp.INVALID_PARAMS, "the URI has %d bytes; the limit for a subscription is %d", len(uri), maxWatchedURI)
	}
	if c.mayNotWatch(uri) {
		return errTooManySubscriptions
	}
	if !r.exists(ctx, uri) {
		return r.watchUpstream(ctx, c, uri)
	}
	if _, ok := c.watch(uri, nil); !ok {
		return errTooManySubscriptions
	}
	return nil
}

// exists reports whether the client sees such a resource. A URI that matches a template counts as existing,
// because only reading it would show whether it does.
func (r *request) exists(ctx context.Context, uri string) bool {
	for _, o := range r.configuredResources() {
		if _, ok := o.match(uri); ok {
			return true
		}
	}
	_, _, err := r.readSkill(ctx, uri)
	return err == nil
}
