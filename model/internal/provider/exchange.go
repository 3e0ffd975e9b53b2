// Package provider has what the models of all vendors share: the exchange with a server within time limits, and the
// encoding of those parts of a conversation that an API does not support.
package provider

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
)

// Limits are how long a server may be silent: until its answer begins, and within the answer.
type Limits struct{ Header, Idle time.Duration }

// An Exchange sends one request and reads its answer. Only one goroutine may use it; its timer runs on another. It
// has contexts as fields since it lasts for one call.
type Exchange struct {
	Ctx      context.Context // ends with the caller's context, or when the server is silent too long
	EndIdle  time.Duration   // the limit on silence after the model has finished; 0 until then
	Complete bool            // the answer is complete: the connection can be reused

	callerCtx context.Context
	cancel    context.CancelCauseFunc // of Ctx
	limits    Limits
	body      io.ReadCloser // nil until the header of the answer has arrived
	request   *http.Request // that was answered, after redirects; may be nil
	timer     *time.Timer   // calls timedOut unless it is stopped
	begun     atomic.Bool   // body is set, for timedOut
	eof       bool          // the body has been read to its end
}

// Start begins an exchange, which must be closed.
func (x *Exchange) Start(ctx context.Context, limits Limits) {
	x.callerCtx, x.limits = ctx, limits
	x.Ctx, x.cancel = context.WithCancelCause(ctx)
	x.timer = time.AfterFunc(limits.Header, x.timedOut)
}

// timedOut ends an exchange because the server was silent. The reason becomes the cause of Ctx, which Explain reports.
func (x *Exchange) timedOut() {
	if !x.begun.Load() {
		x.cancel(fmt.Errorf("no answer began within %v", x.limits.Header))
	} else {
		x.cancel(fmt.Errorf("the server was silent for %v", x.limits.Idle))
	}
}

// Begin must be called when the header of the answer has arrived. It fails if the status is not 2xx.
func (x *Exchange) Begin(resp *http.Response) error {
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return httperror.Of(resp)
	}
	x.begun.Store(true)
	x.body, x.request = resp.Body, resp.Request
	return nil
}

// Read reads from the answer's body. The idle limit applies to each read; the time between reads, which the
// consumer takes, does not count.
func (x *Exchange) Read(p []byte) (int, error) {
	limit := x.limits.Idle
	if x.EndIdle > 0 {
		limit = min(limit, x.EndIdle)
	}
	x.timer.Reset(limit)
	n, err := x.body.Read(p)
	x.timer.Stop()
	x.eof = err == io.EOF // net/http reuses the connection then
	return n, err
}

// Close ends the exchange.
func (x *Exchange) Close() {
	if x.body != nil {
		_ = x.body.Close()
	}
	x.timer.Stop()
	x.cancel(nil)
}

// Explain returns the error to report to the caller for err, an error of the exchange. If the caller's context has ended,
// it returns the context's error, which is not retried.
func (x *Exchange) Explain(err error, conversation []*message.Message) error {
	if ctxErr := x.callerCtx.Err(); ctxErr != nil {
		return fmt.Errorf("model call: %w", ctxErr)
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		if e.Kind == model.KindBadImage && !hasImage(conversation) { // package httperror does not know the conversation
			e.Kind = model.KindInvalidRequest
		}
		httperror.HideKeys(e, x.request)
		return err
	}
	if cause := context.Cause(x.Ctx); cause != nil {
		err = cause
	}
	return &model.Error{Kind: model.KindConnection, Message: err.Error(), Err: err}
}

// MaxLine is the limit, in bytes, of a line of a stream and of an answer that is not a stream. A stream has a whole image
// in one line.
const MaxLine = 64 << 20

// MaxPending is the limit, in bytes, of an event whose JSON is spread over several lines.
const MaxPending = 1 << 20

// ReadUnstreamed returns an answer that is not a stream. For a stream it returns nil and consumes only white space and
// a byte order mark. The first byte decides: a server may ignore the request's "stream", and send a wrong Content-Type.
func ReadUnstreamed(r *bufio.Reader) ([]byte, error) {
	first, err := firstByte(r)
	switch {
	case err == io.EOF:
		return nil, httperror.BadAnswer("the server's answer is empty; check the base URL and the model", nil)
	case err != nil || first != '{' && first != '[' && first != '<': // neither JSON nor HTML: a stream
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(r, MaxLine+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > MaxLine:
		return nil, fmt.Errorf("the answer is longer than the limit of %d bytes", MaxLine)
	case first == '<':
		return nil, httperror.BadAnswer("the server's answer is a web page, not JSON; the base URL may lack its path, such as /v1", data)
	}
	return data, nil
}

// firstByte returns the first byte that is not white space or part of a byte order mark, without consuming it.
func firstByte(r *bufio.Reader) (byte, error) {
	for {
		c, err := r.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case ' ', '\t', '\r', '\n', 0xEF, 0xBB, 0xBF:
		default:
			return c, r.UnreadByte()
		}
	}
}

// Client is used by all models, so that models on the same server share connections. It does not follow a redirect to
// another host, or from https to http, where a key in a header would go.
var Client = sync.OnceValue(func() *http.Client {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // replaced by the program, perhaps for tracing
		return &http.Client{CheckRedirect: sameHost}
	}
	t = t.Clone()
	t.MaxIdleConns = 0           // no limit
	t.MaxIdleConnsPerHost = 256  // the default is 2, and agents run in parallel
	t.WriteBufferSize = 32 << 10 // most bodies go out in one write
	return &http.Client{Transport: t, CheckRedirect: sameHost}
})

// ClientOr returns a client that sends with c, or Client's if c is nil. A c without a CheckRedirect gets the one of
// Client, since net/http sends most headers of a request, such as x-api-key, to any host.
func ClientOr(c *http.Client) *http.Client {
	switch {
	case c == nil:
		return Client()
	case c.CheckRedirect == nil:
		own := *c
		own.CheckRedirect = sameHost
		return &own
	}
	return c
}

func sameHost(req *http.Request, via []*http.Request) error {
	from := via[0].URL
	if len(via) >= 10 || req.URL.Hostname() != from.Hostname() || req.URL.Scheme != from.Scheme && req.URL.Scheme != "https" {
		return http.ErrUseLastResponse
	}
	return nil
}

// CanonicalHeader returns a copy of h with canonical names. Otherwise a header that the caller
// wrote as "authorization" would be sent in addition to the Authorization that it should replace.
func CanonicalHeader(h http.Header) http.Header {
	c := make(http.Header, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		key := http.CanonicalHeaderKey(name)
		c[key] = append(c[key], h[name]...)
	}
	return c
}

// Server returns the host of a base URL, and its port.
func Server(base string) (host string, port int) {
	u, err := url.Parse(base)
	if err != nil { // unreachable: New rejects such a URL
		return "", 0
	}
	port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	if n, err := strconv.Atoi(u.Port()); err == nil {
		port = n
	}
	return u.Hostname(), port
}
