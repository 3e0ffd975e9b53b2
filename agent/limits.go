package agent

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
)

// limits returns Config.Limits as package decide needs them.
func (r *run) limits() decide.Limits {
	l := &r.cfg.Limits
	return decide.Limits{Steps: l.Steps, ToolCalls: l.ToolCalls, Tokens: l.Tokens, Time: l.Time, Cost: l.Cost,
		Samples: l.Samples, SampleTokens: l.SampleTokens}
}

// situation returns what decide.Next needs in addition to the State.
func (r *run) situation() decide.Situation {
	in := decide.Situation{Messages: r.st.Messages, Limits: r.limits(), Now: r.cfg.Now(), Parallel: r.cfg.MaxParallel,
		Cancelled: r.consumer.stopped || r.ctx.Err() != nil, Failed: r.failed != nil}
	if r.final != nil {
		in.Typed = decide.Wanted
		if r.final.value != nil {
			in.Typed = decide.Given
		}
	}
	if len(r.st.loop.Open) == 0 { // the limit prevents only model calls: open calls may still run
		in.OuterLimit = r.outerLimit()
	}
	return in
}

// askOuter calls ask with the outer run and returns the result of ask. It returns none if there is no outer run, and ended
// if the outer run has ended, since this run will end too.
func askOuter[T any](r *run, none, ended T, ask func(outer *run) T) T {
	if r.agent.parent == nil {
		return none
	}
	answer := none // also if the agent is used as a tool outside a run
	if r.agent.parent.do(func(outer *run, _ *openCall) error { answer = ask(outer); return nil }) != nil {
		return ended
	}
	return answer
}

// outerLimit returns the limit that an outer run has reached, "" for none.
func (r *run) outerLimit() string { return askOuter(r, "", "", (*run).sharedLimit) }

// sharedLimit returns the limit that this run or an outer run has reached, "" for none.
func (r *run) sharedLimit() string {
	return cmp.Or(r.st.loop.Spent.ReachedShared(r.limits(), r.cfg.Now()), r.outerLimit())
}

// countCall counts a tool call and reports whether the limits of this run and of the outer runs allow it. It counts and
// checks at once, so that agents that run concurrently do not both make the last allowed call.
func (r *run) countCall() bool {
	allowed := r.st.loop.Spent.CountCall(r.limits())
	return askOuter(r, true, false, (*run).countCall) && allowed
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
func (r *run) timeLeft() (left time.Duration, limited bool) {
	return r.st.loop.Spent.Left(r.limits(), r.cfg.Now())
}

// timeIsUp reports whether Limits.Time has passed: then no call may start except final_answer. timeLeft compares wall
// clock times, as the State may be from another process, so the timer may fire while some time is left by that clock.
func (r *run) timeIsUp() bool {
	left, limited := r.timeLeft()
	return limited && (left <= 0 || r.inbox.limitTimer.ended)
}

// stopLimitTimer stops the timer of Limits.Time. A report that the timer sends at this moment has no effect.
func (r *run) stopLimitTimer() {
	r.inbox.limitTimer.ended = true
	r.inbox.limitTimer.cancel()
}

// cancelCallsAfter sets the timer that cancels all calls when left has passed. It replaces an earlier timer.
func (r *run) cancelCallsAfter(left time.Duration) {
	r.stopLimitTimer()
	sender := new(flight)
	r.inbox.limitTimer = sender
	timer := time.AfterFunc(left, func() {
		// An error means that the run has ended or the timer was set again.
		_ = r.inbox.ask(sender, func() error {
			sender.ended = true
			cause := fmt.Errorf("%w, %s was reached", errTimeUp, r.limits().TimeLimit())
			for _, f := range r.flights {
				f.cancelWith(cause)
			}
			return nil
		})
	})
	sender.cancel = func() { timer.Stop() }
}
