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
	// usageTime is how long the usage may come after the end of an answer, and
	// graceTime how long the end of the connection may come after all of it.
	usageTime = 5 * time.Second
	graceTime = 100 * time.Millisecond
)

// An exchange is one request and its answer. It belongs to the goroutine that made it; only the
// timer's function runs in another one. Contexts are fields of it, as it lasts for one call.
type exchange struct {
	parent context.Context // the caller's
	ctx    context.Context // ours: ends with the parent's, and when the server is silent
	cancel context.CancelCauseFunc
	cfg    *Config
	resp   *http.Response
	timer  *time.Timer // ends ctx unless it is stopped: the server is silent
	begun  atomic.Bool // the header of the answer has come
	ending bool        // the answer said that it is finished; little may follow
	whole  bool        // nothing more follows: the connection may be kept
	ended  bool        // the body has been read to its end
}

// newExchange returns an exchange that must be closed.
func newExchange(ctx context.Context, cfg *Config) *exchange {
	x := &exchange{parent: ctx, cfg: cfg}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.timer = time.AfterFunc(cfg.HeaderTimeout, x.silent)
	return x
}

// silent ends the exchange with a server that is silent. The reason becomes the context's cause,
// where explain finds it.
func (x *exchange) silent() {
	if !x.begun.Load() {
		x.cancel(fmt.Errorf("no answer began within %v", x.cfg.HeaderTimeout))
	} else {
		x.cancel(fmt.Errorf("the server was silent for %v", x.cfg.IdleTimeout))
	}
}

// send sends a request and waits for the header of the answer. An answer with
// another status than 2xx is an error.
func (x *exchange) send(m *Model, b body) error {
	resp, err := m.do(x.ctx, b)
	x.begun.Store(true)
	if err != nil {
		return err
	}
	if resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return httperror.Of(resp)
	}
	x.resp = resp
	return nil
}

// Read reads from the answer's body. Each read may take as long as the server may be silent; the
// time between two is the consumer's.
func (x *exchange) Read(p []byte) (int, error) {
	limit := x.cfg.IdleTimeout
	if x.ending {
		limit = min(limit, usageTime)
	}
	x.timer.Reset(limit)
	n, err := x.resp.Body.Read(p)
	x.timer.Stop()
	x.ended = err == io.EOF // then net/http keeps the connection by itself
	return n, err
}

// drain reads, if the answer is complete, up to 4 KiB that are left, [DONE] and the end of the chunked
// encoding, so that the connection can be used again. Where more comes a new connection is cheaper.
func (x *exchange) drain(l *lines) {
	if x.whole && !x.ended {
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

// explain makes the error to return of what went wrong in an exchange. If the caller's context has
// ended that is the cause, whatever it broke; it is not a failure of the model, so that a retry
// does not follow.
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

// holdsImage reports whether there is an image in messages or in the results in them.
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
