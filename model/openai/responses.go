package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/kitbag-go/kitbag/model"
	sdk "github.com/sashabaranov/go-openai"
)

// API is the protocol of a server.
type API string

// The protocols.
const (
	APIChat      API = "chat"      // POST /chat/completions, which most servers have
	APIResponses API = "responses" // POST /responses, which OpenAI's current models need for tools with reasoning
)

// usesResponses reports whether a model is asked by the Responses API. Where the configuration does not
// say so it is for OpenAI's own server and all of its models but those that were made for chat completions.
func usesResponses(api API, host, name string) (bool, error) {
	switch api {
	case APIChat, APIResponses:
		return api == APIResponses, nil
	case "":
		if host != "api.openai.com" {
			return false, nil
		}
		name = strings.TrimPrefix(name, "ft:")
		for _, old := range []string{"gpt-3.5", "gpt-4", "chatgpt-4o", "davinci", "babbage"} {
			if strings.HasPrefix(name, old) {
				return false, nil
			}
		}
		return true, nil
	}
	return false, fmt.Errorf("openai: API %q is not known; set Config.API (KITBAG_API) to %s or %s, or leave it empty", api, APIChat, APIResponses)
}

// A responsesRequest is go-openai's CreateResponseRequest but for the input and the tools, which are
// encoded before, and for what that leaves out: a temperature of 0, and strict=false, as true is the default.
type responsesRequest struct {
	Model           string                `json:"model"`
	Instructions    string                `json:"instructions,omitempty"`
	Stream          bool                  `json:"stream,omitempty"`
	Store           bool                  `json:"store"`
	Include         []sdk.ResponseInclude `json:"include"`
	MaxOutputTokens int                   `json:"max_output_tokens,omitempty"`
	Temperature     *float64              `json:"temperature,omitempty"`
	ToolChoice      any                   `json:"tool_choice,omitempty"`
	Text            *responsesText        `json:"text,omitempty"`
}

type (
	responsesText struct {
		Format responsesFormat `json:"format"`
	}
	responsesFormat struct {
		Type   string          `json:"type"`
		Name   string          `json:"name"`
		Schema json.RawMessage `json:"schema"`
		Strict bool            `json:"strict"`
	}
	functionTool struct {
		Type        sdk.ToolType    `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
		Strict      bool            `json:"strict"`
	}
	namedTool struct {
		Type sdk.ToolType `json:"type"`
		Name string       `json:"name"`
	}
)

// minOutputTokens is the API's lower limit of max_output_tokens.
const minOutputTokens = 16

// responsesHead returns the request without its tools and its input. The server keeps nothing: what a later
// request must know of the reasoning comes back encrypted.
func (m *Model) responsesHead(req *model.Request, tools *toolList) (w *responsesRequest, err error) {
	w = &responsesRequest{Model: m.cfg.Model, Instructions: req.System, Stream: !m.cfg.NoStream, Temperature: req.Temperature,
		Include: []sdk.ResponseInclude{sdk.ResponseIncludeReasoningEncryptedContent}}
	if req.MaxTokens > 0 {
		w.MaxOutputTokens = max(req.MaxTokens, minOutputTokens)
	}
	if len(tools.wire) > 0 {
		if w.ToolChoice, err = toolChoice(req.Choice, true); err != nil {
			return nil, err
		}
	}
	if req.Output != nil {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(req.Output.Schema, &object); err != nil || object == nil {
			return nil, fmt.Errorf("output schema %q is not a JSON object: %.60s", req.Output.Name, req.Output.Schema)
		}
		w.Text = &responsesText{responsesFormat{"json_schema", cmp.Or(wireName(req.Output.Name), "output"), req.Output.Schema, req.Output.Strict}}
	}
	return w, nil
}

// responsesExtra returns extra members as the Responses API has them: a reasoning_effort, which programs
// set for chat completions, is a member of reasoning there.
func responsesExtra(extra map[string]json.RawMessage) map[string]json.RawMessage {
	effort, ok := extra["reasoning_effort"]
	if !ok {
		return extra
	}
	extra = maps.Clone(extra)
	delete(extra, "reasoning_effort")
	if extra["reasoning"] == nil && json.Valid(effort) && string(effort) != "null" {
		extra["reasoning"] = json.RawMessage(`{"effort":` + string(effort) + `}`)
	}
	return extra
}

// remedy adds to an error about the protocol how to choose the other one.
func (m *Model) remedy(err error) error {
	e, ok := errors.AsType[*model.Error](err)
	if !ok {
		return err
	}
	words := strings.ToLower(e.Message)
	add := func(remedy string) { e.Message = strings.TrimSuffix(e.Message, ".") + "; " + remedy }
	switch {
	case m.responses && (e.Status == http.StatusNotFound || e.Status == http.StatusMethodNotAllowed) && !strings.Contains(words, "model"):
		add("if the server has chat completions only, set Config.API (KITBAG_API) to " + string(APIChat))
	case !m.responses && e.Kind == model.KindInvalidRequest && strings.Contains(words, "/responses"):
		add("set Config.API (KITBAG_API) to " + string(APIResponses))
	case m.responses && e.Kind == model.KindInvalidRequest && strings.Contains(words, "encrypted"):
		add("reasoning in the conversation is too old, or of another organization or model: begin a new conversation")
	}
	return err
}
