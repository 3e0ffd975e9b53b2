// Package park keeps calls that wait, in the middle of their work, until their client repeats its request.
//
// From revision 2026-07-28 on a server cannot send requests. If a call needs to ask its client a question, the
// server answers the request with the question, and the client repeats the request with its answer and the
// requestState of the question: a [Ticket].
//
// In between the call is parked. It is not run again from the start, so that work that it did before the question
// is not repeated. Therefore the ticket names the replica that has the call, and the client must answer within a
// time limit.
package park

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/replica"
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// A Lot keeps the parked calls of a server, and seals their tickets.
type Lot struct {
	Tickets
	work sync.WaitGroup // goroutines of calls

	mu     sync.Mutex
	closed bool
	calls  int                   // that have not ended
	parked map[string]parkedCall // by the nonce of their ticket
	tasks  map[string]*Call      // by the nonce of their ticket
}

type parkedCall struct {
	*Call
	timer *time.Timer // unparks and cancels the call
}

// NewLot returns the Lot of the replica with the id. limit is how long a client may take to answer.
func NewLot(limit time.Duration, store replica.Store, keys *replica.Keys, id string) *Lot {
	return &Lot{Tickets: Tickets{limit, keys, store, id}, parked: map[string]parkedCall{}, tasks: map[string]*Call{}}
}

// Close keeps further calls from being started and parked. To end the running calls, cancel their contexts, then Wait.
func (l *Lot) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, p := range l.parked {
		p.timer.Stop()
	}
}

// Wait waits until all calls have ended.
func (l *Lot) Wait() { l.work.Wait() }

// ErrLost is the error of a request that continues a call of a replica that has ended.
var ErrLost = errors.New("the replica that had the call has ended, and the call with it; repeat the request without requestState")

// Calls returns how many calls have not ended.
func (l *Lot) Calls() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

// An Owner limits the calls and tasks of the clients that have one credential.
type Owner struct {
	Key           string       // identifies the credential on all replicas
	Max           int          // how many calls may be parked, and how many tasks there may be
	parked, tasks atomic.Int64 // changed with Lot.mu held
}

// Used reports whether the owner has parked calls or tasks.
func (o *Owner) Used() bool { return o.parked.Load()+o.tasks.Load() > 0 }

// A Request is the first request of a call, or a later request that continues the call.
type Request struct {
	Out     wire.Responder
	Token   json.RawMessage            // the progress token
	Answers map[string]json.RawMessage // to questions, by the keys of the questions
}

// Start runs a call in a goroutine, because the call may outlive the request, and returns the answer to the request.
// The digest identifies the request and its credential. The context of the call has the values of ctx; it is
// cancelled when ended is done, when the client disconnects, or when the client does not answer in time.
func (l *Lot) Start(ctx, ended context.Context, owner *Owner, digest []byte, first Request, run func(context.Context, *Call) (any, *rpc.Error)) (any, *rpc.Error) {
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Call{lot: l, owner: owner, digest: digest, cancel: cancel, early: first.Answers, current: first,
		asked: make(chan []*question), taskDue: make(chan time.Duration, 1), done: make(chan struct{})}
	stop := context.AfterFunc(ended, func() { cancel(context.Canceled) })
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		stop()
		cancel(nil)
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "the server was closed")
	}
	l.calls++
	l.work.Go(func() {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.calls--
		}()
		defer close(c.done)
		defer stop()
		defer cancel(nil)
		c.result, c.err = run(callCtx, c)
	})
	l.mu.Unlock()
	return c.wait(ctx)
}

// Resume continues the call that is parked under the nonce with the answers of the next request, and returns the
// answer to the next request. digest is the digest of the next request.
func (l *Lot) Resume(ctx context.Context, nonce string, digest []byte, next Request) (any, *rpc.Error) {
	c := l.unpark(nonce, digest)
	if c == nil {
		return nil, rpc.Errorf(mcp.INVALID_PARAMS, "requestState is for another request, or for a call that has ended or was already answered; repeat the request without requestState")
	}
	return c.resume(ctx, next)
}

// park stores a call until its client answers. It returns false if too many calls are parked.
func (l *Lot) park(nonce string, c *Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.owner.parked.Load() >= int64(c.owner.Max) || l.closed {
		return false
	}
	c.owner.parked.Add(1)
	l.parked[nonce] = parkedCall{c, time.AfterFunc(l.limit, func() {
		if l.unpark(nonce, c.digest) != nil {
			c.cancel(fmt.Errorf("no answer within %v", l.limit))
		}
	})}
	return true
}

// unpark removes and returns the call that is parked under the nonce. It returns nil if there is no such call
// or if the call has another digest.
func (l *Lot) unpark(nonce string, digest []byte) *Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.parked[nonce]
	if !ok || string(p.digest) != string(digest) {
		return nil
	}
	p.timer.Stop()
	delete(l.parked, nonce)
	p.owner.parked.Add(-1)
	return p.Call
}

// A Call is a call that may be parked. It is the [wire.Responder] of its current request.
type Call struct {
	lot    *Lot
	owner  *Owner
	digest []byte
	cancel context.CancelCauseFunc

	asked   chan []*question   // questions from the call, for wait or, if the call is a task, for collect
	taskDue chan time.Duration // gets the ttl of the task when the call is to become a task
	done    chan struct{}      // closed when outcome is set
	outcome

	mu        sync.Mutex
	current   Request                    // zero while the call is parked; its Answers are not used
	early     map[string]json.RawMessage // answers that were sent with the first request
	questions int                        // asked so far
	task      *task                      // nil if the call is not a task
	ttl       time.Duration              // of the task

	// pending are the questions that the client has not answered. Only the goroutine of the current request uses them;
	// once the call is a task, mu guards them.
	pending []*question
}

// An outcome is how a call ended.
type outcome struct {
	result any
	err    *rpc.Error
}

// wait waits until the call ends or asks a question.
func (c *Call) wait(ctx context.Context) (any, *rpc.Error) {
	for {
		select {
		case ttl := <-c.taskDue:
			if answer := c.startTask(ctx, ttl); answer != nil {
				return answer, nil
			}
		case c.pending = <-c.asked:
			select {
			case ttl := <-c.taskDue: // a task sends its questions as the answer to tasks/get
				if answer := c.startTask(ctx, ttl); answer != nil {
					return answer, nil
				}
			default:
			}
			return c.suspend(ctx)
		case <-c.done:
			return c.result, c.err
		case <-ctx.Done(): // the client has disconnected, which cancels the call
			c.cancel(context.Cause(ctx))
			<-c.done
			return nil, nil // no client reads the answer
		}
	}
}

// suspend parks the call and returns its questions. Messages are dropped until the next request.
func (c *Call) suspend(ctx context.Context) (any, *rpc.Error) {
	c.setCurrent(Request{})
	// Each nonce is new, so that an old requestState cannot answer a later question.
	nonce := rand.Text()
	state, err := c.lot.Issue(ctx, Ticket{Call: c.digest, Nonce: nonce, Parked: c.lot.id})
	if err != nil {
		c.cancel(err)
		<-c.done
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "the question cannot be sent: %v", err)
	}
	if !c.lot.park(nonce, c) {
		c.cancel(errors.New("too many calls wait for answers"))
		<-c.done
		return nil, rpc.Errorf(mcp.INVALID_REQUEST, "too many calls wait for answers of clients of this credential; answer some of them")
	}
	return map[string]any{"resultType": "input_required", "inputRequests": requestsOf(c.pending),
		"requestState": state}, nil
}

// resume passes the answers on to the call. If questions remain, it asks them again.
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
		return c.suspend(ctx)
	}
	c.setCurrent(next)
	return c.wait(ctx)
}

// isObject reports whether raw is a JSON object, as all answers to questions are.
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// Ask asks the client a question and returns the answer, which the client may have sent with the first request, under the
// key. An empty key is replaced by a number.
func (c *Call) Ask(ctx context.Context, key, method string, params any) (json.RawMessage, error) {
	c.mu.Lock()
	if c.questions++; key == "" {
		key = fmt.Sprintf("question-%d", c.questions)
	}
	raw := c.early[key]
	delete(c.early, key)
	c.mu.Unlock()
	if isObject(raw) {
		return raw, nil
	}
	q := &question{key: key, method: method, params: params, reply: make(chan json.RawMessage, 1)}
	c.pass(ctx, q)
	select {
	case raw := <-q.reply:
		return raw, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.done: // the call has ended and left a goroutine behind
		return nil, wire.ErrEnded
	}
}

// pass passes a question to wait or collect, alone or, in [Together], in a batch.
func (c *Call) pass(ctx context.Context, q *question) {
	cancelled := ctx.Done()
	b, together := ctx.Value(batchKey{}).(*batch)
	if together { // ctx is the context of one function, but its goroutine may send the questions of all functions
		cancelled = b.cancelled
	}
	send := func(all []*question) {
		select {
		case c.asked <- all:
		case <-cancelled:
		case <-c.done:
		}
	}
	if together {
		b.add(q, send)
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

// Streams implements [wire.Responder]. It returns true, because a later request may stream; see Send.
func (c *Call) Streams() bool { return true }
