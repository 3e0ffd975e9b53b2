package agent

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
)

// limits returns Config.Limits in the form that the loop's rules use.
func (r *run) limits() decide.Limits {
	l := &r.cfg.Limits
	return decide.Limits{Steps: l.Steps, ToolCalls: l.ToolCalls, Tokens: l.Tokens, Time: l.Time, Cost: l.Cost,
		Samples: l.Samples, SampleTokens: l.SampleTokens}
}

// situation returns the input, in addition to the State, for the decision about the next step.
func (r *run) situation() decide.Situation {
	in := decide.Situation{Messages: r.st.Messages, Limits: r.limits(), Now: r.cfg.Now(), Parallel: r.cfg.MaxParallel,
		Ended: r.consumer.stopped || r.ctx.Err() != nil, Failed: r.failed != nil}
	if r.final != nil {
		in.Typed = decide.Wanted
		if r.final.value != nil {
			in.Typed = decide.Given
		}
	}
	if len(r.st.loop.Open) == 0 { // open calls may still run
		in.OuterLimit = r.outerLimit()
	}
	return in
}

// askOuter calls ask with the outer run and returns its result. It returns none if there is no outer run, and ended
// if that has ended, since this run will end too.
func askOuter[T any](r *run, none, ended T, ask func(outer *run) T) T {
	if r.a.parent == nil {
		return none
	}
	answer := none // also if the agent is used as a tool outside a run
	if r.a.parent.do(func(outer *run, _ *openCall) error { answer = ask(outer); return nil }) != nil {
		return ended
	}
	return answer
}

// outerLimit returns the limit that an outer run has reached, "" for none.
func (r *run) outerLimit() string { return askOuter(r, "", "", (*run).sharedLimit) }

// sharedLimit returns the limit that this run or an outer run has reached, "" for none.
func (r *run) sharedLimit() string {
	return cmp.Or(r.st.loop.Spent.Shared(r.limits(), r.cfg.Now()), r.outerLimit())
}

// countCall counts a call of the model and reports whether the limits of this run and of the outer runs allow it. It
// does both at once, so that agents that run concurrently do not both use the last one.
func (r *run) countCall() bool {
	allowed := r.st.loop.Spent.CountCall(r.limits())
	return askOuter(r, true, false, (*run).countCall) && allowed
}

// callsLeft returns how many more calls are certain to be allowed: none if other agents share the limit.
func (r *run) callsLeft() int {
	if askOuter(r, math.MaxInt, 0, (*run).callsLeft) != math.MaxInt {
		return 0
	}
	if limit := r.cfg.Limits.ToolCalls; limit > 0 {
		return limit - r.st.loop.Spent.Calls
	}
	return math.MaxInt
}

// spend counts the tokens and the cost of a model call.
func (r *run) spend(m *message.Message) {
	if m.Usage == nil {
		return
	}
	charge := decide.Charge{Usage: *m.Usage}
	if r.cfg.Limits.Price != nil {
		charge.Cost = r.cfg.Limits.Price(m.Model, *m.Usage)
	}
	r.addCharge(charge)
}

// addCharge counts a charge of this agent or of a sub-agent.
func (r *run) addCharge(charge decide.Charge) {
	r.dialog.usage.Add(charge.Usage)
	r.st.Usage.Add(charge.Usage)
	r.st.loop.Spent.Add(charge)
}

// timeLeft returns how much of Limits.Time is left, and whether there is such a limit.
func (r *run) timeLeft() (time.Duration, bool) {
	return r.st.loop.Spent.Left(r.limits(), r.cfg.Now())
}

// timeIsUp reports whether Limits.Time has passed: only the final answer may start then. The timer
// may fire before the wall clock, which is compared with a loaded State, says so.
func (r *run) timeIsUp() bool {
	left, limited := r.timeLeft()
	return limited && (left <= 0 || r.inbox.timer.stage == finished)
}

// stopTimer stops the timer, even if it is about to report.
func (r *run) stopTimer() {
	r.inbox.timer.stage = finished
	r.inbox.timer.cancel()
}

// cancelCallsAfter sets the timer, which cancels all calls when it expires. It replaces an earlier timer.
func (r *run) cancelCallsAfter(left time.Duration) {
	r.stopTimer()
	f := &flight{stage: committed}
	r.inbox.timer = f
	timer := time.AfterFunc(left, func() {
		// An error means that the run has ended or the timer was set again.
		_ = r.inbox.ask(f, func() error {
			f.stage = finished
			cause := fmt.Errorf("%w, %s was reached", errTimeUp, r.limits().TimeUp())
			for _, f := range r.flights {
				f.cancelWith(cause)
			}
			return nil
		})
	})
	f.cancel = func() { timer.Stop() }
}
