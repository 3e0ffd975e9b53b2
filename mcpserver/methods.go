package mcpserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A request is a request in flight.
type request struct {
	*session
	msg         *rpc.Message
	out         wire.Responder
	meta        rpc.Meta
	sessionless bool

	tk         *toolkit.Toolkit
	scope      *toolkit.Scope // the session's; without sessions, one for this request only
	rec        Record         // of a call
	parkedCall *park.Call     // the call that the request is part of; nil for none
}

// handle handles a message and returns its answer, and the error in the answer, if any. The answer is nil for
// notifications and answers, and for cancelled requests, as the specification requires.
func (c *session) handle(ctx context.Context, m *rpc.Message, out wire.Responder) ([]byte, *rpc.Error) {
	switch {
	case m.Method == "":
		c.handleAnswer(m)
		return nil, nil
	case m.ID == nil:
		c.handleNotification(m)
		return nil, nil
	}
	r := &request{session: c, msg: m, out: out, meta: m.Meta, tk: c.srv.cfg.Toolkit, scope: c.scope}
	if r.sessionless = mcp.IsModernProtocol(r.meta.Version) && c.sse == nil; r.sessionless {
		if err := r.meta.Check(); err != nil {
			return rpc.Answer(m.ID, nil, err), err
		}
		r.scope = c.scope.Sub()
		r.tk = c.srv.static.pick(ctx, r.scope)
	}
	if m.Method == string(mcp.MethodPing) && !r.sessionless { // exempt from the limits, so that a busy server does not seem dead
		c.touch()
		return rpc.Answer(m.ID, object{}, nil), nil
	}
	// From here on the request counts toward the limits and can be cancelled.
	ctx, key, err := c.begin(ctx, string(m.ID), out)
	if err != nil {
		return rpc.Answer(m.ID, nil, err), err
	}
	defer c.finish(key)
	result, err := r.recovered(ctx, r.dispatch)
	if ctx.Err() != nil { // cancelled
		return nil, nil
	}
	if err == nil {
		result = r.addResultFields(result)
	}
	return rpc.Answer(m.ID, result, err), err
}

// recovered calls do and turns a panic in code of the toolkit's owner, such as the judgement of a tool, into an
// error of the request.
func (r *request) recovered(ctx context.Context, do func(context.Context) (any, *rpc.Error)) (result any, err *rpc.Error) {
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "request panicked", "method", r.msg.Method, "panic", p, "stack", string(debug.Stack()))
			result, err = nil, rpc.Errorf(mcp.INTERNAL_ERROR, "%s failed unexpectedly; see the log of the server", r.msg.Method)
		}
	}()
	return do(ctx)
}

// handleNotification handles a notification. Unknown ones are ignored.
func (c *session) handleNotification(m *rpc.Message) {
	if m.Method != string(mcp.MethodNotificationCancelled) {
		return
	}
	var p struct {
		ID json.RawMessage `json:"requestId"`
	}
	if m.Decode(&p) == nil {
		c.cancelCall(string(p.ID))
	}
}

// An object is a JSON object to send.
type object = map[string]any

// addResultFields adds the fields that results must have from revision 2026-07-28 on.
func (r *request) addResultFields(result any) any {
	o, ok := result.(object)
	if !ok || !r.sessionless {
		return result
	}
	if o["resultType"] == nil {
		o["resultType"] = "complete"
	}
	switch r.msg.Method {
	case "server/discover", "tools/list", "groups/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read":
		if o["resultType"] == "complete" {
			// Not to be cached: lists change with the toolkit, and depend on the credential.
			o["ttlMs"], o["cacheScope"] = 0, "private"
		}
	}
	if _, has := o["_meta"]; !has { // the _meta of a tool's result is left unchanged
		o["_meta"] = object{mcp.MetaKeyServerInfo: r.info()}
	}
	return o
}

// dispatch runs the method of the request. A method of other revisions, or of a capability that is not
// declared, is an unknown method.
func (r *request) dispatch(ctx context.Context) (any, *rpc.Error) {
	switch m := r.msg; m.Method {
	case "tools/list":
		return r.listTools(ctx)
	case "tools/call":
		return r.runWithHost(ctx, (*request).callTool)
	case "groups/list":
		return r.listGroups()
	case "prompts/list", "prompts/get":
		if r.srv.hasPrompts() {
			if m.Method == "prompts/get" {
				return r.runWithHost(ctx, (*request).getPrompt)
			}
			return r.listPrompts(ctx)
		}
	case "resources/list", "resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe":
		if r.srv.hasResources() {
			return r.resourceMethod(ctx)
		}
	case "completion/complete":
		if r.srv.completes {
			return r.runWithHost(ctx, (*request).complete)
		}
	case "logging/setLevel":
		if !r.sessionless {
			return r.setLevel()
		}
	case "server/discover":
		o := r.describeServer(ctx)
		o["supportedVersions"] = mcp.ValidProtocolVersions
		return o, nil
	case "subscriptions/listen":
		if r.sessionless {
			return r.listen(ctx)
		}
	case "initialize":
		if !r.sessionless {
			return r.initialize(ctx)
		}
	}
	return nil, r.unknown()
}

// unknown returns the error for an unknown method; see statusOf.
func (r *request) unknown() *rpc.Error {
	return rpc.Errorf(mcp.METHOD_NOT_FOUND, "unknown method %q", r.msg.Method)
}

// info returns the name and version of the server.
func (r *request) info() object {
	o := object{"name": r.srv.cfg.Name, "version": r.srv.cfg.Version}
	if r.srv.cfg.Title != "" {
		o["title"] = r.srv.cfg.Title
	}
	return o
}

// initialize handles initialize. It selects the client's protocol revision if the server supports it, and
// otherwise the server's latest revision that has a handshake.
func (r *request) initialize(ctx context.Context) (any, *rpc.Error) {
	var p struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	if p.Version == "" {
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "initialize: protocolVersion is missing")
	}
	if !slices.Contains(mcp.ValidProtocolVersions, p.Version) || mcp.IsModernProtocol(p.Version) {
		p.Version = mcp.LATEST_LEGACY_PROTOCOL_VERSION
	}
	r.mu.Lock()
	r.can, r.version = abilitiesOf(p.Capabilities), p.Version
	r.mu.Unlock()
	o := r.describeServer(ctx)
	o["protocolVersion"], o["serverInfo"] = p.Version, r.info()
	return o, nil
}

// describeServer returns the capabilities and the instructions of the server.
func (r *request) describeServer(ctx context.Context) object {
	// Declare only lists that exist, because clients request every declared list.
	caps := object{"tools": object{"listChanged": true}, "logging": object{}}
	if r.srv.hasPrompts() {
		caps["prompts"] = object{"listChanged": true}
	}
	if r.srv.hasResources() {
		caps["resources"] = object{"listChanged": true, "subscribe": r.srv.hasSubscriptions()}
	}
	if r.srv.completes {
		caps["completions"] = object{}
	}
	if len(r.tk.Groups(r.scope)) > 0 {
		caps["groups"] = object{"listChanged": true}
		if r.sessionless { // from 2026-07-28 on, a capability that is not in the specification is an extension
			caps["extensions"] = object{mcpcontent.GroupsKey: object{}}
		}
	}
	o := object{"capabilities": caps}
	text := r.srv.cfg.Instructions
	if v, err := r.tk.View(ctx, r.scope); err == nil && v.Prompt() != "" {
		text = strings.TrimSpace(text + "\n\n" + v.Prompt())
	}
	if text != "" {
		o["instructions"] = cut(text, r.srv.cfg.MaxInstructions)
	}
	return o
}

// cut returns s, or its first characters with a mark at the end, in at most n bytes.
func cut(s string, n int) string {
	const more = " …"
	if len(s) <= n {
		return s
	}
	n = max(0, n-len(more))
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + more
}

// listTools handles tools/list. A session records the list, so that its client is notified only when the list
// differs.
func (r *request) listTools(ctx context.Context) (any, *rpc.Error) {
	cursor, rpcErr := r.cursor()
	if rpcErr != nil {
		return nil, rpcErr
	}
	v, err := r.tk.View(ctx, r.scope)
	if err != nil {
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "%v", err)
	}
	infos, next, err := v.Page(cursor, r.srv.cfg.PageSize)
	if err != nil {
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "tools/list: %v", err)
	}
	list := make([]object, len(infos))
	for i, info := range infos {
		list[i] = describe(info, r.granted(r.tk.Labels(info.Name)))
	}
	if !r.sessionless {
		r.setKnown(v.Digest())
	}
	return page("tools", list, next), nil
}

// describe returns the list entry of a tool, with its schemas unchanged. An output schema that is not for an
// object is left out, because clients would reject the whole list.
func describe(info tool.Info, labels []string) object {
	o := object{"name": info.Name, "description": info.Description, "inputSchema": info.Input}
	if info.Title != "" {
		o["title"] = info.Title
	}
	var root struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(info.Output, &root) == nil && root.Type == "object" {
		o["outputSchema"] = info.Output
	}
	switch {
	case isObject(info.Annotations):
		o["annotations"] = info.Annotations
	case info.ReadOnly:
		o["annotations"] = object{"readOnlyHint": true}
	}
	if len(labels) > 0 {
		o["_meta"] = object{mcpcontent.GroupsKey: labels}
	}
	return o
}

// granted returns those of the groups that the ceiling grants. A client must not learn the names of other
// groups, not even as labels of a tool that it sees.
func (r *request) granted(groups []string) []string {
	if len(groups) == 0 {
		return nil
	}
	seen := r.tk.Groups(r.scope)
	has := func(all []toolkit.GroupInfo, name string) bool {
		return slices.ContainsFunc(all, func(g toolkit.GroupInfo) bool { return g.Name == name })
	}
	all := r.tk.Groups(nil)
	if len(all) == len(seen) { // there is no ceiling, or it grants everything
		return groups
	}
	// A label that is not the name of a group is always allowed.
	return slices.DeleteFunc(slices.Clone(groups), func(name string) bool { return has(all, name) && !has(seen, name) })
}

// listGroups handles groups/list, of MCP's proposal for primitive grouping. It returns the groups that the
// ceiling grants, whether open or not, with their parents as labels.
func (r *request) listGroups() (any, *rpc.Error) {
	cursor, rpcErr := r.cursor()
	if rpcErr != nil {
		return nil, rpcErr
	}
	groups, next, err := r.tk.PageGroups(r.scope, cursor, r.srv.cfg.PageSize)
	if err != nil {
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "groups/list: %v", err)
	}
	list := make([]object, len(groups))
	for i, g := range groups {
		parents := r.granted(g.Parents)
		o := object{"name": g.Name, "description": g.Description}
		if g.Title != "" {
			o["title"] = g.Title
		}
		meta := object{}
		for k, v := range g.Meta {
			meta[k] = v
		}
		if len(parents) > 0 {
			meta[mcpcontent.GroupsKey] = parents
		}
		if len(meta) > 0 {
			o["_meta"] = meta
		}
		list[i] = o
	}
	return page("groups", list, next), nil
}

// cursor returns the cursor of a request for a page; it is empty for the first page.
func (r *request) cursor() (string, *rpc.Error) {
	var p struct {
		Cursor string `json:"cursor"`
	}
	err := r.msg.Decode(&p)
	return p.Cursor, err
}

// maxPage is how many prompts or resources are in a page if Config.PageSize is not set. It exists because
// skills can have many files.
const maxPage = 1000

// listed returns the requested page of a list. The cursor is the encoded name of the last entry of the previous page.
func listed(r *request, key string, all []entry) (any, *rpc.Error) {
	cursor, rpcErr := r.cursor()
	if rpcErr != nil {
		return nil, rpcErr
	}
	// If several entries have the same name, only the first can be requested, and a cursor only finds the first.
	seen := map[string]bool{}
	all = slices.DeleteFunc(all, func(e entry) bool {
		duplicate := seen[e.name]
		seen[e.name] = true
		return duplicate
	})
	if cursor != "" {
		last, err := base64.RawURLEncoding.DecodeString(cursor)
		at := slices.IndexFunc(all, func(e entry) bool { return e.name == string(last) })
		if err != nil || at < 0 {
			return nil, rpc.Errorf(mcp.INVALID_PARAMS, "%s: %v", r.msg.Method, toolkit.ErrCursor)
		}
		all = all[at+1:]
	}
	size, next := cmp.Or(r.srv.cfg.PageSize, maxPage), ""
	if len(all) > size {
		next = base64.RawURLEncoding.EncodeToString([]byte(all[size-1].name))
		all = all[:size]
	}
	list := make([]object, len(all))
	for i, e := range all {
		list[i] = e.body
	}
	return page(key, list, next), nil
}

// page returns a page of a list, with the cursor of the next page if there is one.
func page(name string, list []object, next string) object {
	o := object{name: list}
	if next != "" {
		o["nextCursor"] = next
	}
	return o
}
