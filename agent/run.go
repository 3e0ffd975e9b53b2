package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/agent/internal/window"
	"github.com/kitbag-go/kitbag/internal/callctx"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// run is one call of Run. The consumer's goroutine owns it and the State;
// workers that run tools report to it and touch neither.
type run struct {
	a      *Agent
	cfg    *Config
	st     *State
	ctx    context.Context // of the run: ends with the caller's, and when the consumer breaks off
	cancel context.CancelFunc
	yield  func(Event, error) bool
	whole  context.Context // ctx, but for what a Middleware.Step makes of it
	final  *final          // the typed answer that is wanted, or nil
	gone   bool            // the consumer broke off: nothing more is yielded
	owed   []Event         // see store

	curtain curtain // see Config.Redact

	retried model.Model        // the agent's, with retries; made with the first request
	view    *toolkit.View      // what the last answer was shown; nil when it must be made
	policy  *permission.Policy // Config.Policy with the State's rules; nil when it must be made
	callIDs map[string]bool    // of the whole conversation
	usage   message.Usage

	jobs *jobs // that go on in the background or may; nil without Config.Background
	room int   // how many more calls of this batch may

	// What workers, and tools, of more than one batch tell; nil without Config.Background
	// and Config.Eager. done is closed when the run has ended.
	reports chan report
	done    chan struct{}

	full       window.Gauge // see gauge
	lastAnswer bool         // the model may not call tools in the next request

	early    *early                // calls of the answer that is coming, or came last; mostly nil
	awaiting atomic.Pointer[early] // the same for those who ask something of the run, if any has started

	asking   chan struct{} // holds a token while a person is asked in the process
	sampling chan struct{} // holds a token while the model answers a server
	host     *callHost     // of all calls, where some may go on in the background

	turns  chan func()    // what calls that are waited for ask of the run
	over   chan struct{}  // closed when nobody takes turns any more
	turned error          // of a turn: ends the run
	clock  *callctx.Clock // for the next of those calls
}

// run takes the inputs and goes on until there is an end to report.
func (r *run) run(inputs []Input) {
	err := r.checkSeal()
	if err == nil {
		err = r.checkInputs(inputs)
	}
	if err != nil {
		r.yield(nil, err)
		return
	}
	var reason EndReason
	reason, err = r.begin(inputs)
	if err == nil && reason == "" {
		reason, err = r.loop()
	}
	r.end(reason, err)
}

// crashGap is how many event numbers are skipped after a crash.
const crashGap = 1_000_000

// begin emits the first event and applies the inputs. A reason ends the run.
func (r *run) begin(inputs []Input) (EndReason, error) {
	st := r.st
	if st.ID == "" {
		st.ID = r.cfg.NewID("ses")
	}
	resumed := st.run != ""
	// A run that ended says so in its last save. This one did not, and no one knows which
	// numbers its last events had.
	if st.running { // the process was stopped: events that came after the last save have had numbers
		st.seq += crashGap
	}
	st.running = true
	if !resumed {
		st.run = r.cfg.NewID("run")
	}
	// Models count their calls from 1 in every answer, some of them; an id that was used
	// gives way to one of ours.
	r.callIDs = map[string]bool{}
	for _, m := range st.Messages {
		for _, c := range m.ToolCalls() {
			r.callIDs[c.ID] = true
		}
	}
	r.emit(&RunStart{Session: st.ID, Resumed: resumed})
	// First what was cut off, then the inputs: an answer may be for a call that has
	// ended by that.
	r.forgetJobs()
	if err := r.recoverCalls(); err != nil {
		return "", err
	}
	interrupt, err := r.apply(inputs)
	if err == nil && interrupt {
		return EndInterrupted, nil
	}
	return "", err
}

// outcomeUnknown is the result of a call that had begun when the program was
// stopped.
const outcomeUnknown = "Outcome unknown: the program was stopped while this call ran. " +
	"It may or may not have had its effect: check before you call it again."

// recoverCalls takes over the calls that an earlier run, maybe of another
// program, left open. Nothing that it found out about a call is relied on: the
// policy and the tools may be others now, and the State may have been changed.
func (r *run) recoverCalls() error {
	for _, c := range r.st.open {
		if c.Status == statusDone {
			continue
		}
		c.Judged = -1
		c.answers = nil // of a run that had to ask about c itself before it could pass them on
		switch {
		case c.Status == statusRunning && c.Sub == nil && (c.Again || !r.isIdempotent(c)):
			if err := r.finish(c, failed(c, message.OutcomeInterrupted, outcomeUnknown)); err != nil {
				return err
			}
			continue
		case c.Status == statusRunning && c.Sub == nil:
			// Once: what stops the program each time must not stop it for ever.
			c.Status, c.Again = statusAllowed, true
		case c.Status == statusRunning, c.Status == statusNested && r.stuckBelow(c):
			c.Status = statusAllowed // a sub-agent looks after its own calls
		case c.Status == statusCovered, c.Status == statusAsking && r.expired(c):
			c.Status = statusNew
		}
		if err := r.reopen(c); err != nil {
			return err
		}
	}
	return nil
}

// reopen checks the arguments of c once more, and looks up how its tool runs. A
// tool that is gone is found out when the call is judged.
func (r *run) reopen(c *openCall) error {
	if runs := c.Sub == nil && c.Status != statusExternal; runs && r.st.loaded && redact.Has(string(c.Input)) {
		return r.finish(c, failed(c, message.OutcomeError, redactedInput))
	}
	v, err := r.currentView()
	if err != nil {
		return err
	}
	t, err := r.tool(c)
	if err != nil {
		return nil
	}
	args, err := tool.Arguments(t, c.Input)
	if err != nil {
		return r.finish(c, failed(c, message.OutcomeError, err.Error()))
	}
	c.Input, c.Parallel, c.Late = args.JSON, t.Info().Parallel, v.Late(c.Tool)
	return nil
}

// loop takes steps until there is an end to report.
func (r *run) loop() (EndReason, error) {
	var reason EndReason
	stepped := false
	r.ctx = withReadLimit(r.stateful(r.ctx), r.cfg.Context.MaxResult)
	// The reason goes past the middleware: a step that waits or is done is none that
	// failed, and nobody is to lose it.
	inner := StepFunc(func(ctx context.Context) (err error) {
		stepped = true
		outside := r.ctx
		r.ctx = ctx
		defer func() { r.ctx = outside }()
		reason, err = r.step()
		return err
	})
	step := wrap(r.cfg.Middleware, inner, func(m Middleware) func(StepFunc) StepFunc { return m.Step })
	for reason == "" {
		stepped = false
		err := step(r.ctx)
		if err == nil && !stepped {
			err = errors.New("a Middleware.Step neither called the next nor returned an error: the run cannot go on")
		}
		if err != nil {
			// What goes wrong because the run was cancelled is no fault of its own, unless it
			// was cancelled because of a fault.
			if cause := r.ctx.Err(); cause != nil && r.turned == nil && errors.Is(err, cause) {
				return EndInterrupted, nil
			}
			return EndError, err
		}
	}
	return reason, nil
}

// step makes a model call and the tool calls of its answer, or what is left of
// that. A reason ends the run.
//
// It asks after everything what comes next, and keeps no plan: what it did is in the
// State, from which a run in another process goes on in the same way.
func (r *run) step() (EndReason, error) {
	for asked := false; ; {
		var err error
		switch act := r.next(); act {
		case actModel, actLimit, actRemind:
			if asked {
				return "", nil // the next step
			}
			asked = true
			err = r.speak(act)
		case actJudge:
			err = r.judgeAll()
		case actCall:
			err = r.call(readyCalls(r.st.open))
		case actClose:
			err = r.closeBatch()
		case actAwait:
			err = r.land(true)
		case actWait:
			answered, err := r.approveBelow()
			if err != nil {
				return "", err
			}
			if !answered {
				return EndWaiting, r.waitAgain()
			}
		case actInterrupt:
			return EndInterrupted, nil
		case actStop:
			return EndLimit, nil
		case actDone:
			return EndCompleted, r.landAll()
		}
		if err != nil {
			return "", err
		}
	}
}

// next is what the state alone says, but for what only this run knows: that it
// was cancelled, and whether a typed answer is wanted.
func (r *run) next() action {
	if r.gone || r.ctx.Err() != nil {
		return actInterrupt
	}
	// A typed answer is one, also at a limit and when calls stand beside it.
	typed := r.final != nil && r.final.value != nil
	if typed && len(r.st.open) == 0 {
		return actDone
	}
	act := next(r.st, r.limitReached)
	if act == actDone && r.final != nil {
		return actRemind
	}
	return act
}

// speak has the model say something.
func (r *run) speak(act action) error {
	switch act {
	case actLimit:
		return r.limit()
	case actRemind:
		return r.remind()
	default:
		return r.ask()
	}
}

// end closes what is open unless it waits, stores the State and emits the End.
func (r *run) end(reason EndReason, err error) {
	r.dropEarly()
	if err != nil {
		reason = EndError
	}
	ev := &End{Reason: reason, Steps: r.st.spent.Steps, Usage: r.usage}
	switch reason {
	case EndInterrupted:
		err = r.closeOpen("The run was interrupted before this call ended.")
	case EndError:
		err = errors.Join(err, r.closeOpen("The run ended with an error before this call ended."))
	}
	if reason != EndWaiting { // where settle has waited, and what is open must stay the last
		err = errors.Join(err, r.stopJobs(), r.report())
	}
	switch reason {
	case EndLimit:
		ev.Detail = r.st.spent.Stopped
		if last := r.st.Messages[len(r.st.Messages)-1]; last.Role == message.RoleAssistant {
			ev.Text = last.Text()
		}
	case EndCompleted:
		if r.final != nil {
			ev.Output = r.final.value
		}
		ev.Text = r.st.Messages[len(r.st.Messages)-1].Text()
	}
	if len(r.owed) > 0 { // of a save that failed before; this one may not
		err = errors.Join(err, r.store())
	}
	if !r.gone {
		r.number(ev) // before it is stored, so that no number comes twice
	}
	if reason != EndWaiting {
		r.st.run = ""
	}
	r.st.running = false
	if saveErr := r.save(); saveErr != nil {
		err = errors.Join(err, saveErr)
	}
	if err != nil { // after the last save, which may have failed too
		ev.Reason, ev.Detail = EndError, err.Error()
	}
	if r.cfg.Redact != nil {
		ev = r.curtain.clean(ev).(*End)
	}
	if !r.gone && r.yield(ev, nil) && err != nil {
		r.yield(nil, err)
	}
}

// emit yields an event that was stored. When the consumer has broken off it
// only cancels the run, which then ends as if its context had.
func (r *run) emit(ev Event) {
	if r.cfg.Redact == nil {
		r.tell(ev)
		return
	}
	for _, ev := range r.curtain.draw(ev) {
		r.tell(ev)
	}
}

func (r *run) tell(ev Event) {
	if r.gone {
		return
	}
	r.number(ev)
	// Should the consumer panic, a call that ends meanwhile has nobody to tell any more.
	r.gone = true
	r.gone = !r.yield(ev, nil)
	if r.gone {
		r.cancel()
	}
}

// number gives an event its place in the conversation.
func (r *run) number(ev Event) {
	r.st.seq++
	h := ev.head()
	h.Seq, h.Type, h.Time = r.st.seq, ev.kind(), r.cfg.Now()
	if h.Run == "" {
		h.Run = r.st.run
	}
}

// store stores the State and then emits the events that tell of what is new in
// it. When that fails they are owed until a later save succeeds: what is stored
// is told, and what is not is not. The run ends with the error in any case, so
// that this can only be one of the saves that close what is open.
func (r *run) store(events ...Event) error {
	r.owed = append(r.owed, events...)
	if err := r.save(); err != nil {
		return err
	}
	for _, ev := range r.owed {
		r.emit(ev)
	}
	clear(r.owed)
	r.owed = r.owed[:0]
	return nil
}

// save stores the State. A run that was cancelled still stores how it ended.
func (r *run) save() error {
	if len(r.cfg.Key) == 0 && r.cfg.Save == nil {
		return nil
	}
	var err error
	if r.st.frozen, err = r.st.encodeMoving(); err != nil {
		return fmt.Errorf("encode the session: %w", err)
	}
	defer func() { r.st.frozen = nil }()
	if len(r.cfg.Key) > 0 {
		if r.st.seal, err = r.sealOf(); err != nil {
			return fmt.Errorf("seal the session: %w", err)
		}
	}
	if r.cfg.Save == nil {
		return nil
	}
	if err := r.cfg.Save(context.WithoutCancel(r.ctx), r.st); err != nil {
		return fmt.Errorf("save the session: %w", err)
	}
	return nil
}

// addMessage adds m to the conversation, stores it, and tells of it and of what
// more comes with it.
func (r *run) addMessage(m *message.Message, finish string, more ...Event) error {
	r.st.Messages = append(r.st.Messages, m)
	r.owed = append(r.owed, &Message{Message: m, Finish: finish})
	return r.store(more...)
}

// currentView returns the view that the open calls, or the next question, see.
func (r *run) currentView() (*toolkit.View, error) {
	if r.view == nil {
		v, err := r.cfg.Toolkit.View(r.ctx, &r.st.Scope)
		if err != nil {
			return nil, fmt.Errorf("list the tools: %w", err)
		}
		for _, t := range v.Tools() {
			if t.Name == finalName && r.final != nil || t.Name == backgroundName && r.jobs != nil {
				return nil, fmt.Errorf("the toolkit has a tool named %s, which is what the agent calls one of its own; rename it", t.Name)
			}
		}
		r.view = v
	}
	return r.view, nil
}

// currentPolicy returns Config.Policy with the rules of this conversation.
func (r *run) currentPolicy() *permission.Policy {
	if r.policy == nil {
		p := r.cfg.Policy
		p.Rules = append(append([]permission.Rule(nil), p.Rules...), r.st.Rules...)
		r.policy = &p
	}
	return r.policy
}

// waitAgain tells of everything that waits. Events of this run have told of
// some of it already; a consumer that keeps the last one of each call is right.
func (r *run) waitAgain() error {
	if err := r.save(); err != nil {
		return err
	}
	for _, ev := range r.st.Pending() {
		r.emit(ev)
	}
	return r.settle()
}
