package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"sync"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// early are the calls of an answer that run while the rest of it still comes; see
// [Config.Eager]. They are its first ones, without a gap, and belong to the run's
// goroutine but for what an earlyCall says.
//
// Nothing of them is stored or emitted until the answer is there. Then they stand
// for the calls of the answer that they are, all or none of them: what a tool
// noted in the State cannot be taken back for one alone.
type early struct {
	run    *run
	answer string // the id of its message
	calls  []*earlyCall
	over   bool // no further call of this answer starts early
	counts bool // they stand for calls of the answer
	most   int  // how many the limits admit
	looks  int  // at the arguments of the next call

	settled chan struct{} // closed when they do, or never will

	rules int    // that people had accepted before the first one
	tools []byte // the tools' State before the first one, as JSON
}

// maxLooks is how often the arguments of a call are tried for whether they are
// whole. Flat ones take a single try; nested ones that come in many pieces could
// take one for each.
const maxLooks = 8

// newEarly prepares for an answer, and returns nil if none of its calls may start
// early. None may where the run is recorded: a replay gets answers whole. Nor
// beside calls in the background: what those note in the tools' State could not be
// told from what has to be taken back.
func (r *run) newEarly(answer string) *early {
	r.dropEarly()
	if r.cfg.Eager && r.cfg.Step == nil && !r.lastAnswer && len(r.st.away) == 0 {
		r.early = &early{run: r, answer: answer, settled: make(chan struct{})}
	}
	return r.early
}

// look starts what can start, after something of the answer has come.
func (e *early) look(in *intake) {
	for !e.over && len(e.calls) < len(in.calls) && e.running() < e.run.cfg.MaxParallel {
		c := &in.calls[len(e.calls)]
		if !e.isWhole(c, in.last() != message.Block(c.call)) {
			return
		}
		e.looks = 0
		e.over = !e.begin(c.call, string(c.args))
	}
}

// isWhole reports whether the arguments of c have come to an end: the object that
// they are is closed. An empty one is only believed when the model has gone on to
// something else, since some servers send it before the arguments.
func (e *early) isWhole(c *callIntake, passed bool) bool {
	args := bytes.TrimSpace(c.args)
	if c.call.Name == "" || !bytes.HasSuffix(args, []byte("}")) || e.looks >= maxLooks ||
		!passed && len(bytes.Trim(args, "{} \t\r\n")) == 0 {
		return false
	}
	e.looks++
	return isObject(args)
}

func (e *early) running() int {
	n := 0
	for _, ec := range e.calls {
		if !ec.hasEnded() {
			n++
		}
	}
	return n
}

// begin starts a call, and reports whether it did. What keeps one from starting
// keeps those after it, too: they may be meant to see its effects.
func (e *early) begin(tc *message.ToolCall, raw string) bool {
	r := e.run
	c, t := e.open(tc, raw)
	if c == nil || r.ctx.Err() != nil {
		return false
	}
	pc := tool.PermissionCall(t, c.Input)
	if !pc.ReadOnly || !e.admits() {
		return false
	}
	d := r.a.judge(r.stateful(r.ctx), r.currentPolicy(), pc)
	ec := &earlyCall{open: c, raw: raw, decision: &d}
	e.calls = append(e.calls, ec)
	if d.Behavior != permission.Allow {
		return false
	}
	ec.start(r, r.workOf(t, c, e.answer))
	return true
}

// open returns the open call that tc would be, and its tool; nil if it is none
// that may ever start early. Tools are told by what the model was shown of them
// first: control tools may have to find out what a call of theirs comes to.
func (e *early) open(tc *message.ToolCall, raw string) (*openCall, tool.Tool) {
	r := e.run
	if info := shown(r.view, tc.Name); info == nil || !info.Parallel || info.Control || info.External {
		return nil, nil
	}
	own := *tc // the answer's is opened when it is there
	c, repaired := r.open(&own, json.RawMessage(raw))
	if c.Status != statusNew || len(repaired) > 0 || c.Late || !c.Parallel {
		return nil, nil
	}
	t, err := r.tool(c)
	if err != nil {
		return nil, nil
	}
	if _, nested := tool.As[*subagent](t); nested { // it tells the run what it does
		return nil, nil
	}
	return c, t
}

// shown returns what the model was shown of the tool of that name, nil for none.
func shown(v *toolkit.View, name string) *tool.Info {
	infos := v.Tools()
	for i := range infos { // which are large, and may be a thousand
		if infos[i].Name == name {
			return &infos[i]
		}
	}
	return nil
}

// admits reports whether the limits allow one more, and prepares for the first.
func (e *early) admits() bool {
	if len(e.calls) > 0 {
		return len(e.calls) < e.most
	}
	var err error
	e.tools, err = e.run.st.Tools.MarshalJSON()
	e.most, e.rules = e.run.callsLeft(), len(e.run.st.Rules)
	return err == nil && e.most > 0
}

// callsLeft returns how many calls the model may make for certain. What is left of
// a limit that agents share is certain for none of them.
func (r *run) callsLeft() int {
	left := math.MaxInt
	if limit := r.cfg.Limits.ToolCalls; limit > 0 {
		left = limit - r.st.spent.Calls
	}
	if r.a.over != nil && left > 0 {
		shared := false
		err := r.a.over.do(func(outer *run, _ *openCall) error {
			shared = outer.callsLeft() != math.MaxInt
			return nil
		})
		if shared || err != nil {
			return 0
		}
	}
	return left
}

// matchEarly finds the early calls among those of the answer, which are open now.
func (r *run) matchEarly(raw []rawArgs) {
	if r.early == nil {
		return
	}
	for i, ec := range r.early.calls {
		if !ec.is(r.st.open[i], string(raw[i])) {
			r.dropEarly()
			return
		}
		r.st.open[i].early = ec
		r.early.counts = !r.early.calls[0].started() // then there is nothing to take back
	}
}

// decide asks the permission engine about c, unless that was done early.
func (r *run) decide(c *openCall, p *permission.Policy, pc *permission.Call) permission.Decision {
	if c.early != nil && c.early.decision != nil {
		d := *c.early.decision
		c.early.decision = nil // that was then: if it is judged again something has happened
		return d
	}
	return r.a.judge(r.stateful(r.ctx), p, pc)
}

// countEarly makes the early calls stand for those of the answer, unless one of them
// may not run any more. What has happened since they were judged, such as that
// a person refused another call, has them judged again, as always; a rule that
// a person made, when each starts. It reports whether the calls that may start now
// are still the same.
func (r *run) countEarly() (same bool, err error) {
	e := r.early
	if e == nil {
		return true, nil
	}
	if len(r.st.Rules) != e.rules && len(e.calls) > 0 { // each is judged by them when it starts
		r.dropEarly()
		return false, nil
	}
	for i, ec := range e.calls {
		c := r.st.open[i]
		if !ec.started() { // it was only judged
			c.early = nil
			continue
		}
		for c.Status == statusAllowed && c.Judged != r.st.doneCalls() {
			if err := r.judge(c); err != nil {
				return false, err
			}
		}
		if c.Status != statusAllowed || c.Edited {
			r.dropEarly()
			return false, nil
		}
	}
	e.counts = true
	close(e.settled)
	return true, nil
}

// dropEarly stops the early calls that stand for no call of the answer, waits for
// them, and takes back what tools have noted meanwhile, for the policy also.
func (r *run) dropEarly() {
	e := r.early
	if e == nil {
		return
	}
	r.early = nil
	if !e.counts {
		close(e.settled)
	}
	defer r.awaiting.Store(nil)
	for _, ec := range e.calls {
		if ec.started() && !ec.followed {
			ec.cancel(context.Canceled)
		}
	}
	for i, ec := range e.calls {
		if ec.started() && !ec.followed {
			r.refuseUntil(ec.ended)
		}
		if !ec.followed && i < len(r.st.open) {
			r.st.open[i].early = nil
		}
	}
	if !e.counts && e.tools != nil {
		_ = r.st.Tools.UnmarshalJSON(e.tools) // which is what it wrote
	}
}

// refuseUntil waits until ended is closed. What calls ask of the run meanwhile comes too late, but
// they wait for an answer.
func (r *run) refuseUntil(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case rep := <-r.reports:
			if rep.do != nil {
				rep.heard <- ErrInterrupted
			}
		}
	}
}

// An earlyCall is a call that was judged before its answer was there, and runs if
// it may. Its worker writes res and err before it closes ended, and nobody reads
// them before.
type earlyCall struct {
	open     *openCall            // as it was judged
	raw      string               // the arguments, as the model sent them
	decision *permission.Decision // nil when it was taken

	cancel   context.CancelCauseFunc
	unbind   func() bool // from the step
	followed bool        // by the worker of the call that it stands for

	ended chan struct{} // nil if it has not started; closed when there are:
	res   *message.ToolResult
	err   error // wraps tool.ErrAbort

	mu   sync.Mutex
	said []tool.Chunk  // and not yet passed on
	bell chan struct{} // gets something when there is
}

func (ec *earlyCall) started() bool { return ec.ended != nil }

func (ec *earlyCall) hasEnded() bool {
	select {
	case <-ec.ended:
		return true
	default:
		return !ec.started()
	}
}

// is reports whether c, of which the model sent the given arguments, is the call
// that was judged.
func (ec *earlyCall) is(c *openCall, raw string) bool {
	o := ec.open
	return c.Status == statusNew && c.ID == o.ID && c.Name == o.Name && raw == ec.raw
}

// start runs the call as any other is run, but that what it says is kept. It ends
// with the step until it is followed.
func (ec *earlyCall) start(r *run, w work) {
	a, step := r.a, r.ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(step))
	ec.cancel = cancel
	ec.unbind = context.AfterFunc(step, func() { cancel(context.Cause(step)) })
	ec.ended, ec.bell = make(chan struct{}), make(chan struct{}, 1)
	ctx = r.hosting(inCall(r.stateful(ctx), ec.open), r.reports, r.done)
	r.awaiting.Store(r.early)
	r.cfg.Go(func() {
		defer func() {
			if ec.res == nil {
				ec.res = failed(ec.open, message.OutcomeError, lost)
			}
			ec.unbind()
			cancel(nil)
			close(ec.ended)
		}()
		ec.res, ec.err = a.runTool(ctx, &w, ec.say)
	})
}

func (ec *earlyCall) say(ch tool.Chunk) {
	ec.mu.Lock()
	ec.said = append(ec.said, ch)
	ec.mu.Unlock()
	select {
	case ec.bell <- struct{}{}:
	default: // it rings already
	}
}

// follow is what the worker of a call does that has been running: it passes on
// what the call has said and still says, and returns its result.
func (ec *earlyCall) follow(ctx context.Context, send func(tool.Chunk)) (*message.ToolResult, error) {
	ec.unbind()
	defer context.AfterFunc(ctx, func() { ec.cancel(context.Cause(ctx)) })()
	for ended := false; !ended; {
		select {
		case <-ec.bell:
		case <-ec.ended:
			ended = true
		}
		ec.mu.Lock()
		said := ec.said
		ec.said = nil
		ec.mu.Unlock()
		for _, ch := range said {
			send(ch)
		}
	}
	return ec.res, ec.err
}

// await waits until it is settled whether the calls that may be asking count: till
// then neither the person nor the model is bothered with what may come to nothing.
func (h *callHost) await(ctx context.Context) error {
	e := h.r.awaiting.Load()
	if e == nil {
		return nil
	}
	select {
	case <-e.settled:
		if !e.counts {
			return ErrInterrupted
		}
	case <-ctx.Done():
	}
	return context.Cause(ctx)
}
