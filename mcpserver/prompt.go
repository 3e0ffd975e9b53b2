package mcpserver

import (
	"context"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/mcpupstream"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
)

// configuredPrompts returns the configured prompts that the client sees.
func (r *request) configuredPrompts() []Prompt {
	reachable := r.tk.Reachable(r.scope)
	var all []Prompt
	for _, p := range r.cat.cfg.Prompts {
		if isVisible(reachable, p.Groups) {
			p.Groups = r.granted(p.Groups)
			all = append(all, p)
		}
	}
	return all
}

// listPrompts returns a page of the prompts.
func (r *request) listPrompts(ctx context.Context) (any, *rpc.Error) {
	var all []entry
	for _, p := range r.configuredPrompts() {
		all = append(all, entry{p.Name, p.describe()})
	}
	return requestedPage(r, "prompts", append(all, r.upstreamEntries(ctx, mcpupstream.KindPrompt)...))
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
	all := r.configuredPrompts()
	i := slices.IndexFunc(all, func(o Prompt) bool { return o.Name == p.Name })
	if i < 0 {
		return r.getUpstream(ctx, mcpupstream.KindPrompt, p.Name, p.Arguments, rpc.Errorf(mcp.INVALID_PARAMS, "unknown prompt %q", p.Name))
	}
	for _, a := range all[i].Arguments {
		if _, given := p.Arguments[a.Name]; a.Required && !given {
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
	kind := map[string]mcpupstream.Kind{"ref/prompt": mcpupstream.KindPrompt, "ref/resource": mcpupstream.KindTemplate}[p.Ref.Type]
	name := p.Ref.Name + p.Ref.URI // a reference has one of the two
	args, configured := r.configuredArguments(kind, name)
	if !configured {
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

// configuredArguments returns the arguments of a configured prompt or resource that the client sees, if there is one.
func (r *request) configuredArguments(kind mcpupstream.Kind, name string) (args []Argument, configured bool) {
	switch kind {
	case mcpupstream.KindPrompt:
		for _, p := range r.configuredPrompts() {
			if p.Name == name {
				return p.Arguments, true
			}
		}
	case mcpupstream.KindTemplate:
		for _, o := range r.configuredResources() {
			if o.URI == name {
				return o.Arguments, true
			}
		}
	}
	return nil, false
}

// completion returns the result of completion/complete. total is the number of all possible values; 0 with some values means
// that the number is unknown.
func completion(values []string, total int) object {
	sent := values[:min(len(values), maxCompletions)]
	o := object{"values": sent, "hasMore": max(total, len(values)) > len(sent)}
	if total > 0 || len(values) == 0 {
		o["total"] = max(total, len(values)) // an upstream server may report too few
	}
	return object{"completion": o}
}
