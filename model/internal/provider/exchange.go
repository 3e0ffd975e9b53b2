// Package provider has what the models of all vendors share: an exchange with a server in time, and how parts of a
// conversation are sent for which an API has no place.
package provider

import (
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
)

// Limits are how long a server may be silent: until its answer begins, and within the answer.
type Limits struct{ Header, Idle time.Duration }

// An Exchange is one request and its answer, which it reads. It is used by one goroutine, except for the
// function of the timer. It has contexts as fields since it lasts for one call.
type Exchange struct {
	Ctx    context.Context // ends with the caller's, and when the server is silent too long
	Ending time.Duration   // if not 0, the limit of the silence from now on: the model has finished
	EOF    bool            // the answer has been read to its end

	parent context.Context // the caller's
	cancel context.CancelCauseFunc
	limits Limits
	body   io.ReadCloser
	timer  *time.Timer // ends Ctx unless it is stopped
	begun  atomic.Bool // the header of the answer has come
}

// Start begins an exchange, which must be closed.
func (x *Exchange) Start(ctx context.Context, limits Limits) {
	x.parent, x.limits = ctx, limits
	x.Ctx, x.cancel = context.WithCancelCause(ctx)
	x.timer = time.AfterFunc(limits.Header, x.timedOut)
}

// timedOut ends an exchange with a server that is silent. The reason becomes the context's cause,
// which Explain returns.
func (x *Exchange) timedOut() {
	if !x.begun.Load() {
		x.cancel(fmt.Errorf("no answer began within %v", x.limits.Header))
	} else {
		x.cancel(fmt.Errorf("the server was silent for %v", x.limits.Idle))
	}
}

// Begun is called when the header of the answer has come, or the request has failed. The body is nil then.
func (x *Exchange) Begun(body io.ReadCloser) {
	x.begun.Store(true)
	x.body = body
}

// Read reads from the answer's body. Each read may last for the idle limit; the time between
// reads is the consumer's.
func (x *Exchange) Read(p []byte) (int, error) {
	limit := x.limits.Idle
	if x.Ending > 0 {
		limit = min(limit, x.Ending)
	}
	x.timer.Reset(limit)
	n, err := x.body.Read(p)
	x.timer.Stop()
	x.EOF = err == io.EOF // net/http reuses the connection then
	return n, err
}

// Within returns the rest of the body, all of which must come within the limit.
func (x *Exchange) Within(limit time.Duration) io.Reader {
	x.timer.Reset(limit)
	return x.body
}

// Close ends the exchange.
func (x *Exchange) Close() {
	if x.body != nil {
		_ = x.body.Close()
	}
	x.timer.Stop()
	x.cancel(nil)
}

// Explain returns the error to report for an error in an exchange about a conversation. If the caller's context has
// ended, that is the cause; it is not a failure of the model, so it is not retried.
func (x *Exchange) Explain(err error, conversation []*message.Message) error {
	if ended := x.parent.Err(); ended != nil {
		return fmt.Errorf("model call: %w", ended)
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		if e.Kind == model.KindBadImage && !holdsImage(conversation) {
			e.Kind = model.KindInvalidRequest
		}
		return err
	}
	if cause := context.Cause(x.Ctx); cause != nil {
		err = cause
	}
	return &model.Error{Kind: model.KindConnection, Message: err.Error(), Err: err}
}

// Client is used by all models, so that models on the same server share connections.
var Client = sync.OnceValue(func() *http.Client {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // replaced by the program, perhaps for tracing
		return http.DefaultClient
	}
	t = t.Clone()
	t.MaxIdleConns = 0           // no limit
	t.MaxIdleConnsPerHost = 256  // the default is 2, and agents run in parallel
	t.WriteBufferSize = 32 << 10 // most bodies go out in one write
	return &http.Client{Transport: t}
})

// Canonical returns a copy of h with canonical names. Otherwise a header that the caller
// wrote as "authorization" would be sent in addition to the Authorization that it should replace.
func Canonical(h http.Header) http.Header {
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
	if err != nil { // no model is made with such a URL
		return "", 0
	}
	port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	if n, err := strconv.Atoi(u.Port()); err == nil {
		port = n
	}
	return u.Hostname(), port
}
