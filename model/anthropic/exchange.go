package anthropic

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
)

const (
	messagesPath = "v1/messages"

	// endTime is how long the end of the stream may come after the end of the answer.
	endTime = 5 * time.Second
	// maxWhole bounds an answer that is not a stream.
	maxWhole = 64 << 20
	// maxPauses is how often an answer is continued after the server paused it.
	maxPauses = 16
)

// newClient returns the SDK's client without what it would read from the environment.
func newClient(cfg *Config) sdk.Client {
	opts := []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithMiddleware(refused), // first, so that it sees what other middleware makes of an answer
		option.WithBaseURL(cfg.BaseURL),
		option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(),                    // package agentotel traces the calls of all models
		option.WithHeader("Accept-Encoding", "identity"), // a proxy that compresses a stream holds it back
	}
	if cfg.Key != "" {
		opts = append(opts, option.WithAPIKey(cfg.Key))
	}
	if c, ok := cfg.HTTPClient.(*http.Client); cfg.HTTPClient == nil || ok && c == nil {
		opts = append(opts, option.WithHTTPClient(sharedClient()))
	} else {
		opts = append(opts, option.WithHTTPClient(cfg.HTTPClient))
	}
	for name, values := range cfg.Header { // their order does not matter
		opts = append(opts, option.WithHeaderDel(name))
		for _, v := range values {
			opts = append(opts, option.WithHeaderAdd(name, v))
		}
	}
	return sdk.NewClient(append(opts, cfg.Options...)...)
}

// sharedClient is one for all models, so that models of the same server share its connections.
var sharedClient = sync.OnceValue(func() *http.Client {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok { // the program has put its own in place, for tracing perhaps
		return http.DefaultClient
	}
	t = t.Clone()
	t.MaxIdleConns = 0          // no limit on all
	t.MaxIdleConnsPerHost = 256 // the default is 2, and agents run side by side
	return &http.Client{Transport: t}
})

// refused is middleware that makes a [*model.Error] of an answer whose status is not a success.
func refused(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(req)
	if err == nil && (resp.StatusCode < 200 || resp.StatusCode >= 300) {
		return nil, httperror.Of(resp)
	}
	return resp, err
}

// An exchange is one request and its answer. It belongs to the goroutine that made it; only the
// timer's function runs in another one. Contexts are fields of it, as it lasts for one call.
type exchange struct {
	parent context.Context // the caller's
	ctx    context.Context // ours: ends with the parent's, and when the server is silent
	cancel context.CancelCauseFunc
	cfg    *Config
	body   io.ReadCloser
	timer  *time.Timer // ends ctx unless it is stopped: the server is silent
	begun  atomic.Bool // the header of the answer has come
	ending bool        // the answer said that it is finished; little may follow
}

// ask sends a request and reads its answer.
func (m *Model) ask(ctx context.Context, b *body, a *answer) error {
	x := &exchange{parent: ctx, cfg: &m.cfg}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	x.timer = time.AfterFunc(m.cfg.HeaderTimeout, x.silent)
	defer x.close()
	err := x.exchange(m, b, a)
	if err == nil || errors.Is(err, errStopped) {
		return err
	}
	return x.explain(err, a.conversation)
}

func (x *exchange) exchange(m *Model, b *body, a *answer) error {
	var resp *http.Response
	var opts []option.RequestOption
	for _, beta := range b.betas {
		opts = append(opts, option.WithHeaderAdd("anthropic-beta", beta))
	}
	err := m.client.Post(x.ctx, messagesPath, b.json(), &resp, opts...)
	x.begun.Store(true)
	if err != nil {
		return err
	}
	x.body = resp.Body
	r := bufio.NewReader(x)
	first, err := firstByte(r)
	switch {
	case err == io.EOF:
		return httperror.BadAnswer("the server's answer is empty", nil)
	case err != nil:
		return err
	case first == '{' || first == '[':
		data, err := wholeBody(r)
		if err != nil {
			return err
		}
		return a.whole(data)
	case first == '<':
		data, err := wholeBody(r)
		if err != nil {
			return err
		}
		return httperror.BadAnswer("the server's answer is a web page, not JSON; the base URL may lack a part of its path", data)
	}
	resp.Body = &readCloser{r, resp.Body}
	return x.stream(ssestream.NewDecoder(resp), a)
}

// stream reads events until the end of the answer.
func (x *exchange) stream(events ssestream.Decoder, a *answer) error {
	for events.Next() {
		if err := a.data(events.Event().Data); err != nil {
			return err
		}
		if a.done {
			break
		}
		x.ending = a.reason != "" // what may still come is message_stop
	}
	err := events.Err()
	switch {
	case a.done, a.reason != "": // nothing is lost if only message_stop is missing
		return a.finish()
	case err == nil:
		return &model.Error{Kind: model.KindConnection, Message: "the stream ended before the answer was finished", Err: io.ErrUnexpectedEOF}
	case errors.Is(err, bufio.ErrTooLong):
		return httperror.BadAnswer("a line of the answer is too long", nil)
	}
	return err
}

type readCloser struct {
	io.Reader
	io.Closer
}

// wholeBody returns an answer that is not a stream.
func wholeBody(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxWhole+1))
	if err == nil && len(data) > maxWhole {
		err = fmt.Errorf("the answer is longer than %d bytes", maxWhole)
	}
	return data, err
}

// firstByte returns the first byte that is not a space or part of a byte order mark, and leaves it
// to be read.
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

// silent ends the exchange with a server that is silent. The reason becomes the context's cause,
// where explain finds it.
func (x *exchange) silent() {
	if !x.begun.Load() {
		x.cancel(fmt.Errorf("no answer began within %v", x.cfg.HeaderTimeout))
	} else {
		x.cancel(fmt.Errorf("the server was silent for %v", x.cfg.IdleTimeout))
	}
}

// Read reads from the answer's body. Each read may take as long as the server may be silent; the
// time between two is the consumer's.
func (x *exchange) Read(p []byte) (int, error) {
	limit := x.cfg.IdleTimeout
	if x.ending {
		limit = min(limit, endTime)
	}
	x.timer.Reset(limit)
	n, err := x.body.Read(p)
	x.timer.Stop()
	return n, err
}

func (x *exchange) close() {
	x.timer.Stop()
	if x.body != nil {
		_ = x.body.Close()
	}
	x.cancel(nil)
}

// explain makes the error to return of what went wrong in an exchange. If the caller's context has
// ended that is the cause, whatever it broke; it is not a failure of the model, so that a retry
// does not follow.
func (x *exchange) explain(err error, conversation []*message.Message) error {
	if ended := x.parent.Err(); ended != nil {
		return fmt.Errorf("model call: %w", ended)
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		if e.Kind == model.KindBadImage && !holdsImage(conversation) {
			e.Kind = model.KindInvalidRequest
		}
		return e
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
