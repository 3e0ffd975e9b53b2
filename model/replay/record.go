package replay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// A Recorder forwards requests and keeps the exchanges in memory until it is closed. It is
// safe for concurrent use.
type Recorder struct {
	path string
	cfg  Config

	mu    sync.Mutex
	taken []*take
}

// A take is an exchange that is being recorded. The body may be read and closed on another
// goroutine than the one that made the request.
type take struct {
	exchange
	cfg     *Config
	secrets secrets

	mu   sync.Mutex
	body bytes.Buffer // of the response, as far as it was read
	over bool         // nothing more is recorded
}

// Record returns a recorder. [Recorder.Close] writes the file at path.
func Record(path string, cfg Config) *Recorder {
	if cfg.Next == nil {
		cfg.Next = http.DefaultTransport
	}
	return &Recorder{path: path, cfg: cfg}
}

// RoundTrip sends req and returns the response. The body is recorded as the
// client reads it. It fails where the transport does, and on a response that is compressed,
// which the request did not allow.
func (r *Recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	t := &take{cfg: &r.cfg, secrets: secretsOf(req)}
	t.Request = *r.cfg.request(req, body)
	r.mu.Lock()
	r.taken = append(r.taken, t) // before the response, to keep the order of the requests
	r.mu.Unlock()

	out := req.Clone(req.Context())
	out.Header.Del("Accept-Encoding") // secrets cannot be found in a compressed response
	if req.Body != nil {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	resp, err := r.cfg.Next.RoundTrip(out)
	if err != nil {
		t.fail(err)
		return nil, err
	}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		err := fmt.Errorf("replay: the response is encoded with %s, in which secrets cannot be found; turn compression off at the server or proxy", enc)
		t.fail(err)
		return nil, errors.Join(err, resp.Body.Close())
	}
	t.begin(resp)
	resp.Body = &tap{resp.Body, t}
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

// Close writes the file. A body that is still being read is kept up to here and counts as
// closed; a pending request is recorded without a response. Nothing later is recorded. If
// the file cannot be written, Close fails and an existing file stays as it was.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := recording{Version: fileVersion, Exchanges: []*exchange{}}
	for _, t := range r.taken {
		t.end(nil, true)
		rec.Exchanges = append(rec.Exchanges, &t.exchange)
	}
	if err := rec.save(r.path); err != nil {
		return fmt.Errorf("replay: save the recording: %w", err)
	}
	return nil
}

// fail records that there was no response. Only the innermost error is kept, since the
// outer ones contain addresses.
func (t *take) fail(err error) {
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over { // the recorder was closed
		return
	}
	t.Error = string(t.secrets.clean([]byte(err.Error())))
	t.over = true
}

// keptHeaders are the response headers that are recorded: those that a client acts on.
// Others may contain secrets.
var keptHeaders = []string{"Content-Type", "Date", "Retry-After", "Retry-After-Ms"}

// begin records the head of the response.
func (t *take) begin(resp *http.Response) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.Response = &response{Status: resp.StatusCode, Header: http.Header{}}
	for _, name := range keptHeaders {
		if v := resp.Header.Values(name); len(v) > 0 {
			t.Response.Header[name] = v
		}
	}
}

// end records how a body ended: it was read to its end, reading failed with err, or the
// client closed it. Only the first call counts.
func (t *take) end(err error, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	if t.Response == nil { // the recorder was closed before the response came
		t.Error = "no response"
		return
	}
	t.Response.Body = textContent(t.secrets.clean(t.cfg.rewrite(t.body.Bytes())))
	t.Response.Closed = closed
	if err != nil {
		t.Response.Broken = string(t.secrets.clean([]byte(err.Error())))
	}
}

// A tap records what is read from a body.
type tap struct {
	io.ReadCloser
	take *take
}

func (b *tap) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.take.mu.Lock()
	b.take.body.Write(p[:n])
	b.take.mu.Unlock()
	switch {
	case err == io.EOF:
		b.take.end(nil, false)
	case err != nil:
		b.take.end(err, false)
	}
	return n, err
}

func (b *tap) Close() error {
	b.take.end(nil, true)
	return b.ReadCloser.Close()
}
