package mcpclient

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/internal/visible"
	"github.com/kitbag-go/kitbag/message"
)

// A Prompt is a template of messages that a server offers to its users.
type Prompt struct {
	Name        string
	Title       string // may be empty
	Description string // may be empty
	Arguments   []PromptArgument
	Raw         json.RawMessage // the whole entry
}

// A PromptArgument is an argument of a Prompt. Its value is a string.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Required    bool   `json:"required"`
}

// A PromptResult is what [Client.GetPrompt] returns.
type PromptResult struct {
	Description string // may be empty
	Messages    []*message.Message
	Raw         json.RawMessage // the whole result
}

// Prompts returns the server's prompts, in the server's order. As with [Client.Tools] the server is queried the
// first time and after a change, the last list is kept while the server restarts, and the slice is shared. A
// server that declares no prompts is not queried.
func (c *Client) Prompts(ctx context.Context) ([]Prompt, error) {
	return c.cat.prompts.get(ctx, c.cat)
}

// decodePrompt reads an entry of prompts/list; ok is false if it cannot be read or has no name.
func decodePrompt(raw json.RawMessage) (p Prompt, ok bool) {
	var e struct {
		Name        string          `json:"name"`
		Title       string          `json:"title"`
		Description string          `json:"description"`
		Arguments   json.RawMessage `json:"arguments"`
	}
	if strictjson.Unmarshal(raw, &e) != nil || e.Name == "" {
		return p, false
	}
	p = Prompt{Name: e.Name, Title: e.Title, Description: e.Description, Raw: raw}
	_ = strictjson.Unmarshal(e.Arguments, &p.Arguments) // unreadable arguments are only in Raw
	return p, true
}

// GetPrompt returns a prompt with its arguments filled in. The timeouts are those of a tool call, and the server may send
// requests as during a tool call.
func (c *Client) GetPrompt(ctx context.Context, name string, args map[string]string) (*PromptResult, error) {
	params := map[string]any{"name": name}
	if len(args) > 0 {
		params["arguments"] = args
	}
	raw, err := c.fetchVisible(ctx, "prompts/get", "prompt "+strconv.Quote(clip(name, maxNameBytes)), params)
	if err != nil {
		return nil, err
	}
	var r struct {
		Description string          `json:"description"`
		Messages    []promptMessage `json:"messages"`
	}
	if err := strictjson.Unmarshal(raw, &r); err != nil {
		return nil, c.cfg.serverError(nil, fmt.Errorf("%w: the result of prompts/get: %w", errMalformed, err))
	}
	out := &PromptResult{Description: r.Description, Raw: raw}
	for _, m := range r.Messages {
		out.Messages = append(out.Messages, m.message())
	}
	return out, nil
}

// A CompleteRequest says which argument [Client.Complete] completes. Set one of Prompt and
// ResourceTemplate.
type CompleteRequest struct {
	Prompt           string            // the name of the prompt that has the argument
	ResourceTemplate string            // the URI template that has the variable
	Argument         string            // the name of the argument or the variable
	Value            string            // what the user has typed so far
	Arguments        map[string]string // arguments that are known already
}

// Complete returns values that an argument may have, and how many values the server has in all. values is nil and total 0
// if the server does not complete the argument. Values with invisible characters are left out. The timeouts are those of a
// tool call.
func (c *Client) Complete(ctx context.Context, r CompleteRequest) (values []string, total int, err error) {
	ref := map[string]any{"type": "ref/prompt", "name": r.Prompt}
	if r.ResourceTemplate != "" {
		ref = map[string]any{"type": "ref/resource", "uri": r.ResourceTemplate}
	}
	params := map[string]any{"ref": ref, "argument": map[string]any{"name": r.Argument, "value": r.Value}}
	if len(r.Arguments) > 0 {
		params["context"] = map[string]any{"arguments": r.Arguments}
	}
	var raw json.RawMessage
	what := "completion of " + strconv.Quote(clip(r.Argument, maxNameBytes))
	err = c.runner.run(ctx, &job{what: what, repeatable: true, do: func(ctx context.Context, cn *conn, _ string) (err error) {
		if !cn.server.declares("completions") && cn.protocol.revision() >= completionsDeclared {
			return nil
		}
		raw, err = cn.request(ctx, "completion/complete", params, nil)
		if hasCode(err, codeMethodNotFound) {
			return nil // a server of a revision before completionsDeclared has no other way to say so
		}
		return err
	}}, make(chan progress, 1))
	if err != nil || raw == nil {
		return nil, 0, err
	}
	return c.decodeCompletion(raw)
}

// completionsDeclared is the first revision in which servers declare completions.
const completionsDeclared = "2025-03-26"

// decodeCompletion reads the result of completion/complete.
func (c *Client) decodeCompletion(raw json.RawMessage) (values []string, total int, err error) {
	var r struct {
		Completion *struct {
			Values  []string `json:"values"`
			Total   int      `json:"total"`
			HasMore bool     `json:"hasMore"`
		} `json:"completion"`
	}
	if err := strictjson.Unmarshal(raw, &r); err != nil || r.Completion == nil {
		return nil, 0, c.cfg.serverError(nil, fmt.Errorf("%w: the result of completion/complete has no completion", errMalformed))
	}
	for _, v := range r.Completion.Values {
		if visible.Text(v) == v { // a user must see the whole value
			values = append(values, v)
		}
	}
	atLeast := len(r.Completion.Values) // total is optional, and may be wrong
	if r.Completion.HasMore {
		atLeast++
	}
	return values, max(r.Completion.Total, atLeast), nil
}
