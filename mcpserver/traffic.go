package mcpserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// traffic is a client's requests in flight, and the changes to notify it of, which wait for the requests.
type traffic struct {
	limit  int          // of requests in flight
	total  *wire.Budget // of requests in flight, of all clients of the credential
	shared bool         // different clients may use the same ids

	ended chan struct{} // buffers one signal that a request has ended
	wake  chan struct{} // buffers one signal that pending must be sent without a request

	mu      sync.Mutex
	calls   map[string]call // requests in flight, by id
	served  uint64          // number of requests so far
	used    time.Time
	streams int     // open streams that belong to no request
	pending changes // notifications to send
	stopped bool    // no more requests are accepted, and those in flight are cancelled by the server
}

func newTraffic(limit int, total *wire.Budget, shared bool) traffic {
	return traffic{limit: limit, total: total, shared: shared, used: time.Now(), calls: map[string]call{},
		ended: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// A call is a request in flight.
type call struct {
	cancel context.CancelFunc
	out    wire.Responder
	began  uint64 // traffic.served when the request began
}

// maxBeginWait is how long a request waits until others end before it is rejected. It lets a burst of short
// requests succeed.
const maxBeginWait = 100 * time.Millisecond

// errFull is the error of a request beyond the limit.
var errFull = rpc.Errorf(mcp.INVALID_REQUEST, "too many requests in flight; wait until one has ended")

// errNoPart is the error of a request beyond the limit on a replica that may have no request in flight.
var errNoPart = rpc.Errorf(mcp.INTERNAL_ERROR, "too many requests in flight on the other replicas, or their store cannot be reached; try again later")

// errStopping is the error of a request that did not begin because the server or the session has ended on this
// replica. errStopped is the error of a request that was cancelled for that reason.
var (
	errStopping = rpc.Errorf(mcp.INTERNAL_ERROR, "the server is stopping and has not handled the request; repeat it")
	errStopped  = rpc.Errorf(mcp.INTERNAL_ERROR, "the server has stopped during the request; the request may have had effects, so repeat it only if it may run twice")
)

// begin registers a request, so that it counts towards the limits and can be cancelled. The end of until also
// cancels it. begin returns the key for finish.
func (t *traffic) begin(ctx, until context.Context, id string, out wire.Responder) (context.Context, string, *rpc.Error) {
	callCtx, key, err := t.tryBegin(ctx, until, id, out)
	if err == errFull && t.total.More != nil {
		t.total.More(ctx)
		if callCtx, key, err = t.tryBegin(ctx, until, id, out); err == errFull && t.total.Max.Load() == 0 {
			return nil, "", errNoPart
		}
	}
	if err != errFull {
		return callCtx, key, err
	}
	timeout := time.NewTimer(maxBeginWait)
	defer timeout.Stop()
	for {
		select {
		case <-t.ended:
			if callCtx, key, err = t.tryBegin(ctx, until, id, out); err != errFull {
				return callCtx, key, err
			}
		case <-timeout.C: // another request may have received the signal
			return t.tryBegin(ctx, until, id, out)
		case <-ctx.Done():
			return nil, "", err
		}
	}
}

// tryBegin is begin without waiting.
func (t *traffic) tryBegin(ctx, until context.Context, id string, out wire.Responder) (context.Context, string, *rpc.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return nil, "", errStopping
	}
	t.used = time.Now()
	if t.served++; t.shared { // ids are not unique, and clients cannot cancel by id
		id = fmt.Sprint("request ", t.served)
	}
	if _, duplicate := t.calls[id]; duplicate {
		return nil, "", rpc.Errorf(mcp.INVALID_REQUEST, "the id %s is in use by a request in flight; use another id", id)
	}
	if len(t.calls) >= t.limit || !t.total.Take(1) {
		return nil, "", errFull
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(until, cancel)
	t.calls[id] = call{func() { stop(); cancel() }, out, t.served}
	return ctx, id, nil
}

// finish removes a request that begin has registered.
func (t *traffic) finish(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[id].cancel()
	delete(t.calls, id)
	t.total.Add(-1)
	select {
	case t.ended <- struct{}{}:
	default:
	}
	t.used = time.Now()
	if t.pending != 0 && len(t.calls) == 0 {
		t.wakeUp()
	}
}

// cancelCall ends a request.
func (t *traffic) cancelCall(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.calls[id]; ok {
		at.cancel()
	}
}

// stop cancels the requests in flight, and lets no further ones begin.
func (t *traffic) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	for _, at := range t.calls {
		at.cancel()
	}
}

// stopIdle lets no further requests begin, if none is in flight; otherwise it returns false.
func (t *traffic) stopIdle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = t.stopped || len(t.calls) == 0
	return len(t.calls) == 0
}

// isStopped reports whether requests are cancelled by the server.
func (t *traffic) isStopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped
}

// inFlight returns the number of requests in flight.
func (t *traffic) inFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls)
}

// streaming reports whether a stream that belongs to no request is open.
func (t *traffic) streaming() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.streams > 0
}

// latest returns the responder of the latest request in flight, or nil.
func (t *traffic) latest() wire.Responder {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last call
	for _, at := range t.calls {
		if at.began > last.began {
			last = at
		}
	}
	return last.out
}

// touch records activity of the client; see Limits.Idle.
func (t *traffic) touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = time.Now()
}

// idle reports whether the client has had neither requests nor streams for that long.
func (t *traffic) idle(limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls) == 0 && t.streams == 0 && time.Since(t.used) > limit
}

// addStream counts a stream that belongs to no request. It returns false if the client has such a stream already, unless
// the new stream replaces that stream: then both count for a short time.
func (t *traffic) addStream(replaces bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams > 0 && !replaces {
		return false
	}
	t.streams++
	return true
}

func (t *traffic) removeStream() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.streams--
	t.used = time.Now()
}

// notify records changes to notify the client of. While a call is in flight the notifications are sent on the
// call's stream before its result, unless now is set.
func (t *traffic) notify(m changes, now bool) {
	if m == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending |= m
	if now || len(t.calls) == 0 {
		t.wakeUp()
	}
}

// wakeUp requests that pending messages are sent.
func (t *traffic) wakeUp() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// takePending returns the pending changes and clears them.
func (t *traffic) takePending() changes {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.pending
	t.pending = 0
	return m
}
