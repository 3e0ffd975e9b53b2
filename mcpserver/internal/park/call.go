package park

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// A Call is a call that may be parked. It is the [wire.Responder] of its current request.
type Call struct {
	lot    *Lot
	owner  *Owner
	digest []byte
	cancel context.CancelCauseFunc

	asked  chan []*question // questions from the call to the current request
	done   chan struct{}    // closed when result and err are set
	result any
	err    *rpc.Error

	mu      sync.Mutex
	current Request                    // zero while the call is parked; its Answers are not used
	early   map[string]json.RawMessage // answers that were sent with the first request
	count   int                        // of questions so far

	pending []*question // questions that the client has not answered; only for the goroutine of the request
}

// A question is a request that the client must answer.
type question struct {
	key, method string
	params      any
	reply       chan json.RawMessage // buffers one answer
}

// wait waits until the call ends or asks a question.
func (c *Call) wait(ctx context.Context) (any, *rpc.Error) {
	select {
	case c.pending = <-c.asked:
		return c.suspend()
	case <-c.done:
		return c.result, c.err
	case <-ctx.Done(): // the client has disconnected, which cancels the call
		c.cancel(context.Cause(ctx))
		<-c.done
		return nil, nil
	}
}

// suspend parks the call and returns its questions. Messages are dropped until the next request.
func (c *Call) suspend() (any, *rpc.Error) {
	c.setCurrent(Request{})
	requests := map[string]any{}
	for _, q := range c.pending {
		requests[q.key] = map[string]any{"method": q.method, "params": q.params}
	}
	// Each nonce is new, so that an old requestState cannot answer a later question.
	nonce := rand.Text()
	if !c.lot.park(nonce, c) {
		c.cancel(errors.New("too many calls wait for answers"))
		<-c.done
		return nil, rpc.Errorf(mcp.INVALID_REQUEST, "too many calls wait for answers of clients of this credential; answer some of them")
	}
	return map[string]any{"resultType": "input_required", "inputRequests": requests,
		"requestState": c.lot.Issue(Ticket{Call: c.digest, Nonce: nonce, Parked: true})}, nil
}

// resume passes on the answers, and asks the remaining questions again.
func (c *Call) resume(ctx context.Context, next Request) (any, *rpc.Error) {
	var unanswered []*question
	for _, q := range c.pending {
		if raw := next.Answers[q.key]; isObject(raw) {
			q.reply <- raw
		} else {
			unanswered = append(unanswered, q)
		}
	}
	if c.pending = unanswered; len(unanswered) > 0 {
		return c.suspend()
	}
	c.setCurrent(next)
	return c.wait(ctx)
}

// isObject reports whether raw is a JSON object, as all answers of clients are.
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// Ask asks the client for the call. A question is not asked if its answer was sent with the first request,
// under its key.
func (c *Call) Ask(ctx context.Context, key, method string, params any) (json.RawMessage, error) {
	c.mu.Lock()
	if c.count++; key == "" {
		key = fmt.Sprintf("question-%d", c.count)
	}
	raw := c.early[key]
	delete(c.early, key)
	c.mu.Unlock()
	if isObject(raw) {
		return raw, nil
	}
	q := &question{key: key, method: method, params: params, reply: make(chan json.RawMessage, 1)}
	c.put(ctx, q)
	select {
	case raw := <-q.reply:
		return raw, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.done: // the call has ended and left a goroutine behind
		return nil, wire.ErrEnded
	}
}

// put passes a question to the request, alone or, in [Together], in a batch.
func (c *Call) put(ctx context.Context, q *question) {
	done := ctx.Done()
	g, together := ctx.Value(batchKey{}).(*batch)
	if together { // the goroutine that sends the batch must not give up while the others wait
		done = g.done
	}
	send := func(all []*question) {
		select {
		case c.asked <- all:
		case <-done:
		case <-c.done:
		}
	}
	if together {
		g.add(q, send)
		return
	}
	send([]*question{q})
}

func (c *Call) setCurrent(r Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = r
}

func (c *Call) request() Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// Token returns the progress token of the current request.
func (c *Call) Token() json.RawMessage { return c.request().Token }

// Send implements [wire.Responder]. The message is dropped if there is no current request.
func (c *Call) Send(message []byte) error {
	if out := c.request().Out; out != nil && out.Streams() {
		return out.Send(message)
	}
	return nil
}

// Streams implements [wire.Responder]. It is true because a later request may stream even if this one does not;
// see Send.
func (c *Call) Streams() bool { return true }
