package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A Recorder forwards requests and keeps the exchanges in memory until it is closed. It is safe for concurrent use.
type Recorder struct {
	path string
	cfg  Config

	mu    sync.Mutex
	calls []*call
}

// A call is an exchange that is being recorded. The body may be read and closed on another
// goroutine than the one that made the request.
type call struct {
	exchange
	cfg     *Config
	secrets secrets

	mu   sync.Mutex
	body bytes.Buffer // of the response, as far as it was read
	done bool         // nothing more is recorded
}

// Record returns a recorder. [Recorder.Close] writes the file at path.
func Record(path string, cfg Config) *Recorder {
	if cfg.Next == nil {
		cfg.Next = http.DefaultTransport
	}
	return &Recorder{path: path, cfg: cfg}
}

// RoundTrip sends req and returns the response. The body is recorded as the client reads it. RoundTrip fails if the
// transport does, and on a compressed response, which it did not ask for.
func (r *Recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	c := &call{cfg: &r.cfg, secrets: secretsOf(req)}
	c.Request = *r.cfg.request(req, body)
	r.mu.Lock()
	r.calls = append(r.calls, c) // before the response, to keep the order of the requests
	r.mu.Unlock()

	out := req.Clone(req.Context())
	out.Header.Del("Accept-Encoding") // secrets cannot be found in a compressed response
	if req.Body != nil {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := r.cfg.Next.RoundTrip(out)
	if err != nil {
		c.fail(err)
		return nil, err
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		err := fmt.Errorf("replay: the response is encoded with %s, in which secrets cannot be found; turn compression off at the server or proxy", enc)
		c.fail(err)
		return nil, errors.Join(err, resp.Body.Close())
	}
	c.begin(resp)
	resp.Body = &tap{resp.Body, c}
	return resp, nil
}

// readBody reads a request's body and closes it, as a RoundTripper must.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(req.Body)
	return body, errors.Join(err, req.Body.Close())
}

// Close writes the file. A body that is still being read is recorded up to here and counts as
// closed; a pending request is recorded without a response. Nothing is recorded afterwards. If
// the file cannot be written, Close fails and leaves an existing file unchanged.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := recording{Version: fileVersion, Exchanges: []*exchange{}}
	for _, c := range r.calls {
		c.end(nil, true)
		rec.Exchanges = append(rec.Exchanges, &c.exchange)
	}
	if err := rec.save(r.path); err != nil {
		return fmt.Errorf("replay: save the recording: %w", err)
	}
	return nil
}

// fail records that there was no response. It keeps only the innermost error, since the outer ones contain addresses.
func (c *call) fail(err error) {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done { // the recorder was closed
		return
	}
	c.Error = string(c.secrets.clean([]byte(err.Error())))
	c.done = true
}

// keptHeaders are the response headers that are recorded: those that a client acts on. Others may contain secrets.
var keptHeaders = []string{"Content-Type", "Date", "Retry-After", "Retry-After-Ms"}

// begin records the head of the response.
func (c *call) begin(resp *http.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return
	}
	c.Response = &response{Status: resp.StatusCode, Header: http.Header{}}
	for _, name := range keptHeaders {
		if v := resp.Header.Values(name); len(v) > 0 {
			c.Response.Header[name] = v
		}
	}
}

// end records how a body ended: it was read completely, reading failed with err, or the client closed it. Only the
// first call counts.
func (c *call) end(err error, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return
	}
	c.done = true
	if c.Response == nil { // the recorder was closed before the response came
		c.Error = "no response"
		return
	}
	c.Response.Body = textContent(c.secrets.clean(c.cfg.rewrite(c.body.Bytes())))
	c.Response.Closed = closed
	if err != nil {
		c.Response.Broken = string(c.secrets.clean([]byte(err.Error())))
	}
}

// A tap is a body that records what is read from it.
type tap struct {
	io.ReadCloser
	call *call
}

func (b *tap) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.call.mu.Lock()
	b.call.body.Write(p[:n])
	b.call.mu.Unlock()
	switch {
	case err == io.EOF:
		b.call.end(nil, false)
	case err != nil:
		b.call.end(err, false)
	}
	return n, err
}

func (b *tap) Close() error {
	b.call.end(nil, true)
	return b.ReadCloser.Close()
}
