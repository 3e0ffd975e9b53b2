package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/model"
	openai "github.com/sashabaranov/go-openai"
)

const (
	// maxErrorBody is how much of an error's body is read.
	maxErrorBody = 64 << 10
	// usageTime is how long the usage may come after the end of an answer, and
	// graceTime how long the end of the connection may come after all of it.
	usageTime = 5 * time.Second
	graceTime = 100 * time.Millisecond
)

// An exchange is one request and its answer. go-openai builds the request (URL
// and authentication) and the doer puts our body into it and keeps the
// response: go-openai's own reader hides error frames and cut-off streams.
type exchange struct {
	parent context.Context
	ctx    context.Context
	cancel context.CancelCauseFunc
	cfg    *Config
	body   body
	resp   *http.Response
	silent *time.Timer // ends the exchange when it fires
	begun  atomic.Bool // the header of the answer has come
	ending bool        // the answer said that it is finished; little may follow
	whole  bool        // nothing more follows: the connection may be kept
}

type exchangeKey struct{}

func newExchange(ctx context.Context, cfg *Config, b body) *exchange {
	x := &exchange{parent: ctx, cfg: cfg, body: b}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.ctx = context.WithValue(x.ctx, exchangeKey{}, x)
	return x
}

// send sends the request and waits for the header of the answer. What it gives
// go-openai is empty, because the doer replaces it, and because go-openai
// refuses some models by their names.
func (x *exchange) send(client *openai.Client) error {
	x.silent = time.AfterFunc(x.cfg.HeaderTimeout, func() {
		if !x.begun.Load() {
			x.cancel(fmt.Errorf("no answer began within %v", x.cfg.HeaderTimeout))
		} else {
			x.cancel(fmt.Errorf("the server was silent for %v", x.cfg.IdleTimeout))
		}
	})
	_, err := client.CreateChatCompletionStream(x.ctx, openai.ChatCompletionRequest{})
	x.begun.Store(true)
	return err
}

// Read reads from the answer's body. Each read may take as long as the server
// may be silent.
func (x *exchange) Read(p []byte) (int, error) {
	limit := x.cfg.IdleTimeout
	if x.ending {
		limit = min(limit, usageTime)
	}
	x.silent.Reset(limit)
	n, err := x.resp.Body.Read(p)
	x.silent.Stop() // the reader of the answer may take its time
	return n, err
}

// close ends the exchange. If the answer is complete it reads the little that
// is left, so that the connection can be used again.
func (x *exchange) close() {
	if x.resp != nil {
		if x.whole {
			x.silent.Reset(graceTime)
			_, _ = io.CopyN(io.Discard, x.resp.Body, 4<<10)
		}
		_ = x.resp.Body.Close()
	}
	x.silent.Stop()
	x.cancel(nil)
}

// explain makes the error to return of what went wrong in an exchange. If the
// caller's context has ended that is the cause, whatever it broke; it is not a
// failure of the model, so that nobody tries again.
func (x *exchange) explain(err error) error {
	if ended := x.parent.Err(); ended != nil {
		return fmt.Errorf("model call: %w", ended)
	}
	if _, ok := errors.AsType[*model.Error](err); ok {
		return err
	}
	if cause := context.Cause(x.ctx); cause != nil {
		err = cause
	}
	return &model.Error{Kind: model.ErrConnection, Message: err.Error(), Err: err}
}

// A doer carries exchanges: it is go-openai's HTTP client.
type doer struct {
	client *http.Client
	cfg    *Config
}

// Do sends the exchange's body in place of go-openai's. Its errors reach the
// caller as they are, with the Retry-After that go-openai drops.
func (d *doer) Do(req *http.Request) (*http.Response, error) {
	x := req.Context().Value(exchangeKey{}).(*exchange)
	req.ContentLength = x.body.size()
	req.Body = x.body.reader()
	req.GetBody = func() (io.ReadCloser, error) { return x.body.reader(), nil }
	if d.cfg.NoStream {
		req.Header.Set("Accept", "application/json")
	}
	for k, vs := range d.cfg.Header {
		req.Header[k] = vs
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		defer resp.Body.Close()
		data, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		return nil, statusError(resp.StatusCode, resp.Header, data)
	}
	x.resp = resp
	return resp, nil
}

// sharedTransport is one for all models, so that models for the same server
// share its connections.
var sharedTransport = sync.OnceValue(func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has put its own in place, for tracing perhaps
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 256
	t.WriteBufferSize = 32 << 10
	return t
})

// A body is a request's JSON in parts, which are shared with other requests
// and never written to.
type body [][]byte

func (b body) size() (n int64) {
	for _, part := range b {
		n += int64(len(part))
	}
	return n
}

func (b body) reader() io.ReadCloser { return &bodyReader{parts: b} }

func (b body) bytes() []byte { return bytes.Join(b, nil) }

// A bodyReader reads the parts of a body one after the other. It fills what it
// is given, so that a body goes out in few writes.
type bodyReader struct {
	parts body
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
