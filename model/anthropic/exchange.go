package anthropic

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/httperror"
	"github.com/kitbag-go/kitbag/model/internal/provider"
)

const (
	messagesPath = "v1/messages"

	// endTime limits the wait for the end of the stream after the end of the answer.
	endTime = 5 * time.Second
	// maxPauses is how many times a paused answer is continued.
	maxPauses = 16
)

// newClient returns the SDK's client without its settings from the environment.
func newClient(cfg *Config) sdk.Client {
	opts := []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithMiddleware(failOnStatus), // first: it sees the response after all other middleware
		option.WithBaseURL(cfg.BaseURL),
		option.WithMaxRetries(0),
		option.WithoutOpenTelemetry(),                    // package agentotel traces the calls of all models
		option.WithHeader("Accept-Encoding", "identity"), // a proxy that compresses a stream holds it back
	}
	if cfg.Key != "" {
		opts = append(opts, option.WithAPIKey(cfg.Key))
	}
	if c, ok := cfg.HTTPClient.(*http.Client); cfg.HTTPClient == nil || ok && c == nil {
		opts = append(opts, option.WithHTTPClient(provider.Client()))
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

// failOnStatus is middleware that converts a response with an error status into a [*model.Error].
func failOnStatus(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	resp, err := next(req)
	if err == nil && (resp.StatusCode < 200 || resp.StatusCode >= 300) {
		return nil, httperror.Of(resp)
	}
	return resp, err
}

// An exchange is one request and its answer.
type exchange struct{ provider.Exchange }

// ask sends a request and reads its answer.
func (m *Model) ask(ctx context.Context, b *body, a *answer) error {
	x := new(exchange)
	x.Start(ctx, provider.Limits{Header: m.cfg.HeaderTimeout, Idle: m.cfg.IdleTimeout})
	defer x.Close()
	err := x.exchange(m, b, a)
	if err == nil || errors.Is(err, errStopped) {
		return err
	}
	return x.Explain(err, a.conversation)
}

func (x *exchange) exchange(m *Model, b *body, a *answer) error {
	var resp *http.Response
	var opts []option.RequestOption
	for _, beta := range b.betas {
		opts = append(opts, option.WithHeaderAdd("anthropic-beta", beta))
	}
	err := m.client.Post(x.Ctx, messagesPath, b.json(), &resp, opts...)
	if err != nil {
		return err
	}
	x.Begun(resp)
	r := bufio.NewReader(x)
	switch whole, err := provider.ReadUnstreamed(r); {
	case err != nil:
		return err
	case whole != nil:
		return a.unstreamed(whole)
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
		if a.reason != "" {
			x.EndIdle = endTime // only message_stop may still follow
		}
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
