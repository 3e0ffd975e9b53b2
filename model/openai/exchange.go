package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
)

const (
	// usageTime is how long to wait for the usage after the end of an answer, and
	// graceTime how long to wait for the end of the connection after that.
	usageTime = 5 * time.Second
	graceTime = 100 * time.Millisecond
)

// An exchange is one request and its answer. It is used by one goroutine, except for the
// function of the timer. It has contexts as fields since it lasts for one call.
type exchange struct {
	parent   context.Context // the caller's
	ctx      context.Context // ends with parent, and when the server is silent too long
	cancel   context.CancelCauseFunc
	cfg      *Config
	resp     *http.Response
	timer    *time.Timer // ends ctx unless it is stopped
	started  atomic.Bool // the header of the answer has come
	ending   bool        // the model has finished; little may follow
	complete bool        // the answer is complete: the connection can be reused
	eof      bool        // the body has been read to its end
}

// newExchange returns an exchange that must be closed.
func newExchange(ctx context.Context, cfg *Config) *exchange {
	x := &exchange{parent: ctx, cfg: cfg}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.timer = time.AfterFunc(cfg.HeaderTimeout, x.timedOut)
	return x
}

// timedOut ends an exchange with a server that is silent. The reason becomes the context's cause,
// which explain returns.
func (x *exchange) timedOut() {
	if !x.started.Load() {
		x.cancel(fmt.Errorf("no answer began within %v", x.cfg.HeaderTimeout))
	} else {
		x.cancel(fmt.Errorf("the server was silent for %v", x.cfg.IdleTimeout))
	}
}

// send sends a request and waits for the header of the answer. A status other than 2xx
// is an error.
func (x *exchange) send(m *Model, w *wire, b body) error {
	resp, err := m.do(x.ctx, w, b)
	x.started.Store(true)
	if err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return httperror.Of(resp)
	}
	x.resp = resp
	return nil
}

// Read reads from the answer's body. Each read may last for the idle timeout; the
// time between reads is the consumer's.
func (x *exchange) Read(p []byte) (int, error) {
	limit := x.cfg.IdleTimeout
	if x.ending {
		limit = min(limit, usageTime)
	}
	x.timer.Reset(limit)
	n, err := x.resp.Body.Read(p)
	x.timer.Stop()
	x.eof = err == io.EOF // net/http reuses the connection then
	return n, err
}

// drain reads up to 4 KiB after a complete answer, [DONE] and the end of the chunked
// encoding, so that the connection can be reused. If more follows, a new connection is cheaper.
func (x *exchange) drain(l *lines) {
	if x.complete && !x.eof {
		x.timer.Reset(graceTime)
		l.Reset(x.resp.Body)
		_, _ = l.Discard(4 << 10)
	}
}

// close ends the exchange.
func (x *exchange) close() {
	if x.resp != nil {
		_ = x.resp.Body.Close()
	}
	x.timer.Stop()
	x.cancel(nil)
}

// explain returns the error to report for an error in an exchange. If the caller's context has
// ended, that is the cause; it is not a failure of the model, so it is not retried.
func (x *exchange) explain(err error, req *model.Request) error {
	if ended := x.parent.Err(); ended != nil {
		return fmt.Errorf("model call: %w", ended)
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		if e.Kind == model.KindBadImage && !holdsImage(req.Messages) {
			e.Kind = model.KindInvalidRequest
		}
		return err
	}
	if cause := context.Cause(x.ctx); cause != nil {
		err = cause
	}
	return &model.Error{Kind: model.KindConnection, Message: err.Error(), Err: err}
}

// holdsImage reports whether messages contain an image, also in results.
func holdsImage(messages []*message.Message) bool {
	var in func(message.Blocks) bool
	in = func(blocks message.Blocks) bool {
		return slices.ContainsFunc(blocks, func(b message.Block) bool {
			switch b := b.(type) {
			case *message.Data:
				return strings.HasPrefix(b.MediaType, "image/")
			case *message.ToolResult:
				return in(b.Blocks)
			}
			return false
		})
	}
	return slices.ContainsFunc(messages, func(m *message.Message) bool { return in(m.Blocks) })
}
