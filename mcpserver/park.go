package mcpserver

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/kitbag-go/kitbag/internal/strictjson"
	"github.com/kitbag-go/kitbag/tool/host"
)

// In the new era a server cannot send requests. A call that asks the client
// something is answered with the question, and the client makes the same request
// again, with its answer and with the requestState that came with the question.
//
// In between the call waits here, in the middle of what it does: it is not run
// again from its start, so that nothing it did before the question happens twice.
// The price is that the client must come back to the same server, and in time.

// A talk is such a call.
type parkedCall struct {
	srv    *Server
	owner  *session // which has the limits
	digest []byte   // of the request; see digestOf
	host   *clientHost
	cancel context.CancelCauseFunc

	asked  chan []*question // from the call to the request that is at work
	done   chan struct{}    // closed when result and err are set
	result any
	err    *rpcError

	mu      sync.Mutex
	out     responder                  // of the request at work; nil while there is none
	token   json.RawMessage            // its progress token
	given   map[string]json.RawMessage // answers that came with the first request
	asks    int                        // questions so far
	pending []*question                // what the client was asked last
}

// A question is one thing that the client is asked for.
type question struct {
	key, method string
	params      any
	reply       chan json.RawMessage // holds one
}

// interact runs what a request asks for, with a host for what comes up meanwhile.
func (r *request) runWithHost(ctx context.Context, do func(*request, context.Context) (any, *rpcError)) (any, *rpcError) {
	run := func(r *request, ctx context.Context) (any, *rpcError) { return r.logging(ctx, do) }
	if !r.sessionless {
		return run(r, r.withSessionHost(ctx))
	}
	var p struct {
		Answers map[string]json.RawMessage `json:"inputResponses"`
		State   string                     `json:"requestState"`
	}
	if err := decode(r.msg, &p); err != nil {
		return nil, err
	}
	var resumed ticket
	if p.State != "" {
		var err error
		if resumed, err = r.srv.verify(p.State); err != nil {
			return nil, rpcErrorf(mcp.INVALID_PARAMS, "%v", err)
		}
	}
	// The other kind of ticket is about the permission to call; see askSessionless.
	if resumed.Parked {
		t := r.srv.unpark(resumed.Nonce, r.digest())
		if t == nil {
			return nil, rpcErrorf(mcp.INVALID_PARAMS, "requestState is of a call that has ended, was answered, or is another one; call again without it")
		}
		return t.resume(ctx, r, p.Answers)
	}
	can := abilitiesOf(r.meta.Capabilities)
	h := &clientHost{can: func() abilities { return can }}
	// Most clients declare nothing, and then nothing can come in between: no second
	// goroutine is needed.
	if can == (abilities{}) {
		result, err := run(r, host.With(ctx, h))
		return r.capabilityError(h, result, err)
	}
	delete(p.Answers, askID) // which is about the permission; see askSessionless
	t := &parkedCall{srv: r.srv, owner: r.session, digest: r.digest(), host: h, given: p.Answers,
		asked: make(chan []*question), done: make(chan struct{}), out: r.out, token: r.meta.Progress}
	h.ask = t.ask
	return t.start(ctx, r, run)
}

// digest identifies what a request asks for, and who asks. A client may have written the
// arguments anew, in another order or with other spaces: they count as the same, since the
// call goes on with those that it began with.
func (r *request) digest() []byte {
	var p struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		Arguments json.RawMessage `json:"arguments"`
		Ref       json.RawMessage `json:"ref"` // of a completion, and so on
		Argument  json.RawMessage `json:"argument"`
		Context   json.RawMessage `json:"context"`
	}
	_ = strictjson.Unmarshal(r.msg.Params, &p) // was decoded before
	who := ""
	if r.cred != nil {
		who = r.cred.Name
	}
	sum := sha256.Sum256(encode([]string{who, r.msg.Method, p.Name, p.URI, string(strictjson.Canonical(p.Arguments)),
		string(strictjson.Canonical(p.Ref)), string(strictjson.Canonical(p.Argument)), string(strictjson.Canonical(p.Context))}))
	return sum[:]
}

// missing turns a failure for want of a capability into the error that the new era
// has for it.
func (r *request) capabilityError(h *clientHost, result any, err *rpcError) (any, *rpcError) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, _ := result.(object); h.missing == nil || err == nil && o["isError"] != true {
		return result, err
	}
	e := rpcErrorf(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, "%s needs a capability that the client has not declared", r.msg.Method)
	e.Data = object{"requiredCapabilities": h.missing}
	return nil, e
}

// start runs the call beside the request, which may end before it does.
func (t *parkedCall) start(ctx context.Context, r *request, run func(*request, context.Context) (any, *rpcError)) (any, *rpcError) {
	// It keeps the values of the request's context, and ends with the credential's
	// session, with the server, or when wait or the timer of keepTalk says so.
	apart, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t.cancel = cancel
	stop := context.AfterFunc(t.owner.ctx, func() { cancel(context.Canceled) })
	mine := *r // the request changes hands: r goes on with the next one
	mine.out, mine.parkedCall = t, t
	t.srv.mu.Lock()
	closed := t.srv.closed
	if !closed {
		t.srv.work.Go(func() {
			defer close(t.done)
			defer stop()
			defer cancel(nil)
			t.result, t.err = mine.recovered(host.With(apart, t.host), func(ctx context.Context) (any, *rpcError) { return run(&mine, ctx) })
		})
	}
	t.srv.mu.Unlock()
	if closed {
		stop()
		cancel(nil)
		return nil, rpcErrorf(mcp.INTERNAL_ERROR, "the server was closed")
	}
	return t.wait(ctx, r)
}

// wait stays with the call until it ends or asks.
func (t *parkedCall) wait(ctx context.Context, r *request) (any, *rpcError) {
	select {
	case t.pending = <-t.asked:
		return t.suspend()
	case <-t.done:
		return r.capabilityError(t.host, t.result, t.err)
	case <-ctx.Done(): // the client has left, which in this era cancels
		t.cancel(context.Cause(ctx))
		<-t.done
		return nil, nil
	}
}

// suspend leaves the call waiting for answers and returns the questions.
func (t *parkedCall) suspend() (any, *rpcError) {
	t.mu.Lock()
	t.out, t.token = nil, nil // what is told meanwhile is lost: there is no stream for it
	t.mu.Unlock()
	requests := object{}
	for _, q := range t.pending {
		requests[q.key] = object{"method": q.method, "params": q.params}
	}
	// A new nonce each time: an old requestState cannot answer a later question.
	nonce := rand.Text()
	if !t.srv.park(nonce, t) {
		t.cancel(errors.New("too many calls wait for their clients"))
		<-t.done
		return nil, rpcErrorf(mcp.INVALID_REQUEST, "too many calls wait for answers; answer some of them")
	}
	return object{"resultType": "input_required", "inputRequests": requests,
		"requestState": t.srv.issue(ticket{Call: t.digest, Nonce: nonce, Parked: true})}, nil
}

// resume brings the answers. What was not answered is asked again.
func (t *parkedCall) resume(ctx context.Context, r *request, answers map[string]json.RawMessage) (any, *rpcError) {
	var open []*question
	for _, q := range t.pending {
		if raw := answers[q.key]; isObject(raw) {
			q.reply <- raw
		} else {
			open = append(open, q)
		}
	}
	if t.pending = open; len(open) > 0 {
		return t.suspend()
	}
	t.mu.Lock()
	t.out, t.token = r.out, r.meta.Progress
	t.mu.Unlock()
	return t.wait(ctx, r)
}

// isObject tells what can be an answer: all that a client is asked for are objects.
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// ask is what the call asks by. An answer that came with the first request is taken
// for the question of its key.
func (t *parkedCall) ask(ctx context.Context, key, method string, params any) (json.RawMessage, error) {
	t.mu.Lock()
	if t.asks++; key == "" {
		key = fmt.Sprintf("question-%d", t.asks)
	}
	given := t.given[key]
	delete(t.given, key)
	t.mu.Unlock()
	if isObject(given) {
		return given, nil
	}
	q := &question{key: key, method: method, params: params, reply: make(chan json.RawMessage, 1)}
	t.put(ctx, q)
	select {
	case raw := <-q.reply:
		return raw, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.done: // it was asked by something that the call has left behind
		return nil, errEnded
	}
}

// put hands a question over, at once or together with others.
func (t *parkedCall) put(ctx context.Context, q *question) {
	over := ctx.Done()
	g, together := ctx.Value(batchKey{}).(*questionBatch)
	if together { // whoever hands over the questions of all must not give up for all
		over = g.done
	}
	send := func(all []*question) {
		select {
		case t.asked <- all:
		case <-over:
		case <-t.done:
		}
	}
	if together {
		g.add(q, send)
		return
	}
	send([]*question{q})
}

// send passes on what is told during the call, as long as a request is there to
// carry it.
func (t *parkedCall) send(message []byte) error {
	t.mu.Lock()
	out := t.out
	t.mu.Unlock()
	if out == nil || !out.streams() {
		return nil
	}
	return out.send(message)
}

// streams is always true: whether the request at work can carry what is sent, send sees.
func (t *parkedCall) streams() bool { return true }

// progress returns the token for progress of the request at work.
func (r *request) progress() json.RawMessage {
	if r.parkedCall == nil {
		return r.meta.Progress
	}
	r.parkedCall.mu.Lock()
	defer r.parkedCall.mu.Unlock()
	return r.parkedCall.token
}

// keepTalk holds a call until its client comes back, for Limits.Ask at most. It
// reports whether there is room for it.
func (s *Server) park(nonce string, t *parkedCall) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.owner.parked >= s.limits.Calls*sharedCalls || s.closed {
		return false
	}
	t.owner.parked++
	s.parked[nonce] = parkedEntry{t, time.AfterFunc(s.limits.Ask, func() {
		if s.unpark(nonce, t.digest) != nil {
			t.cancel(fmt.Errorf("no answer within %v", s.limits.Ask))
		}
	})}
	return true
}

type parkedEntry struct {
	*parkedCall
	timer *time.Timer
}

// takeTalk returns the call that waits under the nonce, which then is nobody
// else's; nil if there is none, or it is of another request.
func (s *Server) unpark(nonce string, digest []byte) *parkedCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.parked[nonce]
	if !ok || string(w.digest) != string(digest) {
		return nil
	}
	w.timer.Stop()
	delete(s.parked, nonce)
	w.owner.parked--
	return w.parkedCall
}

// Together runs functions of a call side by side that each ask the client
// something, by [host.Host] or [Roots], and returns their errors joined, in the
// order of the functions. Where questions are answered by another request, as from
// protocol 2026-07-28 on, those that the functions ask are put in one: a question
// waits until every other function has asked, too, or has ended.
func Together(ctx context.Context, ask ...func(context.Context) error) error {
	g := &questionBatch{running: len(ask), done: ctx.Done()}
	ctx = context.WithValue(ctx, batchKey{}, g)
	errs := make([]error, len(ask))
	var all sync.WaitGroup
	for i, fn := range ask {
		all.Go(func() {
			defer g.leave()
			errs[i] = fn(ctx)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

type batchKey struct{}

// A gather collects the questions of functions that run together.
type questionBatch struct {
	done <-chan struct{} // closed when all of them are to give up

	mu      sync.Mutex
	running int
	waiting []*question
	send    func([]*question)
}

// add is called by a function that waits from now on.
func (g *questionBatch) add(q *question, send func([]*question)) {
	g.mu.Lock()
	g.waiting, g.send = append(g.waiting, q), send
	g.unlockAndFlush()
}

// leave is called by a function that has ended and asks no more.
func (g *questionBatch) leave() {
	g.mu.Lock()
	g.running--
	g.unlockAndFlush()
}

// unlockAndFlush hands the questions over if all who run wait. It is called with
// the lock and gives it back, since handing over may take until the client's next
// request.
func (g *questionBatch) unlockAndFlush() {
	all, send := g.waiting, g.send
	if len(all) == 0 || len(all) < g.running {
		g.mu.Unlock()
		return
	}
	g.waiting = nil
	g.mu.Unlock()
	send(all)
}
