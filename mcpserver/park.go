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
	"github.com/kitbag-go/kitbag/mcpserver/internal/rpc"
	"github.com/kitbag-go/kitbag/mcpserver/internal/wire"
	"github.com/kitbag-go/kitbag/tool/host"
)

// From revision 2026-07-28 on a server cannot send requests. If a call needs to ask its client a question, the
// server answers the request with the question, and the client repeats the request with its answer and the
// requestState of the question.
//
// In between the call is parked in the middle of its work. It is not run again from the start, so that work
// that it did before the question is not repeated. Therefore the client must return to the same server, and in
// time.

// A parkedCall is a call that may be parked.
type parkedCall struct {
	srv    *Server
	owner  *session // the session whose limits apply
	digest []byte   // see [request.digest]
	host   *clientHost
	cancel context.CancelCauseFunc

	asked  chan []*question // questions from the call to the current request
	done   chan struct{}    // closed when result and err are set
	result any
	err    *rpc.Error

	mu      sync.Mutex
	out     wire.Responder             // of the current request; nil while the call is parked
	token   json.RawMessage            // for progress of the current request
	early   map[string]json.RawMessage // answers that were sent with the first request
	count   int                        // of questions so far
	pending []*question                // questions that the client has not answered
}

// A question is a request that the client must answer.
type question struct {
	key, method string
	params      any
	reply       chan json.RawMessage // buffers one answer
}

// runWithHost runs do with a host that asks the client.
func (r *request) runWithHost(ctx context.Context, do func(*request, context.Context) (any, *rpc.Error)) (any, *rpc.Error) {
	run := func(r *request, ctx context.Context) (any, *rpc.Error) { return r.logging(ctx, do) }
	if !r.sessionless {
		return run(r, r.withSessionHost(ctx))
	}
	var p struct {
		Answers map[string]json.RawMessage `json:"inputResponses"`
		State   string                     `json:"requestState"`
	}
	if err := r.msg.Decode(&p); err != nil {
		return nil, err
	}
	var resumed ticket
	if p.State != "" {
		var err error
		if resumed, err = r.srv.verify(p.State); err != nil {
			return nil, rpc.Errorf(mcp.INVALID_PARAMS, "%v", err)
		}
	}
	// The other kind of ticket gives permission for a call; see askSessionless.
	if resumed.Parked {
		t := r.srv.unpark(resumed.Nonce, r.digest())
		if t == nil {
			return nil, rpc.Errorf(mcp.INVALID_PARAMS, "requestState is for another request, or for a call that has ended or was already answered; repeat the request without requestState")
		}
		return t.resume(ctx, r, p.Answers)
	}
	can := abilitiesOf(r.meta.Capabilities)
	h := &clientHost{can: func() abilities { return can }}
	// A client that declares no capabilities cannot be asked, so the call does not need a separate goroutine.
	if can == (abilities{}) {
		result, err := run(r, host.With(ctx, h))
		return r.capabilityError(h, result, err)
	}
	delete(p.Answers, askID) // it is for permission to call; see askSessionless
	t := &parkedCall{srv: r.srv, owner: r.session, digest: r.digest(), host: h, early: p.Answers,
		asked: make(chan []*question), done: make(chan struct{}), out: r.out, token: r.meta.Progress}
	h.ask = t.ask
	return t.start(ctx, r, run)
}

// digest identifies the request and its credential. It does not depend on the order of members or on white
// space, because a client may encode the arguments again; the call uses the arguments of the first request.
func (r *request) digest() []byte {
	var p struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		Arguments json.RawMessage `json:"arguments"`
		Ref       json.RawMessage `json:"ref"` // this and the following fields are of completions
		Argument  json.RawMessage `json:"argument"`
		Context   json.RawMessage `json:"context"`
	}
	_ = strictjson.Unmarshal(r.msg.Params, &p) // no error, because dispatch has decoded it
	credName := ""
	if r.cred != nil {
		credName = r.cred.Name
	}
	sum := sha256.Sum256(rpc.Encode([]string{credName, r.msg.Method, p.Name, p.URI, string(strictjson.Canonical(p.Arguments)),
		string(strictjson.Canonical(p.Ref)), string(strictjson.Canonical(p.Argument)), string(strictjson.Canonical(p.Context))}))
	return sum[:]
}

// capabilityError returns MCP's error for missing capabilities if the call failed because of them, and
// otherwise result and err.
func (r *request) capabilityError(h *clientHost, result any, err *rpc.Error) (any, *rpc.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o, _ := result.(object); h.missing == nil || err == nil && o["isError"] != true {
		return result, err
	}
	e := rpc.Errorf(mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, "%s needs a capability that the client has not declared; see requiredCapabilities", r.msg.Method)
	e.Data = object{"requiredCapabilities": h.missing}
	return nil, e
}

// start runs the call in a goroutine, because the request may end first.
func (t *parkedCall) start(ctx context.Context, r *request, run func(*request, context.Context) (any, *rpc.Error)) (any, *rpc.Error) {
	// The call's context has the values of the request's context. It is cancelled when the credential's session or
	// the server ends, by wait, or by the timer of park.
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	t.cancel = cancel
	stop := context.AfterFunc(t.owner.ctx, func() { cancel(context.Canceled) })
	req := *r // the call outlives r
	req.out, req.parkedCall = t, t
	t.srv.mu.Lock()
	closed := t.srv.closed
	if !closed {
		t.srv.work.Go(func() {
			defer close(t.done)
			defer stop()
			defer cancel(nil)
			t.result, t.err = req.recovered(host.With(callCtx, t.host), func(ctx context.Context) (any, *rpc.Error) { return run(&req, ctx) })
		})
	}
	t.srv.mu.Unlock()
	if closed {
		stop()
		cancel(nil)
		return nil, rpc.Errorf(mcp.INTERNAL_ERROR, "the server was closed")
	}
	return t.wait(ctx, r)
}

// wait waits until the call ends or asks a question.
func (t *parkedCall) wait(ctx context.Context, r *request) (any, *rpc.Error) {
	select {
	case t.pending = <-t.asked:
		return t.suspend()
	case <-t.done:
		return r.capabilityError(t.host, t.result, t.err)
	case <-ctx.Done(): // the client has disconnected, which cancels the call
		t.cancel(context.Cause(ctx))
		<-t.done
		return nil, nil
	}
}

// suspend parks the call and returns its questions.
func (t *parkedCall) suspend() (any, *rpc.Error) {
	t.mu.Lock()
	t.out, t.token = nil, nil // messages are dropped until the next request
	t.mu.Unlock()
	requests := object{}
	for _, q := range t.pending {
		requests[q.key] = object{"method": q.method, "params": q.params}
	}
	// Each nonce is new, so that an old requestState cannot answer a later question.
	nonce := rand.Text()
	if !t.srv.park(nonce, t) {
		t.cancel(errors.New("too many calls wait for answers"))
		<-t.done
		return nil, rpc.Errorf(mcp.INVALID_REQUEST, "too many calls wait for answers of clients of this credential; answer some of them")
	}
	return object{"resultType": "input_required", "inputRequests": requests,
		"requestState": t.srv.issue(ticket{Call: t.digest, Nonce: nonce, Parked: true})}, nil
}

// resume passes on the answers, and asks the remaining questions again.
func (t *parkedCall) resume(ctx context.Context, r *request, answers map[string]json.RawMessage) (any, *rpc.Error) {
	var unanswered []*question
	for _, q := range t.pending {
		if raw := answers[q.key]; isObject(raw) {
			q.reply <- raw
		} else {
			unanswered = append(unanswered, q)
		}
	}
	if t.pending = unanswered; len(unanswered) > 0 {
		return t.suspend()
	}
	t.mu.Lock()
	t.out, t.token = r.out, r.meta.Progress
	t.mu.Unlock()
	return t.wait(ctx, r)
}

// isObject reports whether raw is a JSON object, as all answers of clients are.
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// ask asks the client for the call. A question is not asked if its answer was sent with the first request,
// under its key.
func (t *parkedCall) ask(ctx context.Context, key, method string, params any) (json.RawMessage, error) {
	t.mu.Lock()
	if t.count++; key == "" {
		key = fmt.Sprintf("question-%d", t.count)
	}
	raw := t.early[key]
	delete(t.early, key)
	t.mu.Unlock()
	if isObject(raw) {
		return raw, nil
	}
	q := &question{key: key, method: method, params: params, reply: make(chan json.RawMessage, 1)}
	t.put(ctx, q)
	select {
	case raw := <-q.reply:
		return raw, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.done: // the call has ended and left a goroutine behind
		return nil, wire.ErrEnded
	}
}

// put passes a question to the request, alone or, in [Together], in a batch.
func (t *parkedCall) put(ctx context.Context, q *question) {
	done := ctx.Done()
	g, together := ctx.Value(batchKey{}).(*questionBatch)
	if together { // the goroutine that sends the batch must not give up while the others wait
		done = g.done
	}
	send := func(all []*question) {
		select {
		case t.asked <- all:
		case <-done:
		case <-t.done:
		}
	}
	if together {
		g.add(q, send)
		return
	}
	send([]*question{q})
}

// Send implements [wire.Responder]. The message is dropped if there is no current request.
func (t *parkedCall) Send(message []byte) error {
	t.mu.Lock()
	out := t.out
	t.mu.Unlock()
	if out == nil || !out.Streams() {
		return nil
	}
	return out.Send(message)
}

// Streams implements [wire.Responder]. It is true because a later request may stream even if this one does not; see Send.
func (t *parkedCall) Streams() bool { return true }

// progress returns the progress token of the current request.
func (r *request) progress() json.RawMessage {
	if r.parkedCall == nil {
		return r.meta.Progress
	}
	r.parkedCall.mu.Lock()
	defer r.parkedCall.mu.Unlock()
	return r.parkedCall.token
}

// park stores a call until its client answers, at most for Limits.Ask. It returns false if too many calls are parked.
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

// unpark removes and returns the call that is parked under the nonce. It returns nil if there is no such call
// or if it is for another request.
func (s *Server) unpark(nonce string, digest []byte) *parkedCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.parked[nonce]
	if !ok || string(e.digest) != string(digest) {
		return nil
	}
	e.timer.Stop()
	delete(s.parked, nonce)
	e.owner.parked--
	return e.parkedCall
}

// Together runs functions of a call in parallel that each ask the client, by [host.Host] or [Roots], and
// returns their joined errors, in the order of the functions. From protocol revision 2026-07-28 on, in which
// the client repeats its request with the answers, their questions are sent together: a question waits until
// every other function has asked a question or ended.
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

// A questionBatch collects the questions of functions that run together.
type questionBatch struct {
	done <-chan struct{} // closed when all of the functions are cancelled

	mu      sync.Mutex
	running int
	waiting []*question
	send    func([]*question)
}

// add adds the question of a function, which then waits for the answer.
func (g *questionBatch) add(q *question, send func([]*question)) {
	g.mu.Lock()
	g.waiting, g.send = append(g.waiting, q), send
	g.unlockAndFlush()
}

// leave is called when a function has ended.
func (g *questionBatch) leave() {
	g.mu.Lock()
	g.running--
	g.unlockAndFlush()
}

// unlockAndFlush sends the questions if all running functions wait. It unlocks g.mu first, because
// sending may block until the client's next request.
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
