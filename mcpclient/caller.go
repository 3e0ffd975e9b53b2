package mcpclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/tool/host"
)

// ElicitCaller, as [Options].Elicitation, has whoever runs the call in progress ask their
// person: the [host.Host] in the context of the call, such as an agent. A question
// that comes without a call, or that could belong to calls of several hosts, is
// refused: until 2025-11-25 a server does not say which call it asks for.
func ElicitCaller(ctx context.Context, q host.Elicitation) (host.Answer, error) {
	h := host.From(ctx)
	if h == nil {
		return host.Answer{Action: host.Cancel}, nil
	}
	return h.Elicit(ctx, q)
}

// SampleCaller, as [Options].Sampling, has the model of whoever runs the call in
// progress answer, as [ElicitCaller] does for questions.
func SampleCaller(ctx context.Context, r host.SampleRequest) (host.Sample, error) {
	h := host.From(ctx)
	if h == nil {
		return host.Sample{}, fmt.Errorf("%w: the call is run by nobody that has a model", host.ErrRefused)
	}
	return h.Sample(ctx, r)
}

// maxAsked is how often a server may ask within one call.
const maxAsked = 20

// lingers is how long a call that was given up counts as being in flight: the
// server may not have heard of that, and ask on.
const lingers = time.Minute

// An inflight is a call in flight, so that what the server asks meanwhile finds
// whoever runs it.
type inflight struct {
	ctx   context.Context // of the call: the questions about it live as long, and see the same values
	host  host.Host       // who runs it; nil for nobody
	watch *watcher
	asked atomic.Int64
}

type inflightKey struct{}

// A leftover is who ran a call that was given up, until it can be forgotten.
type leftover struct {
	host  host.Host
	until time.Time
}

// enter adds a call to those in flight. leave takes it out; the call may be
// answered or given up.
func (c *conn) enter(f *inflight) (leave func(answered bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, f)
	return func(answered bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls = slices.DeleteFunc(c.calls, func(o *inflight) bool { return o == f })
		if !answered {
			c.left = append(c.expireLeft(), leftover{f.host, time.Now().Add(lingers)})
		}
	}
}

// expireLeft returns what is left of calls that were given up. c.mu is held.
func (c *conn) expireLeft() []leftover {
	now := time.Now()
	c.left = slices.DeleteFunc(c.left, func(l leftover) bool { return now.After(l.until) })
	return c.left
}

// callers returns the calls that a request of the server may belong to, all of one
// host. In the stateless revisions, and on the stream of an HTTP response, it is
// certain which one; else all that are in flight are meant.
func (c *conn) callers(ctx context.Context) ([]*inflight, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f, ok := ctx.Value(inflightKey{}).(*inflight); ok {
		if !slices.Contains(c.calls, f) {
			return nil, errors.New("the call that it belongs to has ended")
		}
		return []*inflight{f}, nil
	}
	if len(c.calls) == 0 {
		return nil, errors.New("no call is in progress that it could belong to")
	}
	first := c.calls[0].host
	one := !slices.ContainsFunc(c.calls, func(f *inflight) bool { return !same(first, f.host) }) &&
		!slices.ContainsFunc(c.expireLeft(), func(l leftover) bool { return !same(first, l.host) })
	if !one {
		return nil, errors.New("calls of several hosts are in progress, and it does not say which of them it belongs to; " +
			"give each user a client of their own, or use a server that speaks 2026-07-28")
	}
	return slices.Clone(c.calls), nil
}

// same reports whether two hosts are certainly the same.
func same(a, b host.Host) bool {
	comparable := func(h host.Host) bool { return h == nil || reflect.ValueOf(h).Comparable() }
	return comparable(a) && comparable(b) && a == b
}

// ask answers a request of the server. Questions are put in the context of the
// call that they belong to, whose time stands still meanwhile.
func (c *conn) ask(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method != "elicitation/create" && method != "sampling/createMessage" {
		return c.hub.answer(ctx, method, params)
	}
	calls, err := c.callers(ctx)
	if err != nil {
		return c.hub.answer(host.With(ctx, nobody{err}), method, params)
	}
	for _, f := range calls {
		if f.asked.Add(1) > maxAsked {
			return nil, fmt.Errorf("%s: the server has asked %d times within one call; giving up", method, maxAsked)
		}
		release := f.watch.hold()
		defer release()
	}
	ctx, cancel := during(ctx, calls)
	defer cancel()
	return c.hub.answer(ctx, method, params)
}

// showPages has the person shown the pages that a server wants visited before it
// does the call (URLElicitationRequiredError). It returns err, which says to the
// model what came of that; the call is not made again, since nobody knows when the
// person is done.
func (c *conn) showPages(ctx context.Context, err error) error {
	ce, ok := errors.AsType[*CallError](err)
	if !ok || ce.Code != codeURLRequired || c.cfg.Elicitation == nil || c.kind == wireSSE {
		return err
	}
	var data struct {
		Pages []json.RawMessage `json:"elicitations"`
	}
	_ = strictjson.Unmarshal(ce.Data, &data) // without any the error stays as it is
	told := *ce
	for _, page := range data.Pages {
		answer, err := c.ask(ctx, "elicitation/create", page)
		if err != nil {
			told.Message += fmt.Sprintf(" [The person could not be asked: %v.]", err)
			return &told
		}
		if e, ok := answer.(*elicited); !ok || e.Action != host.Accept {
			told.Message += " [The person was shown the page and did not agree to visit it.]"
			return &told
		}
	}
	if len(data.Pages) > 0 {
		told.Message += " [The person was shown the page and agreed to visit it. Call again when they say that they are done.]"
	}
	return &told
}

// during returns a context that ends with ctx or when the last of the calls does.
// With a single call it has that one's values, else only its host.
func during(ctx context.Context, calls []*inflight) (context.Context, context.CancelFunc) {
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

// nobody is the host of a question that no call can be found for.
type nobody struct{ why error }

func (n nobody) Elicit(context.Context, host.Elicitation) (host.Answer, error) {
	return host.Answer{}, n.why
}

func (n nobody) Sample(context.Context, host.SampleRequest) (host.Sample, error) {
	return host.Sample{}, n.why
}
