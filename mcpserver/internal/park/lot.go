// Package park has the calls that wait in the middle of their work until their client repeats its request.
//
// From revision 2026-07-28 on a server cannot send requests. If a call needs to ask its client a question, the
// server answers the request with the question, and the client repeats the request with its answer and the
// requestState of the question: a [Ticket].
//
// In between the call is parked. It is not run again from the start, so that work that it did before the question
// is not repeated. Therefore the client must return to the same server, and in time.
package park

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
)

// A Lot has the parked calls of a server, and signs their tickets.
type Lot struct {
	limit  time.Duration // how long a client may take to answer
	secret [32]byte      // signs tickets
	spent  nonces
	work   sync.WaitGroup // the calls

	mu     sync.Mutex
	closed bool
	parked map[string]parked // by the nonce of their ticket
}

type parked struct {
	*Call
	timer *time.Timer
}

// NewLot returns a Lot. limit is how long a client may take to answer.
func NewLot(limit time.Duration) (*Lot, error) {
	l := &Lot{limit: limit, parked: map[string]parked{}}
	_, err := rand.Read(l.secret[:])
	return l, err
}

// Close makes the Lot start and park no more calls. To end those that run, cancel their Owners, then Wait.
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

// An Owner is whom the limit of parked calls belongs to.
type Owner struct {
	Max    int
	parked int // guarded by Lot.mu
}

// A Request is one of the requests that a call answers, one after the other.
type Request struct {
	Out     wire.Responder
	Token   json.RawMessage            // for progress
	Answers map[string]json.RawMessage // to questions, by their keys
}

// Start runs a call in a goroutine, because the request may end first, and returns the answer to the request.
// The digest identifies the request and its credential. The context of the call has the values of ctx; it is
// cancelled when ended is done, when the client disconnects, or when it does not answer in time.
func (l *Lot) Start(ctx, ended context.Context, owner *Owner, digest []byte, first Request, run func(context.Context, *Call) (any, *rpc.Error)) (any, *rpc.Error) {
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &Call{lot: l, owner: owner, digest: digest, cancel: cancel, early: first.Answers, current: first,
		asked: make(chan []*question), done: make(chan struct{})}
	stop := context.AfterFunc(ended, func() { cancel(context.Canceled) })
	l.mu.Lock()
	closed := l.closed
	if !closed {
		l.work.Go(func() {
			defer close(c.done)
			defer stop()
			defer cancel(nil)
			c.result, c.err = run(callCtx, c)
		})
	}
	l.mu.Unlock()
	if closed {
		stop()
		cancel(nil)
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "the server was closed")
	}
	return c.wait(ctx)
}

// Resume continues the call that is parked under the nonce with the answers of the next request, and returns the
// answer to that request. digest is the digest of that request.
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
	if c.owner.parked >= c.owner.Max || l.closed {
		return false
	}
	c.owner.parked++
	l.parked[nonce] = parked{c, time.AfterFunc(l.limit, func() {
		if l.unpark(nonce, c.digest) != nil {
			c.cancel(fmt.Errorf("no answer within %v", l.limit))
		}
	})}
	return true
}

// unpark removes and returns the call that is parked under the nonce. It returns nil if there is no such call
// or if it is for another request.
func (l *Lot) unpark(nonce string, digest []byte) *Call {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.parked[nonce]
	if !ok || string(p.digest) != string(digest) {
		return nil
	}
	p.timer.Stop()
	delete(l.parked, nonce)
	p.owner.parked--
	return p.Call
}
