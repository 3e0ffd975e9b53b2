package anthropic_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/bedrock"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/model/anthropic/anthropictest"
	"github.com/kitbag-go/kitbag/model/internal/providertest"
)

// A bedrockClient plays Amazon Bedrock (API reference, InvokeModelWithResponseStream) with the answers of a server of the
// Messages API: the model is in the path, the version and the beta features are in the body, and the events of the answer are
// base64 in messages of an AWS event stream.
type bedrockClient struct {
	t      *testing.T
	server string
}

func (c bedrockClient) Do(req *http.Request) (*http.Response, error) {
	name, isStream := strings.CutSuffix(strings.TrimPrefix(req.URL.Path, "/model/"), "/invoke-with-response-stream")
	if !isStream || req.URL.Host != "bedrock-runtime.eu-west-1.amazonaws.com" || !strings.Contains(req.Header.Get("Authorization"), "/eu-west-1/bedrock/") {
		c.t.Errorf("the request is for %s with the authorization %q", req.URL, req.Header.Get("Authorization"))
	}
	var body map[string]json.RawMessage
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		return nil, err
	}
	if string(body["anthropic_version"]) != `"bedrock-2023-05-31"` || string(body["anthropic_beta"]) != `["b1"]` || body["model"] != nil || body["stream"] != nil {
		c.t.Errorf("the body is %s", body)
	}
	delete(body, "anthropic_version")
	delete(body, "anthropic_beta")
	body["model"], body["stream"] = fmt.Appendf(nil, "%q", name), json.RawMessage("true")
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	direct, err := http.NewRequestWithContext(req.Context(), http.MethodPost, c.server+"/v1/messages", bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	direct.Header.Set("Content-Type", "application/json")
	direct.Header.Set("anthropic-version", "2023-06-01")
	resp, err := http.DefaultClient.Do(direct)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	defer resp.Body.Close()
	var out bytes.Buffer
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		event, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		payload, err := json.Marshal(map[string][]byte{"bytes": []byte(event)})
		if err != nil {
			return nil, err
		}
		headers := eventstream.Headers{{Name: ":message-type", Value: eventstream.StringValue("event")}, {Name: ":event-type", Value: eventstream.StringValue("chunk")}}
		if err := eventstream.NewEncoder().Encode(&out, eventstream.Message{Headers: headers, Payload: payload}); err != nil {
			return nil, err
		}
	}
	resp.Header.Set("Content-Type", "application/vnd.amazon.eventstream")
	resp.Body = io.NopCloser(&out)
	return resp, lines.Err()
}

// TestBedrock has a conversation with thinking, calls and an overloaded server by the options of the SDK.
func TestBedrock(t *testing.T) {
	s := anthropictest.New(t,
		anthropictest.Thinking("I add.").Text("So.").Calls(anthropictest.Call{Name: "add", Args: `{"a":1}`}),
		anthropictest.Overloaded(),
		anthropictest.Text("It is 2.").Expect(thoughts(1)))
	keys := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
	})
	m, err := anthropic.New(anthropic.Config{Model: "anthropic.claude-opus-5-5", Betas: []string{"b1"}, HTTPClient: bedrockClient{t, s.URL},
		Options: []option.RequestOption{bedrock.WithConfig(aws.Config{Region: "eu-west-1", Credentials: keys})}})
	if err != nil {
		t.Fatal(err)
	}
	req := &model.Request{System: hi.System, Messages: hi.Messages, Tools: addTool}
	msg, _, err := model.Collect(m.Generate(t.Context(), req))
	if err != nil || len(msg.ToolCalls()) != 1 {
		t.Fatal(msg, err)
	}
	req.Messages = append(req.Messages[:1:1], msg, providertest.Results(msg))
	if _, _, err := model.Collect(m.Generate(t.Context(), req)); err == nil || !strings.Contains(err.Error(), "Overloaded") {
		t.Error(err)
	}
	msg, _, err = model.Collect(m.Generate(t.Context(), req))
	if err != nil || msg.Text() != "It is 2." {
		t.Error(msg, err)
	}
}
