package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
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
	all := r.tk.Config().Policy.NoActivation
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
		delete(about, tool.LabelsKey)
		labels := slices.DeleteFunc(slices.Clone(r.granted(o.Groups)), func(g string) bool { return g == "" })
		if len(labels) > 0 {
			about[tool.LabelsKey] = labels
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
func (r *request) getElsewhere(ctx context.Context, kind OfferKind, name string, args map[string]string, missing *rpcError) (result any, bad *rpcError) {
	if r.srv.cfg.Offers == nil {
		return nil, missing
	}
	ctx = tool.WithState(ctx, &r.state)
	input, _ := json.Marshal(object{"name": name, "arguments": args})
	if kind == ResourceOffer {
		input, _ = json.Marshal(object{"uri": name})
	}
	r.rec = Record{Time: time.Now(), Tool: r.msg.Method, Outcome: Failed, Input: input}
	defer r.closeRecord(ctx)
	raw, err := r.srv.cfg.Offers.Get(ctx, kind, r.reach(), name, args)
	if errors.Is(err, ErrNoOffer) {
		r.rec.Outcome = Invalid
		return nil, missing
	}
	if re, ok := errors.AsType[*RequestError](err); ok {
		bad := invalid(re.Code, "%s", re.Message)
		if re.Data != nil {
			bad.Data = re.Data
		}
		return nil, bad
	}
	if err != nil {
		return nil, invalid(mcp.INTERNAL_ERROR, "%v", err)
	}
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil || o == nil {
		return nil, invalid(mcp.INTERNAL_ERROR, "%s: the result is not an object", r.msg.Method)
	}
	r.rec.Outcome = Succeeded
	return passed(o), nil
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
