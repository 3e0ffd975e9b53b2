package openai

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"

	openai "github.com/sashabaranov/go-openai"
)

// An endpoint makes requests to where a model is. It is safe for concurrent use.
type endpoint struct {
	client  *http.Client
	direct  *http.Transport // of client, where all that Client.Do adds is to follow redirects; or nil
	request *http.Request   // as go-openai builds it, but for the body
	shared  bool            // nobody writes to the header of a request
	small   int             // the longest body that net/http sends together with the header, in bytes
}

// newEndpoint has go-openai build a request: where it goes, who sends it, and
// what else its header says. That is the same for every call, so that it is done
// once. The body that go-openai makes is empty, since ours takes its place, and
// since go-openai refuses some models by their names.
func newEndpoint(cfg *Config) (*endpoint, error) {
	e := &endpoint{client: cfg.HTTPClient}
	if e.client == nil {
		e.client = &http.Client{Transport: sharedTransport()}
	}
	// The request for a stream serves for whole answers too, but for the header set below.
	sdk := openai.DefaultConfig(cfg.Key)
	sdk.BaseURL, sdk.HTTPClient = cfg.BaseURL, e
	_, err := openai.NewClientWithConfig(sdk).CreateChatCompletionStream(context.Background(), openai.ChatCompletionRequest{})
	if !errors.Is(err, errBuilt) {
		return nil, err
	}
	h := e.request.Header // written here for the last time
	if cfg.NoStream {
		h.Set("Accept", "application/json")
	} else {
		h.Set("Accept-Encoding", "identity") // a proxy that packs a stream holds it back
	}
	for k, vs := range cfg.Header {
		h[k] = vs
	}
	transport := e.client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	// Other transports may write to the header, for tracing, and a jar does.
	std, ok := transport.(*http.Transport)
	e.shared = ok && e.client.Jar == nil
	if e.shared && e.client.Timeout == 0 && e.client.CheckRedirect == nil && e.request.URL.User == nil {
		e.direct = std
	}
	packet := 4 << 10 // the default of net/http
	if ok && std.WriteBufferSize > 0 {
		packet = std.WriteBufferSize
	}
	e.small = packet - maxHeader
	return e, nil
}

// errBuilt ends go-openai's call once the request is there.
var errBuilt = errors.New("the request is built")

// Do makes the endpoint go-openai's HTTP client while it is made. It keeps the
// request instead of sending it.
func (e *endpoint) Do(req *http.Request) (*http.Response, error) {
	e.request = req
	return nil, errBuilt
}

// do sends a request. What [http.Client.Do] does around the transport costs a
// tenth of the allocations of a short exchange, and is only needed when the server
// sends us elsewhere.
func (e *endpoint) do(ctx context.Context, b *body) (*http.Response, error) {
	req := e.newRequest(ctx, b)
	if e.direct == nil {
		return e.client.Do(req)
	}
	resp, err := e.direct.RoundTrip(req)
	switch {
	case err != nil: // as http.Client words it
		if tlsErr, ok := errors.AsType[tls.RecordHeaderError](err); ok && string(tlsErr.RecordHeader[:]) == "HTTP/" {
			err = http.ErrSchemeMismatch
		}
		return nil, &url.Error{Op: "Post", URL: req.URL.String(), Err: err}
	case resp.StatusCode >= 300 && resp.StatusCode < 400: // the client asks again, and follows
		_ = resp.Body.Close()
		return e.client.Do(e.newRequest(ctx, b))
	}
	return resp, nil
}

// newRequest returns a request with a body. GetBody is for the redirects and for a kept
// connection that the server closes just then: net/http sends the request again.
func (e *endpoint) newRequest(ctx context.Context, b *body) *http.Request {
	req := e.request.WithContext(ctx)
	if !e.shared {
		req.Header = req.Header.Clone()
	}
	req.ContentLength = int64(b.size())
	req.GetBody = b.open(e.small)
	req.Body, _ = req.GetBody()
	return req
}

// sharedTransport is one for all models, so that models for the same server
// share its connections.
var sharedTransport = sync.OnceValue(func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has put its own in place, for tracing perhaps
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConns = 0           // no limit on all
	t.MaxIdleConnsPerHost = 256  // the default is 2, and agents run side by side
	t.WriteBufferSize = 32 << 10 // most bodies go out in one write
	return t
})

// maxHeader is how long the header of a request is taken to be, in bytes. If it is longer
// the body goes out in a write of its own, no worse.
const maxHeader = 600

// A body is a request's JSON in parts, which are shared with other requests
// and never written to: the head, the tools, the system prompt, the conversation that is
// kept, the rest of it, and the end.
type body [6][]byte

// size returns the length in bytes.
func (b *body) size() (n int) {
	for _, part := range b {
		n += len(part)
	}
	return n
}

// bytes returns a copy in one piece.
func (b *body) bytes() []byte {
	whole := make([]byte, 0, b.size())
	for _, part := range b {
		whole = append(whole, part...)
	}
	return whole
}

// open returns what opens the body, any number of times. A small one is copied
// into one piece: net/http sends that together with the header, and anything
// else apart from it.
func (b *body) open(small int) func() (io.ReadCloser, error) {
	if b.size() > small {
		return func() (io.ReadCloser, error) { return &bodyReader{parts: b[:]}, nil }
	}
	whole := b.bytes()
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
}

// A bodyReader reads the parts of a body one after the other. It fills what it
// is given, so that a body goes out in few writes.
type bodyReader struct {
	parts [][]byte
	at    int // in the first part
}

func (r *bodyReader) Read(p []byte) (n int, err error) {
	for len(r.parts) > 0 && n < len(p) {
		m := copy(p[n:], r.parts[0][r.at:])
		n, r.at = n+m, r.at+m
		if r.at == len(r.parts[0]) {
			r.parts, r.at = r.parts[1:], 0
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (r *bodyReader) Close() error { return nil }
