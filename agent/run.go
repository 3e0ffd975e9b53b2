package agent

// The goroutines of a run.
//
// The run's goroutine is the one that ranges over the events, the consumer's. Only it uses the run and the
// State: it decides (package decide), starts flights, handles their reports, saves, and yields events. It
// waits in one place, [run.receive].
//
// A flight (flight.go) is a call of a tool or of the model. A flight has its own goroutine with copies of what it
// needs, and can only put reports into the run's inbox: the chunks of a tool or model, the end of the flight, and
// functions that need the State, which the run's goroutine calls: for example for the question of a tool, a
// sub-agent's events and saves, or when the model checks a background call. Package tool runs each
// tool on one more goroutine, and abandons this goroutine if a cancelled tool does not end.
//
// A background call is a flight that the next steps do not wait for. When a run ends, all flights have ended:
// end cancels the remaining flights and waits for them, unless the consumer has panicked.

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

// start is Run for the typed answer final, or for a text if final is nil.
func (a *Agent) start(ctx context.Context, st *State, final *finalAnswer, inputs []Input) iter.Seq2[event.Event, error] {
	inner := RunFunc(func(ctx context.Context, st *State, inputs ...Input) iter.Seq2[event.Event, error] {
		return a.newSequence(ctx, st, final, inputs)
	})
	return wrap(a.cfg.Middleware, inner, func(m Middleware) func(RunFunc) RunFunc { return m.Run })(ctx, st, inputs...)
}

// newSequence returns the events of a run without Middleware.Run. Ranging over them is the run.
func (a *Agent) newSequence(ctx context.Context, st *State, final *finalAnswer, inputs []Input) iter.Seq2[event.Event, error] {
	used := false
	return func(yield func(event.Event, error) bool) {
		var err error
		switch {
		case used:
			err = errors.New("agent: the sequence that Run returned may be ranged only once; call Run again")
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
		// The JSON of a sub-agent's State is part of the outer State. An outer run that redacts removes the secrets from
		// both when it saves; until then the JSON keeps them, since the outer run continues the sub-agent from it.
		if link := a.parent; link == nil || link.outer == nil || link.outer.Redact == nil {
			st.redactor.use(a.cfg.Redact)
		}
		ctx, cancel := context.WithCancelCause(ctx)
		r := newRun(ctx, a, st)
		r.final = final
		r.consumer = consumer{yield: yield, cancel: cancel, redactor: eventRedactor{r: a.cfg.Redact}}
		defer r.cleanUp()
		r.run(inputs)
	}
}

func newRun(ctx context.Context, a *Agent, st *State) *run {
	noTimer := &flight{ended: true, cancel: func() {}}
	return &run{entry: a, agent: a, cfg: &a.cfg, st: st, runCtx: ctx, ctx: ctx,
		inbox:     inbox{reports: make(chan report, inboxSize), closed: make(chan struct{}), limitTimer: noTimer},
		questions: questionState{asking: make(chan struct{}, 1), sampling: make(chan struct{}, 1), answers: map[string][]Input{}}}
}

// cleanUp is called at the end of a run, even if the consumer panics. Reports that arrive later are dropped.
func (r *run) cleanUp() {
	r.consumer.cancel(context.Canceled)
	r.stopLimitTimer()
	close(r.inbox.closed)
}

// run applies the inputs and takes steps until the run ends.
func (r *run) run(inputs []Input) {
	if err := r.check(inputs); err != nil {
		r.consumer.yield(nil, err)
		return
	}
	reason, err := r.begin(inputs)
	if err == nil && reason == "" {
		reason, err = r.loop()
	}
	r.end(reason, err)
}

// check returns an error if the run cannot begin. The State is then unchanged.
func (r *run) check(inputs []Input) error {
	if err := r.resumeHandoff(); err != nil {
		return err
	}
	if err := r.checkSeal(); err != nil {
		return err
	}
	if err := r.checkInputs(inputs); err != nil {
		return inputError{err, r.cfg.Redact.Text(err.Error())}
	}
	return nil
}

// begin emits the first event and applies the inputs. If it returns a reason, the run ends with this reason.
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
	// Some models number their calls from 1 in every answer: openCall replaces an id that was used before.
	r.dialog.ids = map[string]bool{}
	for _, m := range st.Messages {
		for _, c := range m.ToolCalls() {
			r.dialog.ids[c.ID] = true
		}
	}
	r.emit(&event.RunStart{Session: st.ID, Resumed: resumed})
	for _, bg := range st.loop.InBackground() { // background calls of a run that was cut off
		r.keepBackgroundResult(bg, decide.LostResult())
	}
	// Before the inputs are applied: recoverCalls may end a call that one of the inputs answers.
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
		case onlyCompact && len(st.loop.Open) == 0:
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
		t, err := r.tool(c)
		if err == nil {
			recovery.Idempotent = isIdempotent(t, c.Input)
		}
		if c.Recover(recovery) { // the call must not run again
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

// reopen prepares c, which will continue or run again: it checks the arguments, and sets what depends on the toolkit.
func (r *run) reopen(c *openCall) error {
	newArgs := c.Sub == nil && c.Status != decide.External // neither a sub-agent nor the host has got the arguments already
	if newArgs && r.st.loaded && redact.Has(string(c.Input)) {
		return r.recordResult(c, decide.ResultOf(c, message.OutcomeError, secretRemoved))
	}
	v, err := r.currentView()
	if err != nil {
		return err
	}
	t, err := r.tool(c)
	if err != nil { // judge reports it
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
	// The reason is not returned through the middleware, which cannot lose it then.
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
			return event.EndError, errors.New("a Middleware.Step neither called the next StepFunc nor returned an error: the run cannot continue")
		case err != nil:
			if r.fail(err); r.failed == nil { // err only says that the run was cancelled
				return event.EndInterrupted, nil
			}
			return event.EndError, nil // end reports r.failed
		}
	}
	return reason, nil
}

// step makes a model call and the tool calls of the answer, or the rest of a step that was interrupted. If step
// returns a reason, the run ends with this reason.
//
// decide.Next chooses each action by the State alone, so that a run in another process can continue in the middle of a
// step.
func (r *run) step() (event.EndReason, error) {
	for asked := false; ; {
		var err error
		next := decide.Next(&r.st.loop, r.situation())
		if next.AsksModel() {
			if asked { // a second model call belongs to the next step
				return "", nil
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

// announcePending emits an event for everything that the conversation waits for, even if it was already emitted in this
// run, and waits for the background calls. Users can only answer after the run, so the time for an answer starts when
// the background calls have ended.
func (r *run) announcePending() error {
	seqBefore := r.st.loop.Seq
	for _, c := range r.st.loop.Open {
		for i, ev := range pendingOf(c, r.st.loop.Run) {
			r.emitAfterSave(ev)
			if i == 0 { // pendingInSub computes the numbers of further events
				c.Announced = decide.Announced{Seq: ev.Head().Seq, Time: ev.Head().Time}
			}
		}
	}
	if err := r.save(); err != nil {
		r.consumer.discardAfter(seqBefore)
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
	r.flush() // the events that waited while Config.Approve was called, if it panicked
	if err = join(err, r.failed); err != nil {
		reason = event.EndError
	}
	switch reason {
	case event.EndInterrupted:
		err = r.closeOpen("The run was interrupted before this call ended.")
	case event.EndError:
		err = join(err, r.closeOpen("The run ended with an error before this call ended."))
	}
	if reason != event.EndWaiting { // announcePending has waited for background calls, and no message may follow open calls
		err = join(err, r.stopBackground(), r.addBackgroundResults())
	}
	ev := r.endEvent(reason)
	if len(r.consumer.unsent)+len(r.consumer.held) > 0 { // an earlier save has failed; the next may succeed
		err = join(err, r.store())
	}
	if err != nil {
		ev.Reason, ev.Detail = event.EndError, err.Error()
	}
	clean := redacted(r.cfg.Redact, ev)
	r.number(clean) // before the save, which stores it
	r.st.loop.End(reason == event.EndWaiting)
	if saveErr := r.save(); saveErr != nil {
		err = join(err, saveErr)
		ev.Reason, ev.Detail, ev.Header = event.EndError, err.Error(), clean.Header
		clean = redacted(r.cfg.Redact, ev)
	}
	if !r.consumer.stopped && r.consumer.yield(clean, nil) && err != nil {
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

// whyUnanswered returns why the last model call gave no answer, "" if the only reason is that it was cancelled. If the call
// was cancelled while it waited to send the request again, the error says why: for example because of a rate limit.
func (r *run) whyUnanswered() string {
	err := r.answerErr
	if err == nil || err == context.Canceled || err == context.DeadlineExceeded {
		return ""
	}
	cancelled := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if e, ok := err.(*model.Error); ok && cancelled && e.Kind == model.KindConnection { // cancelled during the request
		return ""
	}
	return err.Error()
}
