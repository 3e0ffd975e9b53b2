package mcpgateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/mcpclient"
	"github.com/kitbag-go/kitbag/mcpserver"
)

// Prompts and resources of upstream servers are in groups as tools are, by their names,
// and a client sees those that are in its groups. A prompt is called SERVER__PROMPT, the
// URI of a resource is mcp://SERVER/URI: both lead back.

const (
	// maxEntry is how long an entry of a list may be, in bytes, maxURI a URI.
	maxEntry = 64 << 10
	maxURI   = 8 << 10

	// offersTimeout is how long servers have to list, all side by side.
	offersTimeout = 30 * time.Second

	// listAgain is how long a server that could not list is left alone, as toolkits do.
	listAgain = 30 * time.Second

	// uriScheme begins the URIs of the gateway.
	uriScheme = "mcp://"
)

// uriPrefix is what the URIs of a server's resources begin with. No server's is the
// beginning of another's.
func (u *upstream) uriPrefix() string { return uriScheme + strings.TrimSuffix(u.prefix, "__") + "/" }

// offers are the prompts and resources of all upstream servers.
type offers struct{ *Gateway }

// Version implements [mcpserver.Offers].
func (o offers) Version(kind mcpserver.OfferKind, groups []string) string {
	var b strings.Builder
	for _, u := range o.upstreams {
		if v := u.version(kind); v > 0 && overlap(o.groupsOfServer(u), groups) {
			fmt.Fprintf(&b, "%s:%d;", u.prefix, v)
		}
	}
	return b.String()
}

// version is 0 while the server is not known to have any of the kind.
func (u *upstream) version(kind mcpserver.OfferKind) int64 {
	st := u.client.Status()
	if kind == mcpserver.PromptOffer {
		return st.PromptsVersion
	}
	return st.ResourcesVersion
}

// List implements [mcpserver.Offers]. As for tools, the servers of groups that are closed
// are not started for it, and with a list that is only searched none is.
func (o offers) List(ctx context.Context, kind mcpserver.OfferKind, reach mcpserver.Reach) []mcpserver.Offer {
	ctx, cancel := context.WithTimeout(ctx, offersTimeout)
	defer cancel()
	lists := make([][]mcpserver.Offer, len(o.upstreams))
	var wg sync.WaitGroup
	for i, u := range o.upstreams {
		groups := o.groupsOfServer(u)
		if overlap(groups, reach.Listed) || u.version(kind) > 0 && overlap(groups, reach.Groups) {
			wg.Go(func() { lists[i] = o.visible(ctx, u, kind, reach) })
		}
	}
	wg.Wait()
	return slices.Concat(lists...)
}

// visible returns what a client sees of a server. One that fails has nothing, and no
// part in the others.
func (o offers) visible(ctx context.Context, u *upstream, kind mcpserver.OfferKind, reach mcpserver.Reach) (out []mcpserver.Offer) {
	list, err := u.offered(ctx, kind)
	if err != nil {
		return nil
	}
	for _, e := range list {
		groups := o.groupsOf(u, e.name, e.labels)
		if overlap(groups, reach.Groups) && !reach.Denied(u.ruleName(kind, e)) {
			out = append(out, mcpserver.Offer{Name: e.outer, Groups: groups, Entry: e.entry})
		}
	}
	return out
}

// ruleName is what a rule denies a prompt or the resources of a server by: the name of
// the prompt, or one that only a rule for all of the server's tools covers.
func (u *upstream) ruleName(kind mcpserver.OfferKind, e *offered) string {
	if kind == mcpserver.PromptOffer {
		return u.prefix + toolName(e.name)
	}
	return u.prefix + "resources/read"
}

// An offered thing is an entry of a server's list.
type offered struct {
	name         string // that puts it into groups
	inner, outer string // its name or URI there and here
	labels       []string
	entry        map[string]json.RawMessage
}

// offered returns a server's list with clean words. It is made anew only when the server
// has sent another one.
func (u *upstream) offered(ctx context.Context, kind mcpserver.OfferKind) ([]*offered, error) {
	if err := u.unlisted(kind); err != nil {
		return nil, err
	}
	raw, err := u.entries(ctx, kind)
	u.lookAtOffers()
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		if !errors.Is(context.Cause(ctx), context.Canceled) { // else the host has left
			slog.WarnContext(ctx, "an MCP server cannot list", "server", u.name, "what", kind, "err", discreet(ctx, err))
			u.fail(kind, err)
		}
		return nil, err
	}
	if last, ok := u.offers[kind]; ok && sameSlice(raw, last.raw) {
		return last.clean, nil
	}
	clean, seen := []*offered{}, map[string]bool{}
	for _, r := range raw {
		if e := u.entry(kind, r); e != nil && !seen[e.inner] {
			seen[e.inner] = true
			clean = append(clean, e)
		}
	}
	if u.offers == nil {
		u.offers = map[mcpserver.OfferKind]offerList{}
	}
	u.offers[kind] = offerList{raw, clean}
	return clean, nil
}

// entries returns a server's list as the server wrote it. The slice stays the same while the
// list does.
func (u *upstream) entries(ctx context.Context, kind mcpserver.OfferKind) ([]json.RawMessage, error) {
	switch kind {
	case mcpserver.ResourceOffer:
		return u.client.Resources(ctx)
	case mcpserver.TemplateOffer:
		return u.client.ResourceTemplates(ctx)
	}
	prompts, err := u.client.Prompts(ctx)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.rawPrompts == nil || !sameSlice(prompts, u.prompts) {
		u.prompts, u.rawPrompts = prompts, make([]json.RawMessage, len(prompts))
		for i, p := range prompts {
			u.rawPrompts[i] = p.Raw
		}
	}
	return u.rawPrompts, nil
}

// A failure is when and why a server could not list, and in which condition it was.
type failure struct {
	at   time.Time
	when condition
	err  error
}

// A condition is another one when it may be worth to ask the server again.
type condition struct {
	state    string
	restarts int
}

func (u *upstream) condition() condition {
	st := u.client.Status()
	return condition{st.State, st.Restarts}
}

// fail notes that the server could not list: that kind, if it said so, else anything. The
// caller holds u.mu.
func (u *upstream) fail(kind mcpserver.OfferKind, err error) {
	if readable(err) != nil {
		kind = ""
	}
	if u.failed == nil {
		u.failed = map[mcpserver.OfferKind]failure{}
	}
	u.failed[kind] = failure{time.Now(), u.condition(), err}
}

// unlisted returns why the server could not list, if that was lately and nothing has
// changed: every list would have to wait for it once more.
func (u *upstream) unlisted(kind mcpserver.OfferKind) error {
	now := u.condition()
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, f := range []failure{u.failed[""], u.failed[kind]} {
		if f.when == now && time.Since(f.at) <= listAgain {
			return f.err
		}
	}
	return nil
}

// An offerList is a list, and what it was made of.
type offerList struct {
	raw   []json.RawMessage
	clean []*offered
}

// entry reads an entry of a list. It returns nil for one that is too long or hides
// something in its name: what leads back must not change.
func (u *upstream) entry(kind mcpserver.OfferKind, raw json.RawMessage) *offered {
	var e map[string]json.RawMessage
	if len(raw) > maxEntry || json.Unmarshal(cleanSchema(raw), &e) != nil {
		return nil
	}
	text := func(key string) (s string) { _ = json.Unmarshal(e[key], &s); return s }
	key, prefix := "name", u.prefix
	switch kind {
	case mcpserver.ResourceOffer:
		key, prefix = "uri", u.uriPrefix()
	case mcpserver.TemplateOffer:
		key, prefix = "uriTemplate", u.uriPrefix()
	}
	o := &offered{name: text("name"), inner: text(key), entry: e}
	if o.inner == "" || clean(o.inner, maxURI) != o.inner {
		return nil
	}
	o.outer = prefix + o.inner
	e["name"] = quoted(clean(o.name, maxLine))
	e[key] = quoted(o.outer)
	var about struct {
		Labels []string `json:"io.modelcontextprotocol/groups"`
	}
	_ = json.Unmarshal(e["_meta"], &about)
	o.labels = about.Labels
	return o
}

// quoted returns the JSON of a text.
func quoted(s string) json.RawMessage {
	data, err := json.Marshal(s)
	if err != nil { // which no text causes
		return json.RawMessage(`""`)
	}
	return data
}

// Get implements [mcpserver.Offers].
func (o offers) Get(ctx context.Context, kind mcpserver.OfferKind, reach mcpserver.Reach, name string, args map[string]string) (json.RawMessage, error) {
	u, e, _, err := o.seen(ctx, kind, reach, name)
	if err != nil {
		return nil, err
	}
	raw, err := u.get(ctx, kind, e.inner, args)
	if err != nil {
		return nil, refused(ctx, err)
	}
	if len(raw) > u.limit {
		return nil, fmt.Errorf("MCP server %q: the result has %d bytes; %d are passed on", u.name, len(raw), u.limit)
	}
	if kind == mcpserver.ResourceOffer {
		raw = outerURIs(raw, u.uriPrefix())
	}
	return raw, nil
}

// seen returns what a name leads to, if the client may have it, and the groups that it is in.
func (o offers) seen(ctx context.Context, kind mcpserver.OfferKind, reach mcpserver.Reach, name string) (*upstream, *offered, []string, error) {
	if o.audit != nil && !o.audit.writable() {
		return nil, nil, nil, &mcpserver.RequestError{Code: codeInternal, Message: unwritable}
	}
	u, e, err := o.find(ctx, kind, reach, name)
	if err != nil {
		return nil, nil, nil, discreet(ctx, err)
	}
	groups := o.groupsOf(u, e.name, e.labels)
	if !overlap(groups, reach.Groups) || reach.Denied(u.ruleName(kind, e)) {
		return nil, nil, nil, mcpserver.ErrNoOffer
	}
	return u, e, groups, nil
}

// refused returns the error of a server as it is told.
func refused(ctx context.Context, err error) error {
	ce, ok := errors.AsType[*mcpclient.CallError](err)
	if !ok {
		return discreet(ctx, err)
	}
	if ce.Code == codeNoResource || ce.Code == codeNoMethod { // the latter of a server that has none at all
		return mcpserver.ErrNoOffer
	}
	return &mcpserver.RequestError{Code: ce.Code, Message: clean(ce.Error(), maxWords), Data: ce.Data}
}

// The codes of JSON-RPC and MCP that are looked at, or answered with.
const (
	codeInternal      = -32603
	codeNoMethod      = -32601
	codeInvalidParams = -32602
	codeNoResource    = -32002
)

// find returns the server that a name leads to. A server of which the client sees
// nothing is not contacted.
func (o offers) find(ctx context.Context, kind mcpserver.OfferKind, reach mcpserver.Reach, name string) (*upstream, *offered, error) {
	sees := func(u *upstream) bool { return overlap(o.groupsOfServer(u), reach.Groups) }
	if kind == mcpserver.ResourceOffer {
		for _, u := range o.upstreams {
			if inner, ok := strings.CutPrefix(name, u.uriPrefix()); ok && sees(u) {
				e, err := u.resource(ctx, inner)
				if e == nil {
					e = &offered{inner: inner} // not all need be listed
				}
				return u, e, err
			}
		}
		return o.findInner(ctx, reach, name)
	}
	for _, u := range o.upstreams {
		prefix := u.prefix
		if kind == mcpserver.TemplateOffer {
			prefix = u.uriPrefix()
		}
		if !strings.HasPrefix(name, prefix) || !sees(u) {
			continue
		}
		list, err := u.offered(ctx, kind)
		if err != nil {
			return nil, nil, err
		}
		if i := slices.IndexFunc(list, func(e *offered) bool { return e.outer == name }); i >= 0 {
			return u, list[i], nil
		}
	}
	return nil, nil, mcpserver.ErrNoOffer
}

// findInner is find for a URI as its server has it, which is how results of tools name
// resources. It leads back if only one of the servers at work has such a resource.
func (o offers) findInner(ctx context.Context, reach mcpserver.Reach, uri string) (server *upstream, found *offered, err error) {
	for _, u := range o.upstreams {
		if u.version(mcpserver.ResourceOffer) == 0 || !overlap(o.groupsOfServer(u), reach.Groups) {
			continue
		}
		e, err := u.resource(ctx, uri)
		if err != nil || e == nil || !overlap(o.groupsOf(u, e.name, e.labels), reach.Groups) {
			continue
		}
		if found != nil {
			return nil, nil, &mcpserver.RequestError{Code: codeInvalidParams,
				Message: fmt.Sprintf("several servers have a resource %q; read %q or %q", uri, server.uriPrefix()+uri, u.uriPrefix()+uri)}
		}
		server, found = u, e
	}
	if found == nil {
		return nil, nil, mcpserver.ErrNoOffer
	}
	return server, found, nil
}

// resource returns what the server lists under the URI, or for it the template that it
// seems to be of: what stands before a template's first variable has to be its beginning.
// It returns nil if there is none.
func (u *upstream) resource(ctx context.Context, uri string) (*offered, error) {
	list, err := u.offered(ctx, mcpserver.ResourceOffer)
	if err != nil {
		return nil, readable(err)
	}
	if i := slices.IndexFunc(list, func(e *offered) bool { return e.inner == uri }); i >= 0 {
		return list[i], nil
	}
	templates, err := u.offered(ctx, mcpserver.TemplateOffer)
	var best *offered
	longest := 0
	for _, e := range templates {
		head, _, _ := strings.Cut(e.inner, "{")
		if len(head) > longest && strings.HasPrefix(uri, head) {
			best, longest = &offered{name: e.name, labels: e.labels, inner: uri}, len(head)
		}
	}
	return best, readable(err)
}

// readable returns an error that keeps a server from being read: one that answers, if
// only that it cannot list, may still be.
func readable(err error) error {
	if _, refused := errors.AsType[*mcpclient.CallError](err); refused {
		return nil
	}
	return err
}

// get asks the server for a prompt or a resource.
func (u *upstream) get(ctx context.Context, kind mcpserver.OfferKind, name string, args map[string]string) (raw json.RawMessage, err error) {
	c, done, err := u.clientOf(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(ctx.Err() != nil || errors.Is(err, mcpclient.ErrTimeout)) }()
	if kind == mcpserver.PromptOffer {
		p, err := c.GetPrompt(ctx, name, args)
		if err != nil {
			return nil, err
		}
		return p.Raw, nil
	}
	return c.ReadResource(ctx, name)
}

// clientOf returns the client of the server, that of the session if it has one of its own,
// which is in use until done is called; see use.
func (u *upstream) clientOf(ctx context.Context) (c *mcpclient.Client, done func(gaveUp bool), err error) {
	if u.apart != nil {
		c, err = u.apart.client(ctx)
		return c, func(bool) {}, err
	}
	return u.client, u.use(ctx), nil
}

// outerURIs returns a result of resources/read with the URIs that lead back.
func outerURIs(raw json.RawMessage, prefix string) json.RawMessage {
	var result map[string]json.RawMessage
	var contents []map[string]json.RawMessage
	if json.Unmarshal(raw, &result) != nil || json.Unmarshal(result["contents"], &contents) != nil {
		return raw // the server checks what it passes on
	}
	for _, c := range contents {
		var uri string
		if json.Unmarshal(c["uri"], &uri) == nil {
			c["uri"] = quoted(prefix + uri)
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(contents) != nil {
		return raw
	}
	result["contents"] = b.Bytes()
	out, err := json.Marshal(result)
	if err != nil {
		return raw
	}
	return out
}

// overlap reports whether the two have a name in common.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// toolName is how a name would stand in that of a tool, for globs and rules: in those a
// slash ends what "*" covers.
func toolName(s string) string { return notInNames().ReplaceAllString(s, "_") }

// groupsOf returns the groups of a prompt or resource: those of the configuration whose
// globs cover a tool of that name, else those of the server's own that it is labelled
// with, else the one for what is in none.
func (g *Gateway) groupsOf(u *upstream, name string, labels []string) (groups []string) {
	for _, gr := range g.cfg.Groups {
		if matches(gr.Tools, u.prefix+toolName(name)) {
			groups = append(groups, gr.Name)
		}
	}
	if len(groups) > 0 {
		return groups
	}
	own := u.ownGroups()
	for _, l := range labels {
		if group, ok := own[u.name+"/"+l]; ok {
			groups = append(groups, group)
		}
	}
	if rest, ok := own[u.name]; ok && len(groups) == 0 {
		groups = append(groups, rest)
	}
	return groups
}

// groupsOfServer returns the groups that anything of a server may be in.
func (g *Gateway) groupsOfServer(u *upstream) (groups []string) {
	for _, gr := range g.cfg.Groups {
		if slices.ContainsFunc(gr.Tools, func(glob string) bool { return mayMatch(glob, u.prefix) }) {
			groups = append(groups, gr.Name)
		}
	}
	for _, group := range u.ownGroups() {
		groups = append(groups, group)
	}
	return groups
}

// ownGroups returns the server's own groups by the names that it has for them; see
// [mcpclient.Group].
func (u *upstream) ownGroups() map[string]string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.own
}
