package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/denial"
	"github.com/kitbag-go/kitbag/internal/mcpcontent"
	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/tool/toolstate"
)

func init() {
	mcpupstream.Attach = func(config any, p mcpupstream.Provider) { config.(*Config).upstream = p }
}

// upstreamView returns what the client may see of upstream servers.
func (r *request) upstreamView() mcpupstream.View {
	v := mcpupstream.View{Groups: r.tk.Reachable(r.scope)}
	labelsOnly := r.tk.Config().LabelsOnly // then every group counts as open
	for _, g := range r.tk.Groups(r.scope) {
		if (labelsOnly || g.Active) && slices.Contains(v.Groups, g.Name) {
			v.Listed = append(v.Listed, g.Name)
		}
	}
	policy := r.policy()
	v.Denied = func(name string) error {
		d := permission.Decide(policy, &permission.Call{Tool: name, Input: json.RawMessage("{}"), ReadOnly: true})
		if d.Behavior == permission.Deny && d.Rule != nil { // denied by a rule, not only by the policy's mode
			return &denial.Error{Tool: name, Decision: d}
		}
		return nil
	}
	return v
}

// upstreamEntries returns the list entries of the items of upstream servers.
func (r *request) upstreamEntries(ctx context.Context, kind mcpupstream.Kind) (all []entry) {
	if r.cat.cfg.upstream == nil {
		return nil
	}
	v := r.upstreamView()
	for _, item := range r.cat.cfg.upstream.List(ctx, kind, v) {
		if len(item.Groups) == 0 || !isVisible(v.Groups, item.Groups) { // without groups an item is hidden, not in the basic group
			continue
		}
		body := withMembers(make(object, len(item.Entry)+1), item.Entry)
		var meta map[string]json.RawMessage
		_ = json.Unmarshal(item.Entry["_meta"], &meta) // a _meta that is not an object is left out
		delete(meta, mcpcontent.GroupsKey)             // the upstream server's groups, which this server does not have
		if delete(body, "_meta"); len(meta) > 0 {
			body["_meta"] = withMembers(object{}, meta)
		}
		labels := slices.DeleteFunc(slices.Clone(r.granted(item.Groups)), func(g string) bool { return g == "" }) // "" is the basic group
		all = append(all, entry{item.Name, labelled(body, labels)})
	}
	return all
}

// getUpstream gets a prompt or a resource from an upstream server. It returns the error unknown if the client sees no such item.
func (r *request) getUpstream(ctx context.Context, kind mcpupstream.Kind, name string, args map[string]string, unknown *rpc.Error) (any, *rpc.Error) {
	if r.cat.cfg.upstream == nil {
		return nil, unknown
	}
	input := object{"name": name, "arguments": args}
	if kind == mcpupstream.KindResource {
		input = object{"uri": name}
	}
	var result object
	rpcErr := r.callUpstream(ctx, input, unknown, func(ctx context.Context) error {
		raw, err := r.cat.cfg.upstream.Get(ctx, kind, r.upstreamView(), name, args)
		if err != nil {
			return err
		}
		var o map[string]json.RawMessage
		if json.Unmarshal(raw, &o) != nil || o == nil {
			return fmt.Errorf("%s: the result of the upstream server is not an object", r.msg.Method)
		}
		result = withoutHopFields(o)
		return nil
	})
	if rpcErr != nil {
		return nil, rpcErr
	}
	return result, nil
}

// callUpstream runs do, which sends a request to an upstream server, and makes an audit record of the request. In place of a
// tool the record has the name of the method, which no tool can have. callUpstream returns unknown if the client sees no such
// item, or if the policy denies it.
func (r *request) callUpstream(ctx context.Context, input object, unknown *rpc.Error, do func(context.Context) error) *rpc.Error {
	ctx = toolstate.With(ctx, &r.tools)
	r.rec = Record{Time: time.Now(), Tool: r.msg.Method, Outcome: OutcomeError, Input: rpc.Encode(input)}
	defer r.closeRecord(ctx)
	err := do(ctx)
	if denied, ok := errors.AsType[*denial.Error](err); ok { // the client is not told that the item exists
		r.rec.recordDecision(denied.Decision)
		return unknown
	}
	if errors.Is(err, mcpupstream.ErrNotFound) {
		r.rec.Outcome = OutcomeInvalid
		return unknown
	}
	if re, ok := errors.AsType[*mcpupstream.RequestError](err); ok {
		rpcErr := rpc.Errorf(re.Code, "%s", re.Message)
		if re.Data != nil {
			rpcErr.Data = re.Data
		}
		return rpcErr
	}
	if err != nil {
		return rpc.Errorf(mcp.INTERNAL_ERROR, "%v", err)
	}
	r.rec.Outcome = OutcomeSuccess
	return nil
}

// completeUpstream completes an argument of an upstream server's prompt or resource template.
func (r *request) completeUpstream(ctx context.Context, kind mcpupstream.Kind, name string, arg mcpupstream.Argument, unknown *rpc.Error) (any, *rpc.Error) {
	completer, ok := r.cat.cfg.upstream.(mcpupstream.Completer)
	if !ok || kind == "" { // the client's reference has an unknown type
		return nil, unknown
	}
	var values []string
	var total int
	input := object{"name": name, "argument": arg.Name, "value": arg.Value, "arguments": arg.Others}
	if rpcErr := r.callUpstream(ctx, input, unknown, func(ctx context.Context) (err error) {
		values, total, err = completer.Complete(ctx, kind, r.upstreamView(), name, arg)
		return err
	}); rpcErr != nil {
		return nil, rpcErr
	}
	return completion(values, total), nil
}

// watchUpstream subscribes c, the session or the listener of the request, to a resource of an upstream server.
func (r *request) watchUpstream(ctx context.Context, c *session, uri string) *rpc.Error {
	w, ok := r.cat.cfg.upstream.(mcpupstream.Watcher)
	if !ok {
		return r.notFound(uri)
	}
	// The subscription outlives the request, so its context has the values of the client. By the logger the provider knows
	// which client subscribes.
	ctx = host.With(context.WithValue(ctx, sessionKey{}, c.ctx), c.host)
	ctx = context.WithValue(ctx, loggerKey{}, c.log)
	tk, scope := r.tk, r.scope // so that the subscription does not keep the request, which may be large, in memory
	return r.callUpstream(ctx, object{"uri": uri}, r.notFound(uri), func(ctx context.Context) error {
		var groups atomic.Pointer[[]string] // nil until Watch has returned them
		watchedGroups, stop, err := w.Watch(ctx, r.upstreamView(), uri, func() {
			if g := groups.Load(); g != nil && isVisible(tk.Reachable(scope), *g) {
				c.markUpdated(uri)
			}
		})
		if err != nil {
			return err
		}
		groups.Store(&watchedGroups)
		stop = stopOnce(c.ctx, stop)
		oldStop, ok := c.watch(uri, stop)
		if oldStop != nil {
			oldStop()
		}
		if !ok {
			stop()
			return &mcpupstream.RequestError{Code: errTooManySubscriptions.Code, Message: errTooManySubscriptions.Message}
		}
		return nil
	})
}

// stopOnce returns a function that calls stop. stop is called once in all, at the latest when ctx ends.
func stopOnce(ctx context.Context, stop func()) func() {
	cancelStop := context.AfterFunc(ctx, stop)
	return func() {
		if cancelStop() {
			stop()
		}
	}
}

// withoutHopFields returns an upstream server's result without the fields that are only for the upstream server's client, which
// is this server.
func withoutHopFields(result map[string]json.RawMessage) object {
	out := object{}
	for k, v := range result {
		switch k {
		case "resultType", "ttlMs", "cacheScope":
		case "_meta":
			var meta map[string]json.RawMessage
			_ = json.Unmarshal(v, &meta) // a _meta that is not an object is left out
			if delete(meta, mcp.MetaKeyServerInfo); len(meta) > 0 {
				out[k] = meta
			}
		default:
			out[k] = v
		}
	}
	return out
}
