package mcpgateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/internal/mcpgroups"
	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpclient"
)

// The prompts, resources and resource templates of upstream servers are called items. They are in groups, according to
// their names, as tools are. A client sees the items of its groups.

const (
	maxEntry       = 64 << 10         // of a list, in bytes
	maxURI         = 8 << 10          // in bytes
	listTimeout    = 30 * time.Second // for the lists of all servers together
	retryListAfter = 30 * time.Second // how long a list that has failed is not requested again
	uriScheme      = "mcp://"         // of the gateway's URIs
)

// uriPrefix is the beginning of the URIs of a server's resources. No uriPrefix is a prefix of another.
func (u *upstream) uriPrefix() string { return uriScheme + strings.TrimSuffix(u.prefix, "__") + "/" }

// items are the prompts and resources of all upstream servers.
type items struct{ *Gateway }

// Version implements [mcpupstream.Provider].
func (o items) Version(kind mcpupstream.Kind, groups []string) string {
	var b strings.Builder
	for _, u := range o.current.Load().upstreams {
		if v := u.version(kind); v > 0 && intersect(o.groupsOfServer(u), groups) {
			fmt.Fprintf(&b, "%s:%d;", u.prefix, v)
		}
	}
	return b.String()
}

// OnChange implements [mcpupstream.Provider].
func (o items) OnChange(changed func()) (stop func()) {
	o.itemsChanged = changed
	return func() {} // nothing calls changed after the gateway has closed its clients of the servers
}

// version returns the version of the list; 0 until the server is known to have items of the kind.
func (u *upstream) version(kind mcpupstream.Kind) int64 {
	st := u.client.Status()
	if kind == mcpupstream.KindPrompt {
		return st.PromptsVersion
	}
	return st.ResourcesVersion
}

// List implements [mcpupstream.Provider]. It starts a server only if a group of the server is open (in v.Listed, which is
// empty for a client that only searches tools). A server that has already listed items only needs a group in v.Groups.
func (o items) List(ctx context.Context, kind mcpupstream.Kind, v mcpupstream.View) []mcpupstream.Item {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	upstreams := o.current.Load().upstreams
	lists := make([][]mcpupstream.Item, len(upstreams))
	var wg sync.WaitGroup
	for i, u := range upstreams {
		groups := o.groupsOfServer(u)
		if intersect(groups, v.Listed) || u.version(kind) > 0 && intersect(groups, v.Groups) {
			wg.Go(func() { lists[i] = o.itemsOf(ctx, u, kind, v) })
		}
	}
	wg.Wait()
	return slices.Concat(lists...)
}

// itemsOf returns the items of a server that a client sees; none if the server cannot list them.
func (o items) itemsOf(ctx context.Context, u *upstream, kind mcpupstream.Kind, v mcpupstream.View) (out []mcpupstream.Item) {
	list, err := u.list(ctx, kind)
	if err != nil {
		return nil
	}
	for _, e := range list {
		groups := o.groupsOf(u, e.name, e.labels)
		if intersect(groups, v.Groups) && v.Denied(u.ruleName(kind, e)) == nil {
			out = append(out, mcpupstream.Item{Name: e.outer, Groups: groups, Entry: e.fields})
		}
	}
	return out
}

// ruleName returns the tool name that deny rules are compared with: the prompt's name or, for resources, a name
// that only matches a rule for all tools of the server.
func (u *upstream) ruleName(kind mcpupstream.Kind, e *listEntry) string {
	if kind == mcpupstream.KindPrompt {
		return u.prefix + mcpgroups.Legal(e.name)
	}
	return u.prefix + "resources/read"
}

// A listEntry is an entry of a server's list.
type listEntry struct {
	name   string                     // the name in the list, which determines the groups
	inner  string                     // the name of a prompt, or the URI or URI template, on the server
	outer  string                     // the same on the gateway
	labels []string                   // the groups of the entry, as the server names them in _meta
	fields map[string]json.RawMessage // of the JSON object for clients, with clean texts and the outer name
}

// list returns a server's list with clean texts. It computes the clean list again only when the server's list
// has changed.
func (u *upstream) list(ctx context.Context, kind mcpupstream.Kind) ([]*listEntry, error) {
	switch kind {
	case mcpupstream.KindResource:
		return listOf(ctx, u, kind, u.client.Resources, func(r mcpclient.Resource) json.RawMessage { return r.Raw })
	case mcpupstream.KindTemplate:
		return listOf(ctx, u, kind, u.client.ResourceTemplates, func(r mcpclient.Resource) json.RawMessage { return r.Raw })
	}
	return listOf(ctx, u, kind, u.client.Prompts, func(p mcpclient.Prompt) json.RawMessage { return p.Raw })
}

// listOf returns the clean form of what request, a method of u.client, lists. raw returns an entry as the server sent it.
func listOf[T any](ctx context.Context, u *upstream, kind mcpupstream.Kind, request func(context.Context) ([]T, error), raw func(T) json.RawMessage) ([]*listEntry, error) {
	if err := u.recentFailure(kind); err != nil {
		return nil, err
	}
	listed, err := request(ctx)
	u.announceItems() // the request may have started the server
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		if !errors.Is(context.Cause(ctx), context.Canceled) { // the client has not disconnected
			slog.WarnContext(ctx, "an MCP server cannot list", "server", u.name, "what", kind, "err", withoutStderr(ctx, err))
			u.recordFailure(kind, err)
		}
		return nil, err
	}
	if last, ok := u.items[kind].listed.([]T); ok && sameSlice(listed, last) {
		return u.items[kind].clean, nil
	}
	clean, seen := []*listEntry{}, map[string]bool{}
	for _, item := range listed {
		if e := u.entry(kind, raw(item)); e != nil && !seen[e.inner] {
			seen[e.inner] = true
			clean = append(clean, e)
		}
	}
	u.items[kind] = itemList{listed, clean}
	return clean, nil
}

// A failure is a failed request for a list.
type failure struct {
	at    time.Time
	state serverState // at that time
	err   error
}

// A serverState is the state of a server. When the state has changed, a failed list is requested again at once.
type serverState struct {
	state    string
	restarts int
}

func (u *upstream) serverState() serverState {
	st := u.client.Status()
	return serverState{st.State, st.Restarts}
}

// recordFailure records that the server could not list items: of this kind if it answered with an error,
// otherwise of any kind. The caller holds u.mu.
func (u *upstream) recordFailure(kind mcpupstream.Kind, err error) {
	if !isAnswer(err) {
		kind = ""
	}
	u.failed[kind] = failure{time.Now(), u.serverState(), err}
}

// recentFailure returns the error of a recent failure if the server's state has not changed, so that not every
// list waits for the server.
func (u *upstream) recentFailure(kind mcpupstream.Kind) error {
	current := u.serverState()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range []failure{u.failed[""], u.failed[kind]} {
		if f.state == current && time.Since(f.at) <= retryListAfter {
			return f.err
		}
	}
	return nil
}

// An itemList is a clean list, and the server's list from which the clean list was computed.
type itemList struct {
	listed any // []mcpclient.Prompt or []mcpclient.Resource
	clean  []*listEntry
}

// entry reads an entry of a list. It returns nil if the entry is too long, or if its name or URI is not clean, because the
// server does not know the clean form.
func (u *upstream) entry(kind mcpupstream.Kind, raw json.RawMessage) *listEntry {
	var fields map[string]json.RawMessage
	if len(raw) > maxEntry || json.Unmarshal(cleanJSON(raw), &fields) != nil {
		return nil
	}
	text := func(key string) (s string) { _ = json.Unmarshal(fields[key], &s); return s }
	key, prefix := "name", u.prefix
	switch kind {
	case mcpupstream.KindResource:
		key, prefix = "uri", u.uriPrefix()
	case mcpupstream.KindTemplate:
		key, prefix = "uriTemplate", u.uriPrefix()
	}
	e := &listEntry{name: text("name"), inner: text(key), fields: fields}
	if e.inner == "" || clean(e.inner, maxURI) != e.inner {
		return nil
	}
	e.outer = prefix + e.inner
	fields["name"] = jsonString(clean(e.name, maxLine))
	fields[key] = jsonString(e.outer) // for a prompt, replaces the name
	var meta map[string]json.RawMessage
	_ = json.Unmarshal(fields["_meta"], &meta)
	_ = json.Unmarshal(meta[mcpcontent.GroupsKey], &e.labels) // most entries have none
	return e
}

// jsonString returns the JSON of a text.
func jsonString(s string) json.RawMessage {
	data, _ := json.Marshal(s) // cannot fail for a string
	return data
}

// Get implements [mcpupstream.Provider].
func (o items) Get(ctx context.Context, kind mcpupstream.Kind, v mcpupstream.View, name string, args map[string]string) (json.RawMessage, error) {
	u, e, _, err := o.resolve(ctx, kind, v, name)
	if err != nil {
		return nil, err
	}
	raw, err := u.get(ctx, kind, e.inner, args)
	if err != nil {
		return nil, clientError(ctx, err)
	}
	if len(raw) > u.resultLimit {
		return nil, fmt.Errorf("MCP server %q: the result has %d bytes, the limit is %d", u.name, len(raw), u.resultLimit)
	}
	if kind == mcpupstream.KindResource {
		raw = outerURIs(raw, u.uriPrefix())
	}
	return raw, nil
}

// resolve returns the server and the entry of a name, and the groups of the entry, if the client may use it.
func (o items) resolve(ctx context.Context, kind mcpupstream.Kind, v mcpupstream.View, name string) (u *upstream, e *listEntry, groups []string, err error) {
	if o.audit != nil && !o.audit.writable() {
		return nil, nil, nil, &mcpupstream.RequestError{Code: codeInternal, Message: auditUnwritable}
	}
	u, e, err = o.lookUp(ctx, kind, v, name)
	if err != nil {
		return nil, nil, nil, withoutStderr(ctx, err)
	}
	groups = o.groupsOf(u, e.name, e.labels)
	if !intersect(groups, v.Groups) {
		return nil, nil, nil, mcpupstream.ErrNotFound
	}
	if err := v.Denied(u.ruleName(kind, e)); err != nil {
		return nil, nil, nil, err
	}
	return u, e, groups, nil
}

// clientError returns the error to send to the client for an error of a request to a server.
func clientError(ctx context.Context, err error) error {
	ce, ok := errors.AsType[*mcpclient.CallError](err)
	if !ok {
		return withoutStderr(ctx, err)
	}
	if ce.Code == codeNoResource || ce.Code == codeNoMethod { // servers without resources answer codeNoMethod
		return mcpupstream.ErrNotFound
	}
	return &mcpupstream.RequestError{Code: ce.Code, Message: clean(ce.Error(), maxText), Data: ce.Data}
}

// The JSON-RPC and MCP error codes that the gateway uses.
const (
	codeInternal      = -32603
	codeNoMethod      = -32601
	codeInvalidParams = -32602
	codeNoResource    = -32002
)

// lookUp returns the server and the entry with a name or URI of the gateway. It does not contact servers of which the
// client sees no items.
func (o items) lookUp(ctx context.Context, kind mcpupstream.Kind, v mcpupstream.View, name string) (*upstream, *listEntry, error) {
	sees := func(u *upstream) bool { return intersect(o.groupsOfServer(u), v.Groups) }
	if kind == mcpupstream.KindResource {
		for _, u := range o.current.Load().upstreams {
			if inner, ok := strings.CutPrefix(name, u.uriPrefix()); ok && sees(u) {
				e, err := u.resource(ctx, inner)
				if e == nil {
					e = &listEntry{inner: inner} // servers need not list all resources
				}
				return u, e, err
			}
		}
		return o.lookUpServerURI(ctx, v, name)
	}
	for _, u := range o.current.Load().upstreams {
		prefix := u.prefix
		if kind == mcpupstream.KindTemplate {
			prefix = u.uriPrefix()
		}
		if !strings.HasPrefix(name, prefix) || !sees(u) {
			continue
		}
		list, err := u.list(ctx, kind)
		if err != nil {
			return nil, nil, err
		}
		if i := slices.IndexFunc(list, func(e *listEntry) bool { return e.outer == name }); i >= 0 {
			return u, list[i], nil
		}
	}
	return nil, nil, mcpupstream.ErrNotFound
}

// lookUpServerURI is lookUp for a server's own URI, which results of tools contain. It succeeds if exactly one of the
// running servers has such a resource.
func (o items) lookUpServerURI(ctx context.Context, v mcpupstream.View, uri string) (server *upstream, entry *listEntry, err error) {
	for _, u := range o.current.Load().upstreams {
		if u.version(mcpupstream.KindResource) == 0 || !intersect(o.groupsOfServer(u), v.Groups) {
			continue
		}
		e, err := u.resource(ctx, uri)
		if err != nil || e == nil || !intersect(o.groupsOf(u, e.name, e.labels), v.Groups) {
			continue
		}
		if entry != nil {
			return nil, nil, &mcpupstream.RequestError{Code: codeInvalidParams,
				Message: fmt.Sprintf("several servers have a resource %q; read %q or %q", uri, server.uriPrefix()+uri, u.uriPrefix()+uri)}
		}
		server, entry = u, e
	}
	if entry == nil {
		return nil, nil, mcpupstream.ErrNotFound
	}
	return server, entry, nil
}

// resource returns the server's entry for the URI, or else an entry for the template that seems to match: the URI begins
// with the template's text before its first variable. It returns nil if there is neither, and also if the server answers
// that it cannot list resources, because they may be readable even then.
func (u *upstream) resource(ctx context.Context, uri string) (*listEntry, error) {
	list, err := u.list(ctx, mcpupstream.KindResource)
	if isAnswer(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(list, func(e *listEntry) bool { return e.inner == uri }); i >= 0 {
		return list[i], nil
	}
	templates, err := u.list(ctx, mcpupstream.KindTemplate)
	if err != nil && !isAnswer(err) {
		return nil, err
	}
	var best *listEntry
	longest := 0
	for _, e := range templates {
		head, _, _ := strings.Cut(e.inner, "{")
		if len(head) > longest && strings.HasPrefix(uri, head) {
			best, longest = &listEntry{name: e.name, labels: e.labels, inner: uri}, len(head)
		}
	}
	return best, nil
}

// isAnswer reports whether the server has answered with the error.
func isAnswer(err error) bool {
	_, ok := errors.AsType[*mcpclient.CallError](err)
	return ok
}

// get requests a prompt or a resource from the server.
func (u *upstream) get(ctx context.Context, kind mcpupstream.Kind, name string, args map[string]string) (raw json.RawMessage, err error) {
	c, done, err := u.clientOf(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(wasAbandoned(ctx, err)) }()
	if kind == mcpupstream.KindPrompt {
		p, err := c.GetPrompt(ctx, name, args)
		if err != nil {
			return nil, err
		}
		return p.Raw, nil
	}
	r, err := c.ReadResource(ctx, name)
	if err != nil {
		return nil, err
	}
	return r.Raw, nil
}

// clientOf returns the client for a call: the client of the session or user of ctx if the server has a connection for each,
// otherwise the shared client. The caller must call done when it stops waiting; abandoned says that the server may still work.
func (u *upstream) clientOf(ctx context.Context) (c *mcpclient.Client, done func(abandoned bool), err error) {
	if u.sessions != nil {
		c, err = u.sessions.client(ctx)
		return c, func(bool) {}, err
	}
	if u.users != nil {
		c, release, err := u.users.client(ctx)
		return c, func(bool) { release() }, err
	}
	return u.client, u.beginCall(ctx), nil
}

// outerURIs replaces the URIs in a result of resources/read by the gateway's URIs.
func outerURIs(raw json.RawMessage, prefix string) json.RawMessage {
	var result map[string]json.RawMessage
	var contents []map[string]json.RawMessage
	if json.Unmarshal(raw, &result) != nil || json.Unmarshal(result["contents"], &contents) != nil {
		return raw // mcpserver reports invalid results
	}
	for _, c := range contents {
		var uri string
		if json.Unmarshal(c["uri"], &uri) == nil {
			c["uri"] = jsonString(prefix + uri)
		}
	}
	result["contents"], _ = json.Marshal(contents) // decoded JSON can be encoded
	out, _ := json.Marshal(result)
	return out
}

// intersect reports whether two lists have a common element.
func intersect(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}
