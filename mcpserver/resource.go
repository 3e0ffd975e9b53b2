package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/lazy"
	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
)

// A Resource is content that a client can read.
type Resource struct {
	// URI is absolute and unique, and does not have the scheme "skill", which is for the toolkit's skills. With
	// {variables} it is a template (RFC 6570) for all URIs that match.
	URI string

	Name        string // for people; if empty, the URI is used
	Title       string // for people; may be empty
	Description string

	// MediaType is the media type of the content. If it is empty, text is text/plain, and other content is detected
	// from its bytes.
	MediaType string

	Arguments []Argument // describes variables of a template

	// Groups limit who sees the resource; see [Prompt.Groups].
	Groups []string

	// Read returns the content. vars are the values of a template's variables. The client chooses them, so check
	// them. Read returns an error that wraps [fs.ErrNotExist] if there is no such resource.
	Read func(ctx context.Context, uri string, vars map[string]string) ([]byte, error)
}

// A resource is a Resource with its parsed template.
type resource struct {
	Resource
	template *mcp.URITemplate // nil for a plain URI
}

// newResource checks a resource, so that a bad template is an error of New.
func newResource(o Resource) (*resource, error) {
	r := &resource{Resource: o}
	scheme, _, absolute := strings.Cut(o.URI, ":")
	switch {
	case !absolute || scheme == "" || scheme == skillScheme:
		return nil, fmt.Errorf("resource %q: its URI must have a scheme other than %q, which is for skills", o.URI, skillScheme)
	case o.Read == nil:
		return nil, fmt.Errorf("resource %q has no Read; set the function that returns its content", o.URI)
	}
	if err := checkArguments(o.Arguments); err != nil {
		return nil, fmt.Errorf("resource %q: %w", o.URI, err)
	}
	if strings.ContainsAny(o.URI, "{}") {
		r.template = new(mcp.URITemplate)
		if err := json.Unmarshal(rpc.Encode(o.URI), r.template); err != nil {
			return nil, fmt.Errorf("resource %q: %w", o.URI, err)
		}
	}
	return r, nil
}

// match reports whether the resource has this URI, and returns the values of its variables.
func (r *resource) match(uri string) (map[string]string, bool) {
	if r.template == nil {
		return nil, uri == r.URI
	}
	values := r.template.Match(uri)
	if values == nil {
		return nil, false
	}
	vars := map[string]string{}
	for _, name := range r.template.Varnames() {
		vars[name] = values.Get(name).String()
	}
	return vars, true
}

// describe returns the list entry of a resource.
func (r *resource) describe() object {
	key := "uri"
	if r.template != nil {
		key = "uriTemplate"
	}
	o := titled(object{key: r.URI, "name": cmp.Or(r.Name, r.URI), "description": r.Description}, r.Title)
	if r.MediaType != "" {
		o["mimeType"] = r.MediaType
	}
	return labelled(o, r.Groups)
}

// configured returns the resources of the configuration that the client sees.
func (r *request) configured() []*resource {
	reachable := r.tk.Reachable(r.scope)
	all := slices.DeleteFunc(slices.Clone(r.srv.resources), func(o *resource) bool { return !shows(reachable, o.Groups) })
	for i, o := range all {
		visible := *o // as this client sees it
		visible.Groups = r.granted(o.Groups)
		all[i] = &visible
	}
	return all
}

// hasResources reports whether any client can have resources.
func (s *Server) hasResources() bool { return s.ownResources() || s.cfg.upstream != nil }

// ownResources reports whether there are resources other than those of upstream servers.
func (s *Server) ownResources() bool { return len(s.resources) > 0 || s.hasSkills() }

// hasSubscriptions reports whether clients can subscribe to a resource.
func (s *Server) hasSubscriptions() bool {
	_, watches := s.cfg.upstream.(mcpupstream.Watcher)
	return watches || s.ownResources()
}

// resourceMethod dispatches the methods of resources. Clients without sessions subscribe by listen.
func (r *request) resourceMethod(ctx context.Context) (any, *rpc.Error) {
	switch r.msg.Method {
	case "resources/list":
		return r.listResources(ctx)
	case "resources/templates/list":
		return r.listTemplates(ctx)
	case "resources/read":
		return r.runWithHost(ctx, (*request).readResource)
	case "resources/subscribe", "resources/unsubscribe":
		if !r.sessionless && r.srv.hasSubscriptions() {
			return r.subscribe(ctx, r.msg.Method == "resources/subscribe")
		}
	}
	return nil, r.unknown()
}

// listResources returns a page of the resources that are not templates.
func (r *request) listResources(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, o := range r.configured() {
		if o.template == nil {
			all = append(all, entry{o.URI, o.describe()})
		}
	}
	for _, s := range r.skills(ctx) {
		for _, o := range s.resources() {
			all = append(all, entry{o["uri"].(string), o})
		}
	}
	return listed(r, "resources", append(all, r.upstreamEntries(ctx, mcpupstream.KindResource)...))
}

// listTemplates returns a page of the templates.
func (r *request) listTemplates(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, o := range r.configured() {
		if o.template != nil {
			all = append(all, entry{o.URI, o.describe()})
		}
	}
	return listed(r, "resourceTemplates", append(all, r.upstreamEntries(ctx, mcpupstream.KindTemplate)...))
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
	all := r.configured()
	slices.SortStableFunc(all, func(a, b *resource) int { return cmp.Compare(len(a.variables()), len(b.variables())) })
	for _, o := range all {
		if vars, ok := o.match(uri); ok {
			data, err := o.Read(ctx, uri, vars)
			return data, o.MediaType, err
		}
	}
	return r.readSkill(ctx, uri)
}

// variables returns the names of a template's variables; a plain URI has none.
func (r *resource) variables() []string {
	if r.template == nil {
		return nil
	}
	return r.template.Varnames()
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
	code := mcp.RESOURCE_NOT_FOUND
	if r.sessionless {
		code = mcp.INVALID_PARAMS
	}
	e := rpc.Errorf(code, "unknown resource %q", uri)
	e.Data = object{"uri": uri}
	return e
}

// textual matches the media types of text, including those that do not begin with "text/".
var textual = lazy.Regexp(`^(text/.*|application/(json|xml|yaml|toml|javascript|sql|x-sh)|.*\+(json|xml|yaml))(;.*)?$`)

// contentsOf returns the content of a resource, as text if it is text, otherwise in base64.
func contentsOf(uri, kind string, data []byte) object {
	if (kind == "" || textual().MatchString(kind)) && utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 {
		return object{"uri": uri, "mimeType": cmp.Or(kind, "text/plain"), "text": string(data)}
	}
	return object{"uri": uri, "mimeType": cmp.Or(kind, http.DetectContentType(data)), "blob": base64.StdEncoding.EncodeToString(data)}
}

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

// subscribe subscribes the client to a resource; see [Server.ResourceUpdated].
func (r *request) subscribe(ctx context.Context, on bool) (any, *rpc.Error) {
	uri, bad := r.uri()
	if bad != nil {
		return nil, bad
	}
	if !on {
		if stop := r.unwatch(uri); stop != nil {
			stop()
		}
		return object{}, nil
	}
	if bad := r.watchFor(ctx, r.session, uri); bad != nil {
		return nil, bad
	}
	return object{}, nil
}

// watchFor subscribes a client to a resource that the client of the request sees.
func (r *request) watchFor(ctx context.Context, c *session, uri string) *rpc.Error {
	if len(uri) > maxWatchedURI {
		return rpc.Errorf(mcp.INVALID_PARAMS, "the URI has %d bytes; the limit for a subscription is %d", len(uri), maxWatchedURI)
	}
	if c.full(uri) {
		return errWatched
	}
	if !r.exists(ctx, uri) {
		return r.watchUpstream(ctx, c, uri)
	}
	if _, ok := c.watch(uri, nil); !ok {
		return errWatched
	}
	return nil
}

// exists reports whether the client sees such a resource. A URI that matches a template counts as existing,
// because only reading it would show whether it does.
func (r *request) exists(ctx context.Context, uri string) bool {
	for _, o := range r.configured() {
		if _, ok := o.match(uri); ok {
			return true
		}
	}
	_, _, err := r.readSkill(ctx, uri)
	return err == nil
}

// ResourceUpdated notifies the clients that have subscribed to the resource, if one of its groups is still open
// for them.
func (s *Server) ResourceUpdated(uri string) {
	var groups [][]string // of the resources and templates that match
	for _, o := range s.resources {
		if _, ok := o.match(uri); ok {
			groups = append(groups, o.Groups)
		}
	}
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.scopes))
	listening := slices.Collect(maps.Keys(s.listening)) // their groups never close
	s.mu.Unlock()
	if len(groups) > 0 {
		all = slices.DeleteFunc(all, func(c *session) bool {
			reachable := s.cfg.Toolkit.Reachable(c.scope)
			return !slices.ContainsFunc(groups, func(in []string) bool { return shows(reachable, in) })
		})
	}
	for _, c := range append(all, listening...) {
		c.updated(uri)
	}
}

// A watched is the subscription of a client to a resource.
type watched struct {
	due  bool   // an update must be sent
	stop func() // ends the watch of [mcpupstream.Watcher]; nil if there is none
}

// full reports whether a subscription to the resource would exceed the limit of the client or its credential.
func (c *session) full(uri string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watched[uri] == nil && (len(c.watched) >= maxSubscriptions || c.owner.watched.Full())
}

// watch adds a subscription if the limits allow it. An existing subscription is kept, with an update that was
// not sent yet; before stops its earlier watch.
func (c *session) watch(uri string, stop func()) (before func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.watched[uri]
	if w == nil {
		if len(c.watched) >= maxSubscriptions {
			return nil, false
		}
		if !c.owner.watched.Take(1) {
			return nil, false
		}
		if c.watched == nil {
			c.watched = map[string]*watched{}
			context.AfterFunc(c.ctx, c.unwatchAll)
		}
		w = &watched{}
		c.watched[uri] = w
	}
	before, w.stop = w.stop, stop
	return before, true
}

// unwatch removes a subscription, and returns the function that stops its watch, or nil.
func (c *session) unwatch(uri string) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.watched[uri]; w != nil {
		stop = w.stop
		delete(c.watched, uri)
		c.owner.watched.Add(-1)
	}
	return stop
}

// unwatchAll removes the subscriptions of a session that has ended from the count of its credential.
func (c *session) unwatchAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner.watched.Add(-int64(len(c.watched)))
	c.watched = nil
}

// updated records that the client must be notified of an update of the resource.
func (c *session) updated(uri string) {
	c.mu.Lock()
	w := c.watched[uri]
	if w != nil {
		w.due = true
	}
	c.mu.Unlock()
	if w != nil {
		c.notify(resourceUpdated, true)
	}
}

// takeUpdated returns the updated resources, sorted, and marks them as sent.
func (c *session) takeUpdated() (uris []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uri, w := range c.watched {
		if w.due {
			w.due = false
			uris = append(uris, uri)
		}
	}
	slices.Sort(uris)
	return uris
}
