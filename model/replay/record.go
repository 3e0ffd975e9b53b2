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

// A call is an exchange that is being recorded.
type call struct {
	exchange
	cfg     *Config
	secrets secrets

	mu    sync.Mutex   // the client may read the body in another goroutine than the goroutine that made the request
	body  bytes.Buffer // of the response, as far as it was read
	ended bool         // nothing more is recorded
}

// Record returns a recorder. [Recorder.Close] writes the file at path.
func Record(path string, cfg Config) *Recorder {
	if cfg.Next == nil {
		cfg.Next = http.DefaultTransport
	}
	return &Recorder{path: path, cfg: cfg}
}

// RoundTrip sends req and returns the response, whose body is recorded as the client reads the body. RoundTrip fails if
// [Config.Next] fails, and if the server compresses the response although RoundTrip did not ask for that.
func (r *Recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	c := &call{cfg: &r.cfg, secrets: secretsOf(req)}
	c.Request = *r.cfg.request(req, body)
	r.mu.Lock()
	r.calls = append(r.calls, c) // in the order of the requests, not of the responses
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

// Close writes the file. A body that the client is still reading is recorded as far as it was read, and counts as closed
// by the client; a request without a response yet is recorded with the error "no response". Later requests are not
// recorded. If the file cannot be written, Close fails and leaves an existing file unchanged.
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

// text returns the text to record for an error: that of the innermost one, since outer errors contain addresses.
func (c *call) text(err error) string {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return string(c.secrets.clean([]byte(err.Error())))
}

// fail records that there was no response.
func (c *call) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended { // the recorder was closed
		return
	}
	c.Error = c.text(err)
	c.ended = true
}

// recordedHeaders are the response headers that a client acts on. Other headers may contain secrets.
var recordedHeaders = []string{"Content-Type", "Date", "Retry-After", "Retry-After-Ms"}

// begin records the status and the headers of the response.
func (c *call) begin(resp *http.Response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.Response = &response{Status: resp.StatusCode, Header: http.Header{}}
	for _, name := range recordedHeaders {
		if v := resp.Header.Values(name); len(v) > 0 {
			c.Response.Header[name] = v
		}
	}
}

// end records the body as far as it was read, and how it ended: reading failed with err, the client closed the body
// before its end, or neither. Only the first call of end counts.
func (c *call) end(err error, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	if c.Response == nil { // the recorder was closed before the response came
		c.Error = "no response"
		return
	}
	c.Response.Body = exactContent(c.secrets.clean(c.cfg.rewrite(c.body.Bytes())))
	c.Response.Closed = closed
	if err != nil {
		c.Response.Broken = c.text(err)
	}
}

// A tap is the body of a response, and records what the client reads.
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
