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
// call's context, such as an agent. A question that belongs to no call, or could belong to calls of several
// hosts, is refused; see the package's documentation.
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

// maxRequestsPerCall is how often a server may ask within one call.
const maxRequestsPerCall = 20

// abandonedFor is how long an abandoned call counts as being in flight: until the server knows, it may still ask a
// question for the call.
const abandonedFor = time.Minute

// An inflight is a call in flight. It connects a request of the server with the host that makes the call.
type inflight struct {
	ctx      context.Context // of the call; the contexts of its questions derive from it
	host     host.Host       // the host that makes the call; nil for none
	progress *progressTracker
	requests *atomic.Int64 // of the server within the call
}

type inflightKey struct{}

// An abandonedCall is a call whose caller no longer waits.
type abandonedCall struct {
	host  host.Host
	until time.Time
}

// A callList is the calls in flight of a connection.
type callList struct {
	mu        sync.Mutex
	calls     []*inflight // oldest first
	abandoned []abandonedCall
}

// add adds a call to those in flight. leave removes it; answered is false for an abandoned call.
func (c *callList) add(f *inflight) (leave func(answered bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, f)
	return func(answered bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = slices.DeleteFunc(c.calls, func(o *inflight) bool { return o == f })
		if !answered {
			c.abandoned = append(c.expireAbandoned(), abandonedCall{f.host, time.Now().Add(abandonedFor)})
		}
	}
}

// expireAbandoned drops old abandoned calls and returns the others. c.mu is held.
func (c *callList) expireAbandoned() []abandonedCall {
	now := time.Now()
	c.abandoned = slices.DeleteFunc(c.abandoned, func(l abandonedCall) bool { return now.After(l.until) })
	return c.abandoned
}

// candidates returns the calls that a request of the server may belong to. All are of one host. In the revisions
// without sessions, and on the stream of an HTTP response, that is one call; otherwise it is every call in
// flight.
func (c *callList) candidates(ctx context.Context) ([]*inflight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := ctx.Value(inflightKey{}).(*inflight); ok {
		if !slices.Contains(c.calls, f) {
			return nil, errors.New("the call of this request has ended")
		}
		return []*inflight{f}, nil
	}
	if len(c.calls) == 0 {
		return nil, errors.New("no call is in progress")
	}
	first := c.calls[0].host
	oneHost := !slices.ContainsFunc(c.calls, func(f *inflight) bool { return !equalHosts(first, f.host) }) &&
		!slices.ContainsFunc(c.expireAbandoned(), func(l abandonedCall) bool { return !equalHosts(first, l.host) })
	if !oneHost {
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

// answerRequest answers a request of the server. A question gets the context of its call, whose clock is
// stopped meanwhile.
func (c *conn) answerRequest(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method != "elicitation/create" && method != "sampling/createMessage" {
		return c.hub.handle(ctx, method, params)
	}
	calls, err := c.calls.candidates(ctx)
	if err != nil {
		return c.hub.handle(host.With(ctx, noHost{err}), method, params)
	}
	for _, f := range calls {
		if f.requests.Add(1) > maxRequestsPerCall {
			return nil, fmt.Errorf("%s: more than %d requests within one call", method, maxRequestsPerCall)
		}
		release := f.progress.pauseClock()
		defer release()
	}
	ctx, cancel := callContext(ctx, calls)
	defer cancel()
	return c.hub.handle(ctx, method, params)
}

// askToVisit asks the user to visit the pages that a server demands before a call
// (URLElicitationRequiredError), and adds the outcome to err for the model. The call is not repeated: the
// client cannot know when the user is done.
func (c *conn) askToVisit(ctx context.Context, err error) error {
	ce, ok := errors.AsType[*CallError](err)
	if !ok || ce.Code != codeURLRequired || c.cfg.Elicitation == nil || c.kind == wireSSE {
		return err
	}
	var data struct {
		Pages []json.RawMessage `json:"elicitations"`
	}
	_ = strictjson.Unmarshal(ce.Data, &data) // without pages the error is returned unchanged
	asked := *ce
	for _, page := range data.Pages {
		answer, err := c.answerRequest(ctx, "elicitation/create", page)
		if err != nil {
			asked.Message += fmt.Sprintf(" [The user could not be asked: %v.]", err)
			return &asked
		}
		if e, ok := answer.(*elicited); !ok || e.Action != host.ActionAccept {
			asked.Message += " [The user was shown the page and did not agree to visit it.]"
			return &asked
		}
	}
	if len(data.Pages) > 0 {
		asked.Message += " [The user was shown the page and agreed to visit it. Call again when they say that they are done.]"
	}
	return &asked
}

// callContext returns a context that ends with ctx, or with the last of the calls. It has the values of the call if
// there is only one, and otherwise only the host of the calls.
func callContext(ctx context.Context, calls []*inflight) (context.Context, context.CancelFunc) {
	base := host.With(context.WithoutCancel(ctx), calls[0].host)
	if len(calls) == 1 {
		base = context.WithoutCancel(calls[0].ctx)
	}
	out, cancel := context.WithCancelCause(base)
	var running atomic.Int64
	running.Store(int64(len(calls)))
	stops := []func() bool{context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })}
	for _, f := range calls {
		stops = append(stops, context.AfterFunc(f.ctx, func() {
			if running.Add(-1) == 0 {
				cancel(context.Cause(f.ctx))
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

// noHost refuses a question that belongs to no call.
type noHost struct{ why error }

func (n noHost) Elicit(context.Context, host.Elicitation) (host.Answer, error) {
	return host.Answer{}, n.why
}

func (n noHost) Sample(context.Context, host.SampleRequest) (host.Sample, error) {
	return host.Sample{}, n.why
}
