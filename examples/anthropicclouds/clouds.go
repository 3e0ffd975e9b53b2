// Package anthropicclouds connects model/anthropic to the clouds that serve Claude models: Amazon
// Bedrock and Google Vertex AI. Each has the Messages API in an envelope of its own, and requires
// its own credentials. A transport for each of them translates what model/anthropic sends and
// receives, and signs it with the cloud's SDK:
//
//	m, err := anthropicclouds.Bedrock(cloud, anthropic.Config{Model: "anthropic.claude-opus-5-5"})
//	m, err := anthropicclouds.Vertex(tokens, "my-project", "global",
//		anthropic.Config{Model: "claude-opus-5-5"})
//
// Copy the file that you need, and this one. They are in a module of their own, so that no other
// program requires the clouds' SDKs.
package anthropicclouds

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/kitbag-go/kitbag/model/anthropic"
)

// messagesPath ends the path of each request of model/anthropic.
const messagesPath = "/v1/messages"

// newModel returns a model whose requests go through a transport, which sends them with next.
func newModel(
	cfg anthropic.Config, baseURL string, transport func(next http.RoundTripper) http.RoundTripper,
) (*anthropic.Model, error) {
	cfg.BaseURL = cmp.Or(cfg.BaseURL, baseURL)
	client := http.Client{Transport: http.DefaultTransport}
	if cfg.HTTPClient != nil {
		client = *cfg.HTTPClient
	}
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	client.Transport = transport(client.Transport)
	cfg.HTTPClient = &client
	return anthropic.New(cfg)
}

// A request is a request of model/anthropic.
type request struct {
	*http.Request // without a body

	model string                     // the clouds have it in the path
	body  map[string]json.RawMessage // without the model
}

// readRequest reads a request of model/anthropic. The result is a copy, which may be changed.
func readRequest(original *http.Request) (*request, error) {
	data, err := io.ReadAll(original.Body)
	if err := errors.Join(err, original.Body.Close()); err != nil {
		return nil, err
	}
	r := &request{Request: original.Clone(original.Context())}
	if err := json.Unmarshal(data, &r.body); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(r.body["model"], &r.model); err != nil {
		return nil, err
	}
	if !strings.HasSuffix(r.URL.Path, messagesPath) {
		return nil, fmt.Errorf("the path %s does not end in %s", r.URL.Path, messagesPath)
	}
	delete(r.body, "model")
	r.Header.Del("Anthropic-Version") // in the body, with another value
	return r, nil
}

// finish gives the request a path, in which some values are escaped, and the body. It returns the
// body.
func (r *request) finish(path string) ([]byte, error) {
	data, err := json.Marshal(r.body)
	if err != nil {
		return nil, err
	}
	r.URL.RawPath = strings.TrimSuffix(r.URL.EscapedPath(), messagesPath) + path
	if r.URL.Path, err = url.PathUnescape(r.URL.RawPath); err != nil {
		return nil, err
	}
	r.ContentLength = int64(len(data))
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	r.Body, err = r.GetBody()
	return data, err
}
