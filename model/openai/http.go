package openai

import (
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
)

// newRequest returns a request without a body. cfg.Header overrides the headers that go-openai would send.
func newRequest(cfg *Config, path string) (*http.Request, error) {
	req, err := http.NewRequest(http.MethodPost, cfg.BaseURL+path, nil)
	if err != nil {
		return nil, err
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	if cfg.NoStream {
		h.Set("Accept", "application/json")
	} else {
		h.Set("Accept", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
		h.Set("Connection", "keep-alive")
		h.Set("Accept-Encoding", "identity") // a proxy that compresses a stream holds it back
	}
	if cfg.Key != "" {
		h.Set("Authorization", "Bearer "+cfg.Key)
	}
	if cfg.Organization != "" {
		h.Set("OpenAI-Organization", cfg.Organization)
	}
	maps.Copy(h, cfg.Header)
	return req, nil
}

// do sends a request with a body.
func (m *Model) do(ctx context.Context, p *protocol, b body) (*http.Response, error) {
	req := p.request.WithContext(ctx)
	if !m.keepsHeader { // the client may modify the header
		req.Header = req.Header.Clone()
	}
	req.ContentLength = int64(b.size())
	// net/http sends the body again after a redirect, or if the server has just closed the idle connection.
	req.GetBody = func() (io.ReadCloser, error) { return b.open(), nil }
	req.Body = b.open()
	return m.cfg.HTTPClient.Do(req)
}

// keepsHeader reports whether a client is known not to modify the header of a request: it has no cookies, and a transport
// of net/http.
func keepsHeader(c *http.Client) bool {
	_, ok := c.Transport.(*http.Transport)
	return ok && c.Jar == nil
}

// A body is a request's JSON in parts, which are shared with other requests and never
// modified: a list of 1,000 tools is not copied for each request.
type body [][]byte

func (b body) size() (n int) {
	for _, part := range b {
		n += len(part)
	}
	return n
}

func (b body) open() io.ReadCloser { return &bodyReader{net.Buffers(slices.Clone(b))} }

// A bodyReader reads a body; Close does nothing.
type bodyReader struct{ net.Buffers }

func (*bodyReader) Close() error { return nil }
