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

// traffic has a client's requests in flight, and the changes that the client must be notified of. The notifications are sent on
// the stream of a request, before the result, or without a request.
type traffic struct {
	limit  int          // of requests in flight
	total  *wire.Budget // of requests in flight of all clients of the account
	shared bool         // the client stands for several clients, which may use the same ids

	ended chan struct{} // buffers one signal that a request has ended
	wake  chan struct{} // buffers one signal that pending must be sent without a request

	mu       sync.Mutex
	active   map[string]activeRequest // requests in flight; the key is the id, unless the client is shared
	expected map[string]func()        // cancels requests that were read and may not have begun yet, by id; see expect
	received uint64                   // number of requests so far
	lastUsed time.Time                // when the client last had a request or a stream; see idle
	streams  int                      // open streams that belong to no request
	pending  changes                  // changes of which the client was not notified yet
	stopped  bool                     // no more requests begin; stop has cancelled the requests in flight
}

func newTraffic(limit int, total *wire.Budget, shared bool) traffic {
	return traffic{limit: limit, total: total, shared: shared, lastUsed: time.Now(), active: map[string]activeRequest{}, expected: map[string]func(){},
		ended: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
}

// An activeRequest is what traffic needs of a request in flight.
type activeRequest struct {
	cancel context.CancelFunc
	out    wire.Responder
	number uint64 // traffic.received when the request began
}

// maxBeginWait is how long a request beyond the limit waits for other requests to end, before it is rejected. It lets a burst
// of short requests succeed.
const maxBeginWait = 100 * time.Millisecond

// errFull is the error of a request beyond the limit.
var errFull = rpc.Errorf(mcp.INVALID_REQUEST, "too many requests in flight; wait until one has ended")

// errNoQuota is the error of a request on a replica whose part of the limit is 0.
var errNoQuota = rpc.Errorf(mcp.INTERNAL_ERROR, "too many requests in flight on the other replicas, or their store cannot be reached; try again later")

// errStopping is the error of a request that did not begin because the server or the session has ended on this
// replica. errStopped is the error of a request that was cancelled for that reason.
var (
	errStopping = rpc.Errorf(mcp.INTERNAL_ERROR, "the server is stopping and has not handled the request; repeat it")
	errStopped  = rpc.Errorf(mcp.INTERNAL_ERROR, "the server has stopped during the request; the request may have had effects, so repeat it only if it may run twice")
)

// expect returns a context for a request that was read and will begin on another goroutine, so that cancelRequest reaches it
// in the meantime. done must be called when the request has ended.
func (t *traffic) expect(ctx context.Context, id string) (requestCtx context.Context, done func()) {
	requestCtx, cancel := context.WithCancel(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, duplicate := t.expected[id]; duplicate { // begin will reject the request
		return requestCtx, cancel
	}
	t.expected[id] = cancel
	return requestCtx, func() {
		cancel()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.expected, id)
	}
}

// begin registers a request, so that the request counts towards the limits and can be cancelled. requestCtx ends when ctx or
// until ends, or when the request is cancelled. key is for finish. If the limits are reached begin waits for maxBeginWait.
func (t *traffic) begin(ctx, until context.Context, id string, out wire.Responder) (requestCtx context.Context, key string, err *rpc.Error) {
	requestCtx, key, err = t.tryBegin(ctx, until, id, out)
	if err == errFull && t.total.More != nil { // another replica may have a part of the limit that it does not use
		t.total.More(ctx)
		if requestCtx, key, err = t.tryBegin(ctx, until, id, out); err == errFull && t.total.Max.Load() == 0 {
			return nil, "", errNoQuota
		}
	}
	if err != errFull {
		return requestCtx, key, err
	}
	timeout := time.NewTimer(maxBeginWait)
	defer timeout.Stop()
	for {
		select {
		case <-t.ended:
			if requestCtx, key, err = t.tryBegin(ctx, until, id, out); err != errFull {
				return requestCtx, key, err
			}
		case <-timeout.C: // another request may have received the signal
			return t.tryBegin(ctx, until, id, out)
		case <-ctx.Done():
			return nil, "", err
		}
	}
}

// tryBegin is begin without waiting.
func (t *traffic) tryBegin(ctx, until context.Context, id string, out wire.Responder) (requestCtx context.Context, key string, err *rpc.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return nil, "", errStopping
	}
	t.lastUsed = time.Now()
	key = id
	if t.received++; t.shared { // ids are not unique, and clients cannot cancel by id
		key = fmt.Sprint("request ", t.received)
	}
	if _, duplicate := t.active[key]; duplicate {
		return nil, "", rpc.Errorf(mcp.INVALID_REQUEST, "the id %s is in use by a request in flight; use another id", id)
	}
	if len(t.active) >= t.limit || !t.total.Take(1) {
		return nil, "", errFull
	}
	requestCtx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(until, cancel)
	t.active[key] = activeRequest{func() { stop(); cancel() }, out, t.received}
	return requestCtx, key, nil
}

// finish removes a request that begin has registered.
func (t *traffic) finish(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active[key].cancel()
	delete(t.active, key)
	t.total.Add(-1)
	select {
	case t.ended <- struct{}{}:
	default:
	}
	t.lastUsed = time.Now()
	if t.pending != 0 && len(t.active) == 0 {
		t.wakeUp()
	}
}

// cancelRequest cancels the request in flight with the id, if there is one.
func (t *traffic) cancelRequest(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.active[id]; ok {
		r.cancel()
	}
	if cancel, ok := t.expected[id]; ok {
		cancel()
	}
}

// stop cancels the requests in flight and lets no further requests begin.
func (t *traffic) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	for _, r := range t.active {
		r.cancel()
	}
}

// stopIfIdle lets no further requests begin if no request is in flight, and reports whether that is so.
func (t *traffic) stopIfIdle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = t.stopped || len(t.active) == 0
	return len(t.active) == 0
}

// isStopped reports whether stop or stopIfIdle has stopped the client's requests.
func (t *traffic) isStopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped
}

// inFlight returns the number of requests in flight.
func (t *traffic) inFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.active)
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
	var last activeRequest
	for _, r := range t.active {
		if r.number > last.number {
			last = r
		}
	}
	return last.out
}

// touch records activity of the client; see Limits.Idle.
func (t *traffic) touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastUsed = time.Now()
}

// idle reports whether the client has had neither requests nor streams for longer than limit.
func (t *traffic) idle(limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.active) == 0 && t.streams == 0 && time.Since(t.lastUsed) > limit
}

// addStream counts a new stream that belongs to no request. It returns false if the client already has such a stream, unless
// the new stream replaces that stream, which is then counted, too, until it ends.
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
	t.lastUsed = time.Now()
}

// notify records changes that the client must be notified of. Unless now is set, the notifications are not sent while a
// request is in flight: a call sends them on its stream before its result, or finish has them sent.
func (t *traffic) notify(m changes, now bool) {
	if m == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending |= m
	if now || len(t.active) == 0 {
		t.wakeUp()
	}
}

// wakeUp requests that pending messages are sent without a request; see session.pump.
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
