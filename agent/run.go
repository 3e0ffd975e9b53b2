package agent

// The goroutines of a run.
//
// The run's goroutine is the one that ranges over the events, the consumer's. Only it uses the run and the
// State: it decides (package decide), starts flights, handles their reports, saves, and yields events. It
// waits in one place, [run.receive].
//
// A flight (flight.go) is a call of a tool or of the model. It has its own goroutine with copies of what it
// needs. It can only put reports into the run's inbox: the chunks of a tool or model, its end, and functions
// that the run's goroutine calls because they need the State, for example for a host's question, a
// sub-agent's events and saves, or when the model checks a call in the background. Package tool runs each
// tool on one more goroutine, which it abandons if the tool does not end when it is cancelled.
//
// A call that starts before its answer is complete is a flight that is not committed: its reports wait. A
// call in the background is committed, and nothing waits for it. When a run ends, all flights have ended:
// the remaining ones are cancelled and waited for, unless the consumer has panicked.

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// Run continues the conversation in st with the messages, answers and results in inputs, and yields events.
// Without inputs it continues where an earlier run, in this or another process, was cut off.
//
// The sequence may be ranged once. It ends with exactly one [*event.End], followed by an error if the run failed.
// An error before any event means that the inputs were refused and st is unchanged. Breaking off cancels the run.
func (a *Agent) Run(ctx context.Context, st *State, inputs ...Input) iter.Seq2[event.Event, error] {
	return a.start(ctx, st, nil, inputs)
}

// start is Run, for an answer of a given type if f is not nil.
func (a *Agent) start(ctx context.Context, st *State, f *finalAnswer, inputs []Input) iter.Seq2[event.Event, error] {
	inner := RunFunc(func(ctx context.Context, st *State, inputs ...Input) iter.Seq2[event.Event, error] {
		return a.runOnce(ctx, st, f, inputs)
	})
	return wrap(a.cfg.Middleware, inner, func(m Middleware) func(RunFunc) RunFunc { return m.Run })(ctx, st, inputs...)
}

func (a *Agent) runOnce(ctx context.Context, st *State, f *finalAnswer, inputs []Input) iter.Seq2[event.Event, error] {
	used := false
	return func(yield func(event.Event, error) bool) {
		var err error
		switch {
		case used:
			err = errors.New("agent: the sequence that Run returned may be ranged once; call Run again")
		case st == nil:
			err = errors.New("agent: the State is nil; &agent.State{} is a new conversation")
		case !st.busy.CompareAndSwap(false, true):
			err = ErrBusy
		}
		used = true
		if err != nil {
			yield(nil, err)
			return
		}
		defer st.busy.Store(false)
		// A calling agent that redacts removes the secrets of this State when it stores its own. Until then it continues
		// from this State, which must keep them.
		if n := a.parent; n == nil || n.outer == nil || n.outer.Redact == nil {
			st.redactor.use(a.cfg.Redact)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		r := newRun(a, st, ctx)
		r.final = f
		r.consumer = consumer{yield: yield, cancel: cancel, redactor: eventRedactor{r: a.cfg.Redact}}
		defer r.cleanUp()
		r.run(inputs)
	}
}

func newRun(a *Agent, st *State, ctx context.Context) *run {
	return &run{entry: a, agent: a, cfg: &a.cfg, st: st, runCtx: ctx, ctx: ctx,
		inbox:     inbox{reports: make(chan report, inboxSize), closed: make(chan struct{}), limitTimer: &flight{stage: finished, cancel: func() {}}},
		questions: questionState{asking: make(chan struct{}, 1), sampling: make(chan struct{}, 1), answers: map[string][]Input{}}}
}

// cleanUp runs at the end of a run, even if the consumer panics. Reports that arrive later have no effect.
func (r *run) cleanUp() {
	r.consumer.cancel(context.Canceled)
	for _, f := range r.flights {
		if f.stage == committed {
			f.stage = finished
		}
	}
	r.dropEarly()
	r.stopLimitTimer()
	close(r.inbox.closed)
}

// run applies the inputs and takes steps until the run ends.
func (r *run) run(inputs []Input) {
	err := r.resumeHandoff()
	if err == nil {
		err = r.checkSeal()
	}
	if err == nil {
		if err = r.checkInputs(inputs); err != nil {
			err = inputError{err, r.cfg.Redact.Text(err.Error())}
		}
	}
	if err != nil {
		r.consumer.yield(nil, err)
		return
	}
	reason, err := r.begin(inputs)
	if err == nil && reason == "" {
		reason, err = r.loop()
	}
	r.end(reason, err)
}

// begin emits the first event and applies the inputs. If it returns a reason, the run ends with it.
func (r *run) begin(inputs []Input) (event.EndReason, error) {
	st := r.st
	if st.ID == "" {
		st.ID = r.cfg.NewID("ses")
	}
	id := st.loop.Run
	if id == "" {
		id = r.cfg.NewID("run")
	}
	resumed := st.loop.Begin(id)
	// Some models number their calls from 1 in every answer; an id that was used before is replaced by one of ours.
	r.dialog.ids = map[string]bool{}
	for _, m := range st.Messages {
		for _, c := range m.ToolCalls() {
			r.dialog.ids[c.ID] = true
		}
	}
	r.emit(&event.RunStart{Session: st.ID, Resumed: resumed})
	// Calls that were cut off come before the inputs: recovering may end the call that an answer is for.
	for _, bg := range r.st.loop.InBackground() { // of an earlier run that was interrupted
		r.keepBackgroundResult(bg, decide.LostResult())
	}
	if err := r.recoverCalls(); err != nil {
		return "", err
	}
	interrupt, err := r.apply(inputs)
	if err == nil && interrupt {
		return event.EndInterrupted, nil
	}
	if len(inputs) == 0 && !resumed {
		r.reuseFinal()
	}
	if left, limited := r.timeLeft(); limited {
		r.cancelCallsAfter(left)
	}
	if err == nil && slices.ContainsFunc(inputs, isCompact) {
		r.fail(r.compactNow())
		onlyCompact := !slices.ContainsFunc(inputs, func(in Input) bool { return !isCompact(in) })
		switch {
		case r.failed != nil:
			return event.EndError, nil
		case r.ctx.Err() != nil:
			return event.EndInterrupted, nil
		case onlyCompact && len(r.st.loop.Open) == 0:
			return event.EndCompleted, nil
		}
	}
	return "", err
}

func isCompact(in Input) bool { _, ok := in.(Compact); return ok }

// recoverCalls continues or ends the calls that an earlier run, perhaps of another program, left open.
func (r *run) recoverCalls() error {
	for _, c := range r.st.loop.Open {
		if c.Status == decide.Done {
			continue
		}
		recovery := decide.Recovery{Expired: r.expired(c), Stuck: c.Status == decide.Nested && r.isStuck(c)}
		if t, err := r.tool(c); err == nil {
			recovery.Idempotent = isIdempotent(t, c.Input)
		}
		err := error(nil)
		if c.Recover(recovery) {
			c.Result = r.cleanResult(c.ID, c.Name, c.Result)
			err = r.store(newToolResult(c))
		} else {
			err = r.reopen(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reopen checks the arguments of c again, and looks up how its tool runs. A tool that no longer exists is reported
// when the call is judged.
func (r *run) reopen(c *openCall) error {
	if runs := c.Sub == nil && c.Status != decide.External; runs && r.st.loaded && redact.Has(string(c.Input)) {
		return r.recordResult(c, decide.ResultOf(c, message.OutcomeError, secretRemoved))
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
		return r.recordResult(c, notRun(c, err))
	}
	c.Input, c.Parallel, c.ChangesGroups = args.JSON, t.Info().Parallel, v.ChangesGroups(c.Tool)
	return nil
}

// loop takes steps until the run ends.
func (r *run) loop() (event.EndReason, error) {
	var reason event.EndReason
	stepped, returned := false, false
	// The reason does not pass through the middleware: a step that waits or completes has not failed, and no
	// middleware can lose the reason.
	inner := StepFunc(func(ctx context.Context) (err error) {
		stepped = true
		outer := r.ctx
		r.ctx = ctx
		defer func() { r.ctx = outer }()
		reason, err = r.step()
		returned = true
		return err
	})
	var step StepFunc
	var stepAgent *Agent // the agent whose middleware is around step
	for reason == "" {
		if stepAgent != r.agent { // the first time, and after a hand-off
			stepAgent = r.agent
			r.ctx = withReadLimit(r.withToolState(r.ctx), r.cfg.Window.MaxResult)
			step = wrap(r.cfg.Middleware, inner, func(m Middleware) func(StepFunc) StepFunc { return m.Step })
		}
		stepped, returned = false, false
		err := step(r.ctx)
		switch {
		case stepped && !returned:
			r.cancelStepCalls()
			return event.EndError, join(err, errors.New("a Middleware.Step recovered from a panic of its step: the run cannot continue"))
		case !stepped && err == nil:
			return event.EndError, errors.New("a Middleware.Step neither called the next nor returned an error: the run cannot continue")
		case err != nil:
			if r.fail(err); r.failed == nil {
				return event.EndInterrupted, nil
			}
			return event.EndError, nil // r.failed says why
		}
	}
	return reason, nil
}

// step makes a model call and the tool calls of its answer, or the rest of a step that was interrupted. If it
// returns a reason, the run ends with that.
//
// After every action it asks decide.Next what to do, and keeps no plan: all progress is in the State, from
// which a run in another process continues in the same way.
func (r *run) step() (event.EndReason, error) {
	for asked := false; ; {
		var err error
		next := decide.Next(&r.st.loop, r.situation())
		if next.AsksModel() {
			if asked {
				return "", nil // the next step
			}
			asked = true
		}
		switch next.Action {
		case decide.AskModel:
			err = r.ask(next.Hint)
		case decide.LastAnswer:
			err = r.lastAnswer(next.Limit)
		case decide.Remind:
			err = r.remind()
		case decide.Judge:
			err = r.judge(next.Calls[0])
		case decide.Start:
			err = r.startAll(next.Calls)
		case decide.Receive:
			r.receive()
		case decide.Close:
			r.dropEarly()
			var v *toolkit.View
			if v, err = r.currentView(); err == nil {
				err = r.addResults(v)
			}
		case decide.WaitBackground:
			err = r.awaitOneBackground()
		case decide.Wait:
			var answered bool
			if answered, err = r.approve(r.st.loop.Open...); err == nil && !answered {
				return event.EndWaiting, r.announcePending()
			}
		case decide.Fail:
			return event.EndError, r.failed
		case decide.Interrupt:
			return event.EndInterrupted, nil
		case decide.Stop:
			return event.EndLimit, nil
		case decide.Finish:
			return event.EndCompleted, r.awaitBackground()
		}
		r.fail(err)
	}
}

// announcePending emits everything that the conversation waits for. Some of it was already emitted in this run; a
// consumer should keep the last event of each call. Calls in the background end before the run does, and
// users can answer only after the run, so the time for an answer starts then.
func (r *run) announcePending() error {
	seq := r.st.loop.Seq
	for _, c := range r.st.loop.Open {
		for i, ev := range pendingOf(c, r.st.loop.Run) {
			r.emitAfterSave(ev)
			if h := ev.Head(); i == 0 {
				c.Announced = decide.Announced{Seq: h.Seq, Time: h.Time}
			}
		}
	}
	if err := r.save(); err != nil {
		r.consumer.discardAfter(seq)
		return err
	}
	if len(r.st.loop.InBackground()) == 0 {
		return nil
	}
	asking := slices.DeleteFunc(slices.Clone(r.st.loop.Open), func(c *openCall) bool { return c.Status != decide.Asking || r.expired(c) })
	err := r.awaitBackground()
	for _, c := range asking {
		c.Asked = r.cfg.Now()
	}
	return err
}

// end ends the open calls unless the run waits, stores the State and emits the End.
func (r *run) end(reason event.EndReason, err error) {
	r.flush() // if Config.Approve panicked
	r.dropEarly()
	if err = join(err, r.failed); err != nil {
		reason = event.EndError
	}
	switch reason {
	case event.EndInterrupted:
		err = r.closeOpen("The run was interrupted before this call ended.")
	case event.EndError:
		err = join(err, r.closeOpen("The run ended with an error before this call ended."))
	}
	if reason != event.EndWaiting { // otherwise announcePending has waited, and the open calls must stay last
		err = join(err, r.stopBackground(), r.addBackgroundResults())
	}
	ev := r.endEvent(reason)
	if len(r.consumer.unsent)+len(r.consumer.held) > 0 { // of an earlier save that failed; this one may succeed
		err = join(err, r.store())
	}
	if err != nil {
		ev.Reason, ev.Detail = event.EndError, err.Error()
	}
	last := redacted(r.cfg.Redact, ev)
	r.number(last) // before it is stored, like every event
	r.st.loop.End(reason == event.EndWaiting)
	if failed := r.save(); failed != nil {
		err = join(err, failed)
		ev.Reason, ev.Detail, ev.Header = event.EndError, err.Error(), last.Header
		last = redacted(r.cfg.Redact, ev)
	}
	if !r.consumer.stopped && r.consumer.yield(last, nil) && err != nil {
		r.consumer.yield(nil, err)
	}
}

func (r *run) endEvent(reason event.EndReason) *event.End {
	ev := &event.End{Reason: reason, Steps: r.st.loop.Spent.Steps, Usage: r.dialog.usage}
	switch reason {
	case event.EndInterrupted:
		ev.Detail = r.whyUnanswered()
	case event.EndLimit:
		ev.Detail = r.st.loop.Spent.Stopped
		if why := r.whyUnanswered(); why != "" {
			ev.Detail += "; the model gave no answer: " + why
		}
		if last := decide.FullAnswer(r.st.Messages); last.Role == message.RoleAssistant {
			ev.Text = last.Text()
		}
	case event.EndCompleted:
		if r.final != nil {
			ev.Output = r.final.value
		}
		ev.Text = decide.FullAnswer(r.st.Messages).Text()
	}
	return ev
}

// whyUnanswered returns why the model's last call gave no answer: its error, or what it was waiting for when
// it was cut off, such as the end of a rate limit; "" if it was only cancelled.
func (r *run) whyUnanswered() string {
	err := r.answerErr
	cancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if e, ok := err.(*model.Error); ok && cancelled && e.Kind == model.KindConnection { // the request itself was cut off, not a wait before it
		err = nil
	}
	if err == nil || err == context.Canceled || err == context.DeadlineExceeded {
		return ""
	}
	return err.Error()
}
