package anthropicclouds

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"

	"github.com/kitbag-go/kitbag/internal/anthropictest"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/anthropic"
	"github.com/kitbag-go/kitbag/tool"
)

// cloud has the region and the keys of the tests.
var cloud = aws.Config{
	Region: "eu-west-1",
	Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "secret",
			SessionToken: "session"}, nil
	}),
}

// decodeBody decodes the body of a request, and reports members that the cloud refuses or lacks. It
// returns the body of the same request to the Messages API.
func decodeBody(r *http.Request, modelName string, want map[string]string) ([]byte, error) {
	var body map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	for name, value := range want {
		if string(body[name]) != value {
			return nil, fmt.Errorf("%s is %s, want %s", name, body[name], value)
		}
	}
	delete(body, "anthropic_version")
	delete(body, "anthropic_beta")
	body["model"], body["stream"] = fmt.Appendf(nil, "%q", modelName), json.RawMessage("true")
	return json.Marshal(body)
}

// forward sends a request to a server of the Messages API.
func forward(ctx context.Context, server string, body []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, server+messagesPath,
		bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = http.Header{"Content-Type": {"application/json"},
		"Anthropic-Version": {"2023-06-01"}}
	return http.DefaultClient.Do(r)
}

// checkSignature signs what has arrived again, and compares the signatures.
func checkSignature(r *http.Request, body []byte) error {
	got := r.Header.Get("Authorization")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil {
		return err
	}
	again, err := http.NewRequest(r.Method, "http://"+r.Host+r.RequestURI, bytes.NewReader(body))
	if err != nil {
		return err
	}
	_, names, _ := strings.Cut(got, "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	for name := range strings.SplitSeq(names, ";") {
		again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
	}
	again.Header.Del("Host")
	again.Header.Del("Content-Length")
	b := bedrock{region: cloud.Region, credentials: cloud.Credentials, signer: v4.NewSigner()}
	if err := b.sign(again, body, at); err != nil {
		return err
	}
	if want := again.Header.Get("Authorization"); got != want {
		return fmt.Errorf("the signature is %q, want %q", got, want)
	}
	return nil
}

// serveBedrock plays Amazon Bedrock (API reference, InvokeModelWithResponseStream) with the answers
// of a server of the Messages API.
func serveBedrock(t *testing.T, server string) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) error {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		if err := checkSignature(r, data); err != nil {
			return err
		}
		name, ok := strings.CutSuffix(strings.TrimPrefix(r.RequestURI, "/model/"),
			"/invoke-with-response-stream")
		if name, err = url.PathUnescape(name); err != nil || !ok {
			return fmt.Errorf("the path is %s, %w", r.RequestURI, err)
		}
		r.Body = io.NopCloser(bytes.NewReader(data))
		body, err := decodeBody(r, name, map[string]string{
			"anthropic_version": `"bedrock-2023-05-31"`, "anthropic_beta": `["b1","b2"]`, "model": "", "stream": "",
		})
		if err != nil {
			return err
		}
		resp, err := forward(r.Context(), server, body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			w.WriteHeader(resp.StatusCode)
			_, err := io.Copy(w, resp.Body)
			return err
		}
		w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if event, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				if _, err := w.Write(chunk(t, event)); err != nil {
					return err
				}
			}
		}
		return lines.Err()
	})
}

// serve starts a server until the end of the test, which fails with an error of fn.
func serve(t *testing.T, fn func(http.ResponseWriter, *http.Request) error) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := fn(w, r); err != nil {
			t.Error(err)
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// chunk returns a message of an AWS event stream with an event of the Messages API.
func chunk(t *testing.T, event string) []byte {
	payload, err := json.Marshal(map[string]any{"bytes": []byte(event), "p": "abc"})
	if err != nil {
		t.Fatal(err)
	}
	return encodeMessage(t, string(payload), ":message-type", "event", ":event-type", "chunk")
}

func encodeMessage(t *testing.T, payload string, header ...string) []byte {
	m := eventstream.Message{Payload: []byte(payload)}
	for i := 0; i < len(header); i += 2 {
		m.Headers.Set(header[i], eventstream.StringValue(header[i+1]))
	}
	var out bytes.Buffer
	if err := eventstream.NewEncoder().Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// converse has a conversation with thinking, a call and an overloaded server.
func converse(t *testing.T, m *anthropic.Model) {
	t.Helper()
	req := &model.Request{
		System:   "Be good.",
		Messages: []*message.Message{message.User("What is 1+1? <&>")},
		Tools: []tool.Info{{Name: "add", Description: "Add.",
			Input: json.RawMessage(`{"type":"object"}`)}},
	}
	said, _, err := model.Collect(m.Generate(t.Context(), req))
	if err != nil || len(said.ToolCalls()) != 1 {
		t.Fatal(said, err)
	}
	call := said.ToolCalls()[0]
	result := &message.ToolResult{ID: call.ID, Name: call.Name,
		Blocks: message.Blocks{&message.Text{Text: "2"}}}
	req.Messages = append(req.Messages, said,
		&message.Message{Role: message.RoleTool, Blocks: message.Blocks{result}})
	_, _, err = model.Collect(m.Generate(t.Context(), req))
	if e, ok := errors.AsType[*model.Error](err); !ok || e.Kind != model.KindUpstream ||
		e.Message != "Overloaded" {
		t.Error(err)
	}
	said, _, err = model.Collect(m.Generate(t.Context(), req))
	if err != nil || said.Text() != "It is 2." {
		t.Error(said, err)
	}
}

// answers are the answers to converse. The server refuses thinking that was changed on its way.
func answers(t *testing.T) string {
	return anthropictest.New(t,
		anthropictest.Thinking("I add.").Text("So.").Calls(anthropictest.Call{Name: "add",
			Args: `{"a":1}`}),
		anthropictest.Overloaded(),
		anthropictest.Text("It is 2.").Expect(func(r *anthropictest.Request) error {
			if b := r.Messages[1].Content[0]; b.Type != "thinking" || b.Thinking != "I add." {
				return fmt.Errorf("the thinking was not sent back, but %+v", b)
			}
			return nil
		})).URL
}

func TestBedrock(t *testing.T) {
	m, err := Bedrock(cloud, anthropic.Config{Model: "eu.anthropic.claude-opus-5-5-v1:0",
		Betas: []string{"b1", "b2"}, BaseURL: serveBedrock(t, answers(t))})
	if err != nil {
		t.Fatal(err)
	}
	converse(t, m)
}

func TestVertex(t *testing.T) {
	server := answers(t)
	at := serve(t, func(w http.ResponseWriter, r *http.Request) error {
		const path = "/v1/projects/p-1/locations/europe-west1/publishers/anthropic/models/" +
			"claude-opus-5-5@20260922:streamRawPredict"
		h := r.Header
		if r.RequestURI != path || h.Get("Authorization") != "Bearer token-1" ||
			h.Get("Anthropic-Beta") != "b1" {
			return fmt.Errorf("%s with the header %v", r.RequestURI, h)
		}
		body, err := decodeBody(r, "claude-opus-5-5@20260922",
			map[string]string{"anthropic_version": `"vertex-2023-10-16"`, "model": "",
				"stream": "true"})
		if err != nil {
			return err
		}
		resp, err := forward(r.Context(), server, body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
		w.WriteHeader(resp.StatusCode)
		_, err = io.Copy(w, resp.Body)
		return err
	})
	tokens := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "token-1"})
	m, err := Vertex(tokens, "p-1", "europe-west1",
		anthropic.Config{Model: "claude-opus-5-5@20260922",
			Betas: []string{"b1"}, BaseURL: at})
	if err != nil {
		t.Fatal(err)
	}
	converse(t, m)
}

// TestServers checks the hosts of the clouds, and what they need.
func TestServers(t *testing.T) {
	tokens := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: "t"})
	if _, err := Bedrock(aws.Config{Region: "eu-west-1"},
		anthropic.Config{Model: "m"}); err == nil {
		t.Error("Bedrock needs no credentials")
	}
	if _, err := Vertex(tokens, "", "eu", anthropic.Config{Model: "m"}); err == nil {
		t.Error("Vertex needs no project")
	}
	m, err := Bedrock(cloud, anthropic.Config{Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if host, _ := m.Server(); host != "bedrock-runtime.eu-west-1.amazonaws.com" {
		t.Error(host)
	}
	for location, want := range map[string]string{
		"global": "aiplatform.googleapis.com", "eu": "aiplatform.eu.rep.googleapis.com",
		"europe-west1": "europe-west1-aiplatform.googleapis.com",
	} {
		m, err := Vertex(tokens, "p", location, anthropic.Config{Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if host, _ := m.Server(); host != want {
			t.Errorf("%s: %s, want %s", location, host, want)
		}
	}
}

// TestExceptions: an exception in the stream ends the answer with an error of its kind, as a message
// does that is broken.
func TestExceptions(t *testing.T) {
	begin := chunk(t, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"So."}}`)
	exception := func(name string) []byte {
		return encodeMessage(t, `{"message":"No."}`, ":message-type", "exception",
			":exception-type", name)
	}
	for _, row := range []struct {
		stream []byte
		kind   model.ErrorKind
		text   string
	}{
		{exception("throttlingException"), model.KindRateLimit, "throttlingException No."},
		{exception("validationException"), model.KindInvalidRequest, "No."},
		{exception("modelStreamErrorException"), model.KindUpstream, "No."},
		{exception("newException"), model.KindUpstream, "newException No."},
		{encodeMessage(t, "", ":message-type", "error", ":error-code", "500", ":error-message",
			"Oh."),
			model.KindUpstream, "500 Oh."},
		{encodeMessage(t, "{}", ":message-type", "news"), model.KindConnection,
			`unknown type "news"`},
		{encodeMessage(t, "{", ":message-type", "event"), model.KindConnection,
			"unexpected end of JSON"},
		{begin[:len(begin)/2], model.KindConnection, "ended before the answer was finished"},
		{nil, model.KindConnection, "ended before the answer was finished"},
	} {
		at := serve(t, func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
			_, err := w.Write(append(bytes.Clone(begin), row.stream...))
			return err
		})
		m, err := Bedrock(cloud, anthropic.Config{Model: "m", BaseURL: at})
		if err != nil {
			t.Fatal(err)
		}
		req := &model.Request{Messages: []*message.Message{message.User("hi")}}
		said, _, err := model.Collect(m.Generate(t.Context(), req))
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Kind != row.kind || !strings.Contains(e.Message, row.text) {
			t.Errorf("%v; want %s, %q", err, row.kind, row.text)
		}
		if said.Text() != "So." {
			t.Errorf("%q before the error", said.Text())
		}
	}
}

// TestEventsAreNotHeldBack: an event can be read when its message has arrived, in pieces of any size.
func TestEventsAreNotHeldBack(t *testing.T) {
	const event = `{"type":"ping"}`
	silence := iotest.ErrReader(errors.New("read too far"))
	e := &eventReader{decoder: eventstream.NewDecoder(),
		body: io.NopCloser(io.MultiReader(iotest.OneByteReader(bytes.NewReader(chunk(t, event))),
			silence))}
	got := make([]byte, len("data: \n\n")+len(event))
	if _, err := io.ReadFull(iotest.HalfReader(e), got); err != nil ||
		string(got) != "data: "+event+"\n\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// A model on Bedrock. Most programs have the aws.Config from config.LoadDefaultConfig, in the module
// github.com/aws/aws-sdk-go-v2/config.
func ExampleBedrock() {
	cloud := aws.Config{
		Region: "eu-west-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "…", SecretAccessKey: "…"}, nil
		}),
	}
	m, err := Bedrock(cloud, anthropic.Config{Model: "eu.anthropic.claude-opus-5-5"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Server())
	// Output: bedrock-runtime.eu-west-1.amazonaws.com 443
}

// A model on Vertex, with the credentials that gcloud or the machine provides.
func ExampleVertex() {
	ctx := context.Background()
	tokens, err := google.DefaultTokenSource(ctx, VertexScope)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := Vertex(tokens, "my-project", "global", anthropic.Config{Model: "claude-opus-5-5"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for chunk, err := range m.Generate(ctx, &model.Request{Messages: []*message.Message{message.User("Hello")}}) {
		fmt.Println(chunk, err)
	}
}
