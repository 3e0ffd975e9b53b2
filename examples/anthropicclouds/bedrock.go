package anthropicclouds

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/kitbag-go/kitbag/model/anthropic"
)

// Bedrock returns a model on Amazon Bedrock, in the region and with the credentials of an
// aws.Config, which config.LoadDefaultConfig of the AWS SDK makes of the environment and its files.
// cfg.Model is the id of a model or of an inference profile, or its ARN. Another cfg.BaseURL than
// the region's, such as that of a VPC endpoint, replaces it. Bedrock fails as anthropic.New does,
// and without a region or credentials.
func Bedrock(cloud aws.Config, cfg anthropic.Config) (*anthropic.Model, error) {
	if cloud.Region == "" || cloud.Credentials == nil {
		return nil, errors.New("the aws.Config has no region or no credentials; " +
			"set AWS_REGION, and log in, or set both members")
	}
	baseURL := "https://bedrock-runtime." + cloud.Region + ".amazonaws.com"
	return newModel(cfg, baseURL, func(next http.RoundTripper) http.RoundTripper {
		return &bedrock{region: cloud.Region, credentials: cloud.Credentials,
			signer: v4.NewSigner(), next: next}
	})
}

// A bedrock is a transport that calls InvokeModelWithResponseStream of Bedrock's API: the model is
// in the path, the version and the beta features are in the body, and the answer is an AWS event
// stream.
type bedrock struct {
	region      string
	credentials aws.CredentialsProvider
	signer      *v4.Signer
	next        http.RoundTripper
}

func (b *bedrock) RoundTrip(original *http.Request) (*http.Response, error) {
	r, err := readRequest(original)
	if err != nil {
		return nil, fmt.Errorf("bedrock: %w", err)
	}
	delete(r.body, "stream")
	r.body["anthropic_version"] = json.RawMessage(`"bedrock-2023-05-31"`)
	if betas := r.Header.Values("Anthropic-Beta"); len(betas) > 0 {
		if r.body["anthropic_beta"], err = json.Marshal(betas); err != nil {
			return nil, err
		}
		r.Header.Del("Anthropic-Beta")
	}
	r.Header.Set("Accept", "application/vnd.amazon.eventstream")
	// QueryEscape escapes the colon of "…-v1:0" too, on which the signature depends.
	body, err := r.finish("/model/" + url.QueryEscape(r.model) + "/invoke-with-response-stream")
	if err != nil {
		return nil, fmt.Errorf("bedrock: %w", err)
	}
	if err := b.sign(r.Request, body, time.Now()); err != nil {
		return nil, fmt.Errorf("bedrock: sign the request: %w", err)
	}
	resp, err := b.next.RoundTrip(r.Request)
	if err != nil {
		return nil, err
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if media == "application/vnd.amazon.eventstream" {
		resp.Header.Set("Content-Type", "text/event-stream")
		resp.Header.Del("Content-Length")
		resp.ContentLength = -1
		resp.Body = &eventReader{body: resp.Body, decoder: eventstream.NewDecoder()}
	}
	return resp, nil
}

func (b *bedrock) sign(r *http.Request, body []byte, at time.Time) error {
	credentials, err := b.credentials.Retrieve(r.Context())
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	return b.signer.SignHTTP(r.Context(), credentials, r, hash, "bedrock", b.region, at)
}

// An eventReader reads an AWS event stream as server-sent events.
type eventReader struct {
	body    io.ReadCloser
	decoder *eventstream.Decoder
	payload []byte // memory for the payload of a message
	rest    string // of the event that is being read
}

func (e *eventReader) Close() error { return e.body.Close() }

func (e *eventReader) Read(p []byte) (int, error) {
	for e.rest == "" {
		m, err := e.decoder.Decode(e.body, e.payload[:0])
		if err != nil {
			return 0, err
		}
		e.payload = m.Payload
		event, err := eventOf(m)
		if err != nil {
			return 0, fmt.Errorf("bedrock: an event of the answer: %w", err)
		}
		e.rest = "data: " + string(event) + "\n\n"
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// eventOf returns the event of the Messages API in a message. An exception becomes an error event.
func eventOf(m eventstream.Message) ([]byte, error) {
	header := func(name string) string {
		if v := m.Headers.Get(name); v != nil {
			return v.String()
		}
		return ""
	}
	switch kind := header(":message-type"); kind {
	case "event":
		var chunk struct{ Bytes []byte }
		err := json.Unmarshal(m.Payload, &chunk)
		return chunk.Bytes, err
	case "exception":
		var exception struct{ Message string }
		if err := json.Unmarshal(m.Payload, &exception); err != nil {
			return nil, err
		}
		return errorEvent(header(":exception-type"), exception.Message)
	case "error":
		return errorEvent(header(":error-code"), header(":error-message"))
	default:
		return nil, fmt.Errorf("the message has the unknown type %q", kind)
	}
}

// errorTypes are the types of the Messages API for exceptions of Bedrock's API ("ResponseStream").
var errorTypes = map[string]string{
	"modelTimeoutException":       "timeout_error",
	"serviceUnavailableException": "overloaded_error",
	"throttlingException":         "rate_limit_error",
	"validationException":         "invalid_request_error",
}

func errorEvent(name, text string) ([]byte, error) {
	kind, ok := errorTypes[name]
	if !ok {
		kind = "api_error"
	}
	fault := map[string]string{"type": kind, "message": strings.TrimSpace(name + " " + text)}
	return json.Marshal(map[string]any{"type": "error", "error": fault})
}
