package mcpserver

import (
	"context"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
)

// prompts returns the configured prompts that the client sees.
func (r *request) prompts() []Prompt {
	reachable := r.tk.Reachable(r.scope)
	var all []Prompt
	for _, p := range r.cat.cfg.Prompts {
		if shows(reachable, p.Groups) {
			p.Groups = r.granted(p.Groups)
			all = append(all, p)
		}
	}
	return all
}

// listPrompts returns a page of the prompts.
func (r *request) listPrompts(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, p := range r.prompts() {
		all = append(all, entry{p.Name, p.describe()})
	}
	return listed(r, "prompts", append(all, r.upstreamEntries(ctx, mcpupstream.KindPrompt)...))
}

// getPrompt returns a prompt with its arguments filled in. A prompt that the client cannot see does not exist for it.
func (r *request) getPrompt(ctx context.Context) (any, *rpc.Error) {
	var p struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	all := r.prompts()
	i := slices.IndexFunc(all, func(o Prompt) bool { return o.Name == p.Name })
	if i < 0 {
		return r.getUpstream(ctx, mcpupstream.KindPrompt, p.Name, p.Arguments, rpc.Errorf(mcp.INVALID_PARAMS, "unknown prompt %q", p.Name))
	}
	for _, a := range all[i].Arguments {
		if _, set := p.Arguments[a.Name]; a.Required && !set {
			return nil, rpc.Errorf(mcp.INVALID_PARAMS, "prompt %q needs the argument %q", p.Name, a.Name)
		}
	}
	messages, err := all[i].Get(ctx, p.Arguments)
	if err != nil {
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "prompt %q: %v", p.Name, err)
	}
	sent := []object{}
	for _, m := range messages {
		sent = append(sent, messagesOf(m)...)
	}
	return object{"description": all[i].Description, "messages": sent}, nil
}

// maxCompletions is how many values the specification allows in a completion.
const maxCompletions = 100

// complete returns values for an argument of a prompt or template that the client sees.
func (r *request) complete(ctx context.Context) (any, *rpc.Error) {
	var p struct {
		Ref struct {
			Type string `json:"type"`
			Name string `json:"name"`
			URI  string `json:"uri"`
		} `json:"ref"`
		Argument struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"argument"`
		Context struct {
			Arguments map[string]string `json:"arguments"`
		} `json:"context"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	var args []Argument
	var kind mcpupstream.Kind
	found := false
	switch p.Ref.Type {
	case "ref/prompt":
		kind = mcpupstream.KindPrompt
		for _, o := range r.prompts() {
			if o.Name == p.Ref.Name {
				args, found = o.Arguments, true
			}
		}
	case "ref/resource":
		kind = mcpupstream.KindTemplate
		for _, o := range r.configured() {
			if o.URI == p.Ref.URI {
				args, found = o.Arguments, true
			}
		}
	}
	if !found {
		name := p.Ref.Name + p.Ref.URI
		return r.completeUpstream(ctx, kind, name, mcpupstream.Argument{Name: p.Argument.Name, Value: p.Argument.Value, Others: p.Context.Arguments},
			rpc.Errorf(mcp.INVALID_PARAMS, "completion/complete: unknown %s %q", strings.TrimPrefix(p.Ref.Type, "ref/"), name))
	}
	values := []string{}
	for _, a := range args {
		if a.Name == p.Argument.Name && a.Complete != nil {
			more, err := a.Complete(ctx, p.Argument.Value, p.Context.Arguments)
			if err != nil {
				return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "completion of %q: %v", a.Name, err)
			}
			values = append(values, more...)
		}
	}
	return completion(values, len(values)), nil
}

// completion returns the result of completion/complete. total is 0 if it is unknown.
func completion(values []string, total int) object {
	sent := values[:min(len(values), maxCompletions)]
	o := object{"values": sent, "hasMore": max(total, len(values)) > len(sent)}
	if total > 0 || len(values) == 0 {
		o["total"] = max(total, len(values))
	}
	return object{"completion": o}
}
