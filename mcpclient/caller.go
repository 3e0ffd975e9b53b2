package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/tool/host"
)

// ElicitCaller, as Options.Elicitation, passes a question on to the caller of the tool: the [host.Host] in the
// call's context, such as an agent. For a call without a host it cancels the question. A question that belongs to no
// call, or could belong to calls of several hosts, is refused; see the package's documentation.
func ElicitCaller(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	h := host.From(ctx)
	if h == nil {
		return host.Answer{Action: host.ActionCancel}, nil
	}
	return h.Elicit(ctx, q)
}

// SampleCaller, as Options.Sampling, passes a sampling request on to the model of the caller, as [ElicitCaller]
// does for questions.
func SampleCaller(ctx context.Context, r host.SampleRequest) (host.Sample, error) {
	h := host.From(ctx)
	if h == nil {
		return host.Sample{}, fmt.Errorf("%w: no host with a model runs the call", host.ErrRefused)
	}
	return h.Sample(ctx, r)
}

// maxRequestsPerCall is how many questions and sampling requests a server may send within one call.
const maxRequestsPerCall = 20

// abandonedFor is how long an abandoned call counts as being in flight: the server may still ask a question for the call
// until the cancellation arrives.
const abandonedFor = time.Minute

// An inflightCall is a call in flight. The server's requests within the call are passed on to its host.
type inflightCall struct {
	ctx            context.Context // of the call; the contexts of its questions derive from this one
	host           host.Host       // nil for none
	progress       *progressTracker
	serverRequests *atomic.Int64 // see job
}

type inflightCallKey struct{}

// An abandonedCall is a call whose caller no longer waits.
type abandonedCall struct {
	host  host.Host
	until time.Time
}

// A callList is the calls in flight of a connection.
type callList struct {
	mu        sync.Mutex
	calls     []*inflightCall // oldest first
	abandoned []abandonedCall
}

// add adds a call until remove is called. Without an answer, the call is abandoned.
func (c *callList) add(call *inflightCall) (remove func(answered bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call)
	return func(answered bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = slices.DeleteFunc(c.calls, func(o *inflightCall) bool { return o == call })
		if !answered {
			c.abandoned = append(c.currentAbandoned(), abandonedCall{call.host, time.Now().Add(abandonedFor)})
		}
	}
}

// currentAbandoned drops the expired abandoned calls and returns the others. c.mu is held.
func (c *callList) currentAbandoned() []abandonedCall {
	now := time.Now()
	c.abandoned = slices.DeleteFunc(c.abandoned, func(a abandonedCall) bool { return now.After(a.until) })
	return c.abandoned
}

// candidates returns the calls that a request of the server may belong to, which have the same host: one call in the
// revisions without sessions and on the stream of an HTTP response, otherwise every call in flight.
func (c *callList) candidates(ctx context.Context) ([]*inflightCall, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call, ok := ctx.Value(inflightCallKey{}).(*inflightCall); ok {
		if !slices.Contains(c.calls, call) {
			return nil, errors.New("the call of this request has ended")
		}
		return []*inflightCall{call}, nil
	}
	if len(c.calls) == 0 {
		return nil, errors.New("no call is in progress")
	}
	first := c.calls[0].host
	if slices.ContainsFunc(c.calls, func(o *inflightCall) bool { return !equalHosts(first, o.host) }) ||
		slices.ContainsFunc(c.currentAbandoned(), func(o abandonedCall) bool { return !equalHosts(first, o.host) }) {
		return nil, errors.New("calls of several hosts are in progress, and the request does not name its call; " +
			"give each user a separate client, or use a server that speaks 2026-07-28")
	}
	return slices.Clone(c.calls), nil
}

// equalHosts reports whether two hosts are the same; false if they cannot be compared.
func equalHosts(a, b host.Host) bool {
	comparable := func(h host.Host) bool { return h == nil || reflect.ValueOf(h).Comparable() }
	return comparable(a) && comparable(b) && a == b
}

// answerRequest answers a request of the server. A question gets the context of its call, whose idle timer is
// stopped meanwhile.
func (c *conn) answerRequest(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method != "elicitation/create" && method != "sampling/createMessage" {
		return c.hub.handle(ctx, method, params)
	}
	calls, err := c.calls.candidates(ctx)
	if err != nil { // Options.Elicitation and Options.Sampling may still answer without a host
		return c.hub.handle(host.With(ctx, noHost{err}), method, params)
	}
	for _, call := range calls {
		if call.serverRequests.Add(1) > maxRequestsPerCall {
			return nil, fmt.Errorf("%s: more than %d requests within one call", method, maxRequestsPerCall)
		}
		defer call.progress.pauseIdleTimer()()
	}
	ctx, cancel := callContext(ctx, calls)
	defer cancel()
	return c.hub.handle(ctx, method, params)
}

// handleURLRequired handles a URLElicitationRequiredError: it asks the user to visit the pages that the server demands
// before the call, and returns the error with the user's answer added for the model. It returns any other error
// unchanged. The call is not repeated, because the client cannot know when the user is done.
func (c *conn) handleURLRequired(ctx context.Context, err error) error {
	ce, ok := errors.AsType[*CallError](err)
	if !ok || ce.Code != codeURLRequired || c.cfg.Elicitation == nil || c.kind == wireSSE { // see hub.capabilities
		return err
	}
	var data struct {
		Pages []json.RawMessage `json:"elicitations"`
	}
	_ = strictjson.Unmarshal(ce.Data, &data) // without pages the error is returned unchanged
	explained := *ce
	for _, page := range data.Pages {
		answer, err := c.answerRequest(ctx, "elicitation/create", page)
		if err != nil {
			explained.Message += fmt.Sprintf(" [The user could not be asked: %v.]", err)
			return &explained
		}
		if result, ok := answer.(*elicitResult); !ok || result.Action != host.ActionAccept {
			explained.Message += " [The user was shown the page and did not agree to visit it.]"
			return &explained
		}
	}
	if len(data.Pages) > 0 {
		explained.Message += " [The user was shown the page and agreed to visit it. Call again when they say that they are done.]"
	}
	return &explained
}

// callContext returns a context that ends with ctx, or when all calls have ended. It has the values of a single call;
// for several calls, which have the same host, it has only the host.
func callContext(ctx context.Context, calls []*inflightCall) (context.Context, context.CancelFunc) {
	base := host.With(context.WithoutCancel(ctx), calls[0].host)
	if len(calls) == 1 {
		base = context.WithoutCancel(calls[0].ctx)
	}
	out, cancel := context.WithCancelCause(base)
	var running atomic.Int64
	running.Store(int64(len(calls)))
	stops := []func() bool{context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })}
	for _, call := range calls {
		stops = append(stops, context.AfterFunc(call.ctx, func() {
			if running.Add(-1) == 0 {
				cancel(context.Cause(call.ctx))
			}
		}))
	}
	return out, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
	}
}

// noHost is the host for a question that belongs to no known call. It refuses with the reason.
type noHost struct{ reason error }

func (n noHost) Elicit(context.Context, host.Elicitation) (host.Answer, error) {
	return host.Answer{}, n.reason
}

func (n noHost) Sample(context.Context, host.SampleRequest) (host.Sample, error) {
	return host.Sample{}, n.reason
}
