package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/internal/provider"
	sdk "github.com/sashabaranov/go-openai"
)

// An API is a protocol by which servers are called.
type API string

// The protocols.
const (
	APIChat      API = "chat"      // POST /chat/completions, supported by most servers
	APIResponses API = "responses" // POST /responses, required by OpenAI's current models for tools with reasoning
)

// usesResponses reports whether to call a model by the Responses API, and whether the server is known to support that
// choice. The default is true for OpenAI's own server, except for the models from before 2025.
func usesResponses(api API, host, modelName string) (responses, known bool, err error) {
	switch api {
	case APIChat, APIResponses:
		return api == APIResponses, true, nil
	case "":
		if host != "api.openai.com" {
			return false, false, nil
		}
		modelName = strings.TrimPrefix(modelName, "ft:") // fine-tuned
		for _, old := range []string{"gpt-3.5", "gpt-4", "chatgpt-4o", "davinci", "babbage"} {
			if strings.HasPrefix(modelName, old) {
				return false, true, nil
			}
		}
		return true, true, nil
	}
	return false, false, fmt.Errorf("openai: API %q is unknown; set Config.API (KITBAG_API) to %s or %s, or leave it empty", api, APIChat, APIResponses)
}

// A responsesRequest is go-openai's CreateResponseRequest without input and tools, which are encoded separately.
// Unlike that type it can express a temperature of 0 and strict=false.
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

// minOutputTokens is the least max_output_tokens that the API accepts.
const minOutputTokens = 16

// newResponsesRequest returns the request without its tools and input. The server stores nothing: reasoning that a later
// request needs is received encrypted.
func (m *Model) newResponsesRequest(req *model.Request, tools *toolList) (w *responsesRequest, err error) {
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
		if err := provider.CheckOutput(req.Output); err != nil {
			return nil, err
		}
		w.Text = &responsesText{responsesFormat{"json_schema", cmp.Or(wireName(req.Output.Name), "output"), req.Output.Schema, req.Output.Strict}}
	}
	return w, nil
}

// responsesExtra returns extra with reasoning_effort, a member of chat completions, as reasoning.effort. If extra also
// has reasoning, reasoning_effort is left out.
func responsesExtra(extra map[string]json.RawMessage) map[string]json.RawMessage {
	effort, ok := extra["reasoning_effort"]
	if !ok {
		return extra
	}
	extra = maps.Clone(extra)
	delete(extra, "reasoning_effort")
	if extra["reasoning"] == nil && json.Valid(effort) && string(bytes.TrimSpace(effort)) != "null" {
		extra["reasoning"] = json.RawMessage(`{"effort":` + string(effort) + `}`)
	}
	return extra
}
