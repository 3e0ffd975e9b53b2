package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/rogpeppe/go-internal/txtar"
	sdk "github.com/sashabaranov/go-openai"
)

// notInSDK are the members of our requests that go-openai's types lack, with the reason why
// we send them. A * is an index.
var notInSDK = map[string]string{
	"temperature":                           "go-openai omits a temperature of 0",
	"messages/*/content/*/input_audio":      "ChatMessagePart has only text and images",
	"messages/*/content/*/file":             "ChatMessagePart has only text and images",
	"messages/*/reasoning_details":          "OpenRouter requires them back",
	"messages/*/tool_calls/*/extra_content": "Gemini requires it back with each call",
	"messages/*/x":                          "a vendor's addition to a message goes back to the vendor",
	"messages/*/tool_calls/*/x":             "a vendor's addition to a call goes back to the vendor",
}

// TestBodiesAreGoOpenAIs decodes the requests of testdata/requests into go-openai's types and encodes
// them again: the JSON is the same, except for the members in notInSDK.
func TestBodiesAreGoOpenAIs(t *testing.T) {
	files, err := filepath.Glob("testdata/requests/*.txtar")
	if err != nil || len(files) < 35 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	seen := map[string]bool{}
	compared := 0
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(ar.Files, func(f txtar.File) bool { return f.Name == "want" })
		body := ar.Files[i].Data
		if !json.Valid(body) {
			continue // the error of a request that is not sent
		}
		compared++
		var req sdk.ChatCompletionRequest
		if err := json.Unmarshal(body, &req); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		again, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range differences("", decoded(t, body), decoded(t, again)) {
			if notInSDK[path] == "" {
				t.Errorf("%s: %s differs from what go-openai writes", file, path)
			}
			seen[path] = true
		}
	}
	if compared < 30 {
		t.Errorf("only %d requests were compared", compared)
	}
	for path := range notInSDK {
		if !seen[path] {
			t.Errorf("%s is in notInSDK but in no request", path)
		}
	}
}

func decoded(t *testing.T, data []byte) (v any) {
	t.Helper()
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// differences returns the paths of the members that differ. A false equals a missing member.
func differences(path string, a, b any) (paths []string) {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return []string{path}
		}
		names := maps.Clone(a)
		maps.Copy(names, b)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if a[name] == nil && b[name] == false {
				continue // "stream" and "strict": go-openai writes what is the default
			}
			paths = append(paths, differences(strings.TrimPrefix(path+"/"+name, "/"), a[name], b[name])...)
		}
		return paths
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return []string{path}
		}
		for i := range a {
			paths = append(paths, differences(path+"/*", a[i], b[i])...)
		}
		return paths
	}
	if !reflect.DeepEqual(a, b) {
		return []string{path}
	}
	return nil
}

// capture is a transport that records the last request and fails it.
type capture struct {
	method, url string
	header      http.Header
	body        []byte
}

func (c *capture) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	*c = capture{req.Method, req.URL.String(), req.Header.Clone(), body}
	return nil, errors.Join(errors.New("captured"), err)
}

// TestRequestsAreGoOpenAIs sends the same requests with go-openai's client and compares method, URL, header and body.
func TestRequestsAreGoOpenAIs(t *testing.T) {
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`)
	picture := &message.Data{MediaType: "image/png", Bytes: []byte{1, 2, 3}}
	temperature := 0.5
	tools := []tool.Info{{Name: "add", Description: "Adds <two> & more.", Input: schema}}
	sdkTools := []sdk.Tool{{Type: sdk.ToolTypeFunction, Function: &sdk.FunctionDefinition{Name: "add", Description: "Adds <two> & more.", Parameters: schema}}}
	hello := []sdk.ChatCompletionMessage{{Role: "user", Content: "hi"}}
	for _, row := range []struct {
		why  string
		cfg  openai.Config
		ours model.Request
		want sdk.ChatCompletionRequest
	}{
		{"a question", openai.Config{}, model.Request{Messages: hi.Messages}, sdk.ChatCompletionRequest{Messages: hello}},
		{"the caller's organization", openai.Config{Organization: "org-1"}, model.Request{Messages: hi.Messages}, sdk.ChatCompletionRequest{Messages: hello}},
		{"not streamed", openai.Config{NoStream: true}, model.Request{Messages: hi.Messages}, sdk.ChatCompletionRequest{Messages: hello}},
		{"settings", openai.Config{Extra: map[string]json.RawMessage{"seed": json.RawMessage("7"), "reasoning_effort": json.RawMessage(`"low"`)}},
			model.Request{System: "Be <brief>.", Messages: hi.Messages, MaxTokens: 9, Temperature: &temperature},
			//lint:ignore SA1019 servers other than OpenAI's know only max_tokens
			sdk.ChatCompletionRequest{Messages: append([]sdk.ChatCompletionMessage{{Role: "system", Content: "Be <brief>."}}, hello...), MaxTokens: 9, Temperature: 0.5,
				Seed: new(7), ReasoningEffort: "low"}},
		{"tools", openai.Config{}, model.Request{Messages: hi.Messages, Tools: tools, Choice: model.ToolChoice{Mode: model.ChoiceNamed, Name: "add"}},
			sdk.ChatCompletionRequest{Messages: hello, Tools: sdkTools, ToolChoice: sdk.ToolChoice{Type: sdk.ToolTypeFunction, Function: sdk.ToolFunction{Name: "add"}}}},
		{"a call and its result", openai.Config{}, model.Request{Messages: append(slices.Clone(hi.Messages),
			message.Assistant(&message.Text{Text: "So."}, &message.ToolCall{ID: "c1", Name: "add", Input: json.RawMessage(`{"a":1}`)}),
			&message.Message{Role: message.RoleTool, Blocks: message.Blocks{&message.ToolResult{ID: "c1", Name: "add", Blocks: message.Blocks{&message.Text{Text: "1 < 2"}}}}})},
			sdk.ChatCompletionRequest{Messages: append(slices.Clone(hello),
				sdk.ChatCompletionMessage{Role: "assistant", Content: "So.", ToolCalls: []sdk.ToolCall{{ID: "c1", Type: sdk.ToolTypeFunction, Function: sdk.FunctionCall{Name: "add", Arguments: `{"a":1}`}}}},
				sdk.ChatCompletionMessage{Role: "tool", ToolCallID: "c1", Content: "1 < 2"})}},
		{"an image", openai.Config{}, model.Request{Messages: []*message.Message{{Role: message.RoleUser, Name: "ann", Blocks: message.Blocks{&message.Text{Text: "What is it?"}, picture}}}},
			sdk.ChatCompletionRequest{Messages: []sdk.ChatCompletionMessage{{Role: "user", Name: "ann", MultiContent: []sdk.ChatMessagePart{
				{Type: sdk.ChatMessagePartTypeText, Text: "What is it?"}, {Type: sdk.ChatMessagePartTypeImageURL, ImageURL: &sdk.ChatMessageImageURL{URL: "data:image/png;base64,AQID"}}}}}}},
		{"an output schema", openai.Config{}, model.Request{Messages: hi.Messages, Output: &model.OutputSchema{Name: "sum", Schema: schema, Strict: true}},
			sdk.ChatCompletionRequest{Messages: hello, ResponseFormat: &sdk.ChatCompletionResponseFormat{Type: sdk.ChatCompletionResponseFormatTypeJSONSchema,
				JSONSchema: &sdk.ChatCompletionResponseFormatJSONSchema{Name: "sum", Schema: schema, Strict: true}}}},
	} {
		t.Run(row.why, func(t *testing.T) {
			var ours, theirs capture
			row.cfg.Model, row.cfg.Key, row.cfg.BaseURL, row.cfg.HTTPClient = "m", "secret", "https://llm.example.org/v1", &http.Client{Transport: &ours}
			m, err := openai.New(row.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := model.Collect(m.Generate(t.Context(), &row.ours)); err == nil || !strings.Contains(err.Error(), "captured") {
				t.Fatal(err)
			}
			cfg := sdk.DefaultConfig("secret")
			cfg.BaseURL, cfg.OrgID, cfg.HTTPClient = row.cfg.BaseURL, row.cfg.Organization, &http.Client{Transport: &theirs}
			row.want.Model = "m"
			client := sdk.NewClientWithConfig(cfg)
			if row.cfg.NoStream {
				_, err = client.CreateChatCompletion(t.Context(), row.want)
			} else {
				row.want.StreamOptions = &sdk.StreamOptions{IncludeUsage: true}
				_, err = client.CreateChatCompletionStream(t.Context(), row.want)
			}
			if err == nil || !strings.Contains(err.Error(), "captured") {
				t.Fatal(err)
			}
			ours.header.Del("Accept-Encoding") // "identity": a proxy that compresses a stream holds it back
			if ours.method != theirs.method || ours.url != theirs.url || !reflect.DeepEqual(ours.header, theirs.header) {
				t.Errorf("\n got %s %s %v\nwant %s %s %v", ours.method, ours.url, ours.header, theirs.method, theirs.url, theirs.header)
			}
			if paths := differences("", decoded(t, ours.body), decoded(t, theirs.body)); len(paths) > 0 {
				t.Errorf("%q differ:\n got %s\nwant %s", paths, ours.body, theirs.body)
			}
		})
	}
}
