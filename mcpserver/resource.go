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
	all := slices.DeleteFunc(slices.Clone(r.cat.resources), func(o *resource) bool { return !shows(reachable, o.Groups) })
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
	e := rpc.Errorf(r.notFoundCode, "unknown resource %q", uri)
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
