package mcpserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"runtime/debug"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/park"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A request is a request in flight.
type request struct {
	*client
	revision revision
	msg      *rpc.Message
	out      wire.Responder

	tk       *toolkit.Toolkit
	scope    *toolkit.Scope // the session's; without sessions, one for this request only
	log      *Logger        // the client's; without sessions, one for this request only
	rec      Record         // the audit record of a call
	parkable *park.Call     // the call, if it can wait for an answer that the client sends with a later request; else nil

	mayBecomeTask bool // the call may become a task
	notFoundCode  int  // the code of the error for an unknown resource; it depends on the revision (SEP-2164)
	anyStructured bool // the structured content of a result need not be an object
}

// An object is a JSON object to send.
type object = map[string]any

// A handler handles a request and returns the result. The request comes before the context, so that methods of request are
// handlers.
type handler func(*request, context.Context) (any, *rpc.Error)

// A revision handles what depends on the protocol's revision. *session is for revisions before 2026-07-28, in which clients
// have sessions, and *sessionless for 2026-07-28 and later revisions.
type revision interface {
	// method returns the handler of a method that not all revisions have; nil if this revision does not have the method.
	method(name string) handler
	// withHost runs do with a host that asks the client, and with a logger.
	withHost(ctx context.Context, r *request, do handler) (any, *rpc.Error)

	// recordView records which tools the client knows, to notify it of changes. listed says that the client was sent the
	// list of v; otherwise the client has called a tool, which was found in v.
	recordView(v *toolkit.View, listed bool)
	// askAbout asks the client's user whether a call may run. It returns nil if the call may run, and otherwise the result
	// to send, which says why not or asks the client for input.
	askAbout(ctx context.Context, r *request, p pendingCall) object
	// afterCall is called after a tool has run, and before the result is sent.
	afterCall(ctx context.Context, r *request) *rpc.Error
}

// A pendingCall is a call that the user is asked about.
type pendingCall struct {
	params   *callParams
	call     *permission.Call
	preview  string // by the tool; may be empty
	decision permission.Decision
}

// serve handles the request and returns the answer, and the error in the answer, if any. The answer is nil if the client has
// cancelled the request, as the specification requires. addFields, unless nil, adds fields to the result.
func (r *request) serve(ctx context.Context, addFields func(object)) (answer []byte, rpcErr *rpc.Error) {
	id := r.msg.ID
	ctx, key, err := r.begin(ctx, r.ctx, string(id), r.out)
	if err != nil {
		return rpc.Answer(id, nil, err), err
	}
	defer r.finish(key)
	result, err := r.runRecovering(ctx, (*request).dispatch)
	switch {
	case ctx.Err() == nil:
	case r.isStopped():
		result, err = nil, errStopped
	case context.Cause(ctx) == errExpired:
		result, err = nil, errExpired
	default: // cancelled by the client
		return nil, nil
	}
	if o, ok := result.(object); ok && err == nil && addFields != nil {
		addFields(o)
	}
	return rpc.Answer(id, result, err), err
}

// runRecovering runs do and returns an error if do panics, because do runs code of the toolkit's owner, such as the judgement
// of a tool.
func (r *request) runRecovering(ctx context.Context, do handler) (result any, err *rpc.Error) {
	defer func() {
		if p := recover(); p != nil {
			slog.ErrorContext(ctx, "request panicked", "method", r.msg.Method, "panic", p, "stack", string(debug.Stack()))
			result, err = nil, rpc.Errorf(mcp.INTERNAL_ERROR, "%s failed unexpectedly; see the log of the server", r.msg.Method)
		}
	}()
	return do(r, ctx)
}

// dispatch runs the handler of the request's method. A method of another revision, or of a capability that the server does
// not declare, is unknown.
func (r *request) dispatch(ctx context.Context) (any, *rpc.Error) {
	switch name := r.msg.Method; {
	case name == "tools/list":
		return r.listTools(ctx)
	case name == "tools/call":
		return r.revision.withHost(ctx, r, (*request).callTool)
	case name == "groups/list":
		return r.listGroups()
	case name == "prompts/list" && r.cat.hasPrompts():
		return r.listPrompts(ctx)
	case name == "prompts/get" && r.cat.hasPrompts():
		return r.revision.withHost(ctx, r, (*request).getPrompt)
	case name == "resources/list" && r.cat.hasResources():
		return r.listResources(ctx)
	case name == "resources/templates/list" && r.cat.hasResources():
		return r.listTemplates(ctx)
	case name == "resources/read" && r.cat.hasResources():
		return r.revision.withHost(ctx, r, (*request).readResource)
	case name == "skills/list" && r.cat.hasSkills():
		return r.listSkills(ctx)
	case name == "skills/get" && r.cat.hasSkills():
		return r.getSkill(ctx)
	case name == "completion/complete" && r.cat.completes:
		return r.revision.withHost(ctx, r, (*request).complete)
	default:
		if handle := r.revision.method(name); handle != nil {
			return handle(r, ctx)
		}
		return nil, rpc.Errorf(mcp.METHOD_NOT_FOUND, "unknown method %q", name)
	}
}

// progressToken returns the token for the progress of a call: that of the request, or of the request that continues the call.
func (r *request) progressToken() json.RawMessage {
	if r.parkable == nil {
		return r.msg.Meta.Progress
	}
	return r.parkable.Token()
}

// cursor returns the cursor in the request for a page of a list; empty for the first page.
func (r *request) cursor() (string, *rpc.Error) {
	var p struct {
		Cursor string `json:"cursor"`
	}
	err := r.msg.Decode(&p)
	return p.Cursor, err
}

// defaultPageSize is the largest number of prompts, resources or skills in a page if Config.PageSize is 0. It limits the size
// of an answer, because the files of skills are resources.
const defaultPageSize = 1000

// An entry is an entry of a list, with the name or URI that identifies the entry.
type entry struct {
	name string
	body object
}

// requestedPage returns the requested page of a list. The cursor is the encoded name of the last entry of the previous page.
func requestedPage(r *request, key string, all []entry) (any, *rpc.Error) {
	cursor, rpcErr := r.cursor()
	if rpcErr != nil {
		return nil, rpcErr
	}
	// Of several entries with the same name keep the first, because clients cannot request the others.
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
	size, next := cmp.Or(r.cat.cfg.PageSize, defaultPageSize), ""
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
