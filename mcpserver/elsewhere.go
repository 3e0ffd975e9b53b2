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

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
)

// An OfferKind is what an [Offer] is.
type OfferKind string

// The kinds.
const (
	PromptOffer   OfferKind = "prompts"
	ResourceOffer OfferKind = "resources"
	TemplateOffer OfferKind = "resourceTemplates"
)

// An Offer is a prompt, a resource or a template of resources that comes from elsewhere,
// such as another server.
type Offer struct {
	Name   string                     // of a prompt; else the URI, or its template
	Groups []string                   // of which a client must reach one; "" is the basic group. Without any, nobody sees it
	Entry  map[string]json.RawMessage // as it is listed; its groups are added
}

// Reach is what a client can see of what comes from elsewhere.
type Reach struct {
	Groups []string // those whose members it can use; see [toolkit.Toolkit.Reachable]
	Listed []string // of those, whose tools are in its list, and not only found by searching

	// Denied reports whether a rule denies a tool of that name.
	Denied func(tool string) bool
}

// Offers are prompts and resources that come from elsewhere and change. They are called
// by many goroutines. What is listed is checked against the groups of the client once
// more; what is got is not.
type Offers interface {
	// Version identifies what a client that reaches the groups may see of a kind: it is
	// another one when the list may be. It is called often, and must not wait.
	Version(kind OfferKind, groups []string) string

	// List returns what there is for a client. What cannot be had is left out.
	List(ctx context.Context, kind OfferKind, reach Reach) []Offer

	// Get returns the result of prompts/get or resources/read, for the name of a prompt
	// or a URI. An error that wraps [ErrNoOffer] says that the client sees nothing
	// of that name; a [*RequestError] is told with its code.
	Get(ctx context.Context, kind OfferKind, reach Reach, name string, args map[string]string) (json.RawMessage, error)
}

// A Watcher are [Offers] of which clients can hear when a resource is updated.
type Watcher interface {
	// Watch has updated called whenever the resource was updated, until stop is called,
	// which is once. The client is told as long as it reaches one of the groups. Errors are
	// those of Get.
	Watch(ctx context.Context, reach Reach, uri string, updated func()) (groups []string, stop func(), err error)
}

// A Completer are [Offers] that know what an argument could become which was typed in part.
type Completer interface {
	// Complete returns values, the likeliest first, of which 100 are told, and how many
	// there are in all, 0 if nobody knows. The argument is one of a prompt, or a variable
	// of a template, which has that name. Errors are those of Get.
	Complete(ctx context.Context, kind OfferKind, reach Reach, name string, arg Typed) (values []string, total int, err error)
}

// A Typed is an argument that was typed in part.
type Typed struct {
	Argument, Value string
	Others          map[string]string // arguments that are known already
}

// ErrNoOffer says that a client sees nothing of a name.
var ErrNoOffer = errors.New("there is no such offer")

// A RequestError is an answer to a request with an error code of JSON-RPC or MCP.
type RequestError struct {
	Code    int
	Message string
	Data    json.RawMessage // may be nil
}

func (e *RequestError) Error() string { return e.Message }

// reach returns what the client sees of what comes from elsewhere.
func (r *request) reach() Reach {
	reach := Reach{Groups: r.tk.Reachable(r.scope)}
	all := r.tk.Config().LabelsOnly
	for _, g := range r.tk.Groups(r.scope) {
		if (all || g.Active) && slices.Contains(reach.Groups, g.Name) {
			reach.Listed = append(reach.Listed, g.Name)
		}
	}
	policy := r.policy()
	reach.Denied = func(name string) bool {
		d := permission.Decide(policy, &permission.Call{Tool: name, Input: json.RawMessage("{}"), ReadOnly: true})
		return d.Behavior == permission.Deny && d.Rule != nil
	}
	return reach
}

// elsewhere returns the entries of what comes from elsewhere, as they are listed.
func (r *request) elsewhere(ctx context.Context, kind OfferKind) (all []entry) {
	if r.srv.cfg.Offers == nil {
		return nil
	}
	reach := r.reach()
	for _, o := range r.srv.cfg.Offers.List(ctx, kind, reach) {
		if len(o.Groups) == 0 || !shows(reach.Groups, o.Groups) {
			continue
		}
		e := make(object, len(o.Entry)+1)
		for k, v := range o.Entry {
			e[k] = v
		}
		var said map[string]json.RawMessage
		_ = json.Unmarshal(o.Entry["_meta"], &said) // what is no object says nothing
		about := object{}
		for k, v := range said {
			about[k] = v
		}
		// In whose place are ours: those of the other server mean nothing here.
		delete(about, groupsKey)
		labels := slices.DeleteFunc(slices.Clone(r.granted(o.Groups)), func(g string) bool { return g == "" })
		if len(labels) > 0 {
			about[groupsKey] = labels
		}
		if delete(e, "_meta"); len(about) > 0 {
			e["_meta"] = about
		}
		all = append(all, entry{o.Name, e})
	}
	return all
}

// An entry is one of a list, with what tells it from the others.
type entry struct {
	name string
	body object
}

// getElsewhere gets something that comes from elsewhere. It is on record, as calls are,
// under the name of the method, which no tool can have.
func (r *request) getElsewhere(ctx context.Context, kind OfferKind, name string, args map[string]string, missing *rpcError) (any, *rpcError) {
	if r.srv.cfg.Offers == nil {
		return nil, missing
	}
	input := object{"name": name, "arguments": args}
	if kind == ResourceOffer {
		input = object{"uri": name}
	}
	var result object
	bad := r.recorded(ctx, input, missing, func(ctx context.Context) error {
		raw, err := r.srv.cfg.Offers.Get(ctx, kind, r.reach(), name, args)
		if err != nil {
			return err
		}
		var o map[string]json.RawMessage
		if json.Unmarshal(raw, &o) != nil || o == nil {
			return fmt.Errorf("%s: the result is not an object", r.msg.Method)
		}
		result = passed(o)
		return nil
	})
	if bad != nil {
		return nil, bad
	}
	return result, nil
}

// recorded does something with what comes from elsewhere and has it on record.
func (r *request) recorded(ctx context.Context, input object, missing *rpcError, do func(context.Context) error) *rpcError {
	ctx = tool.WithState(ctx, &r.state)
	r.rec = Record{Time: time.Now(), Tool: r.msg.Method, Outcome: OutcomeError, Input: encode(input)}
	defer r.closeRecord(ctx)
	err := do(ctx)
	if errors.Is(err, ErrNoOffer) {
		r.rec.Outcome = OutcomeInvalid
		return missing
	}
	if re, ok := errors.AsType[*RequestError](err); ok {
		bad := invalid(re.Code, "%s", re.Message)
		if re.Data != nil {
			bad.Data = re.Data
		}
		return bad
	}
	if err != nil {
		return invalid(mcp.INTERNAL_ERROR, "%v", err)
	}
	r.rec.Outcome = OutcomeSuccess
	return nil
}

// completeElsewhere completes an argument of something that comes from elsewhere.
func (r *request) completeElsewhere(ctx context.Context, kind OfferKind, name string, arg Typed, missing *rpcError) (any, *rpcError) {
	c, ok := r.srv.cfg.Offers.(Completer)
	if !ok || kind == "" {
		return nil, missing
	}
	var values []string
	var total int
	input := object{"name": name, "argument": arg.Argument, "value": arg.Value, "arguments": arg.Others}
	if bad := r.recorded(ctx, input, missing, func(ctx context.Context) (err error) {
		values, total, err = c.Complete(ctx, kind, r.reach(), name, arg)
		return err
	}); bad != nil {
		return nil, bad
	}
	return completion(values, total), nil
}

// watchElsewhere subscribes a client to a resource that comes from elsewhere. It is the
// session of the request, or one that listens for it.
func (r *request) watchElsewhere(ctx context.Context, c *session, uri string) *rpcError {
	w, ok := r.srv.cfg.Offers.(Watcher)
	if !ok {
		return r.notFound(uri)
	}
	// It belongs to the client and not to the request, which is over soon. The logger tells a
	// server behind this one whose it is.
	ctx = host.With(context.WithValue(ctx, sessionKey{}, c.ctx), c.host)
	ctx = context.WithValue(ctx, loggerKey{}, c.log)
	tk, scope := r.tk, r.scope // all that is kept of the request, which may be long
	return r.recorded(ctx, object{"uri": uri}, r.notFound(uri), func(ctx context.Context) error {
		var groups atomic.Pointer[[]string] // none before it is known which
		in, stop, err := w.Watch(ctx, r.reach(), uri, func() {
			if g := groups.Load(); g != nil && shows(tk.Reachable(scope), *g) {
				c.updated(uri)
			}
		})
		if err != nil {
			return err
		}
		groups.Store(&in)
		stop = ending(c.ctx, stop)
		before, ok := c.watch(uri, stop)
		if before != nil {
			before()
		}
		if !ok {
			stop()
			return errWatched
		}
		return nil
	})
}

// ending returns a function that calls stop, which the end of ctx does if nobody else has.
func ending(ctx context.Context, stop func()) func() {
	leave := context.AfterFunc(ctx, stop)
	return func() {
		if leave() {
			stop()
		}
	}
}

// passed returns a result of another server as one of ours: without what is said of the
// exchange, which was between it and us.
func passed(result map[string]json.RawMessage) object {
	out := object{}
	for k, v := range result {
		switch k {
		case "resultType", "ttlMs", "cacheScope":
		case "_meta":
			var about map[string]json.RawMessage
			if json.Unmarshal(v, &about) != nil {
				continue
			}
			if delete(about, mcp.MetaKeyServerInfo); len(about) > 0 {
				out[k] = about
			}
		default:
			out[k] = v
		}
	}
	return out
}
