package agent

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/kitbag-go/kitbag/agent/internal/decide"
	"github.com/kitbag-go/kitbag/message"
)

// limits returns what the rules of the loop know of Config.Limits.
func (r *run) limits() decide.Limits {
	l := &r.cfg.Limits
	return decide.Limits{Steps: l.Steps, ToolCalls: l.ToolCalls, Tokens: l.Tokens, Time: l.Time, Cost: l.Cost,
		Samples: l.Samples, SampleTokens: l.SampleTokens}
}

// situation returns what counts, in addition to the State, when the next step is decided.
func (r *run) situation() decide.Situation {
	in := decide.Situation{Messages: r.st.Messages, Limits: r.limits(), Now: r.cfg.Now(), Parallel: r.cfg.MaxParallel,
		Ended: r.consumer.stopped || r.ctx.Err() != nil, Failed: r.failed != nil}
	if r.final != nil {
		in.Typed = decide.Wanted
		if r.final.value != nil {
			in.Typed = decide.Given
		}
	}
	if len(r.st.loop.Open) == 0 { // else it does not count yet
		in.Above = r.limitAbove()
	}
	return in
}

// limitReached names the limit because of which this run may not ask the model, "" for none.
func (r *run) limitReached() string {
	in := r.situation()
	in.Above = r.limitAbove()
	return r.st.loop.Reached(in)
}

// fromAbove returns what the run that this one works for says, none if there is no such run, and gone
// if it has ended: then this one is about to.
func fromAbove[T any](r *run, none, gone T, ask func(outer *run) T) T {
	if r.a.parent == nil {
		return none
	}
	answer := none // also where an agent is a tool without a run around it
	if r.a.parent.do(func(outer *run, _ *openCall) error { answer = ask(outer); return nil }) != nil {
		return gone
	}
	return answer
}

// limitAbove names the limit that is used up of the runs that this one works for.
func (r *run) limitAbove() string { return fromAbove(r, "", "", (*run).sharedLimit) }

// sharedLimit names the limit that is used up of this run or of one that it works for.
func (r *run) sharedLimit() string {
	return cmp.Or(r.st.loop.Spent.Shared(r.limits(), r.cfg.Now()), r.limitAbove())
}

// takeCall counts a call of the model and reports whether the limits, of this run and of those that
// it works for, allow it: at once, since agents that work side by side must not both have the last
// one.
func (r *run) takeCall() bool {
	own := r.st.loop.Spent.TakeCall(r.limits())
	return fromAbove(r, true, false, (*run).takeCall) && own
}

// callsLeft returns how many calls the model may make for certain. What is left of a limit that
// agents share is certain for none of them.
func (r *run) callsLeft() int {
	if fromAbove(r, math.MaxInt, 0, (*run).callsLeft) != math.MaxInt {
		return 0
	}
	if limit := r.cfg.Limits.ToolCalls; limit > 0 {
		return limit - r.st.loop.Spent.Calls
	}
	return math.MaxInt
}

// charge counts what the sub-agent that works on c has cost since the last time. It is stored
// together with the sub-agent's State, so that after a crash, too, nothing is charged twice or
// forgotten.
func (r *run) charge(c *openCall, total decide.Charge) {
	r.account(total.Since(c.Charged))
	c.Charged = total
}

// spend adds what an answer cost.
func (r *run) spend(m *message.Message) {
	if m.Usage == nil {
		return
	}
	cost := decide.Charge{Usage: *m.Usage}
	if r.cfg.Limits.Price != nil {
		cost.Cost = r.cfg.Limits.Price(m.Model, *m.Usage)
	}
	r.account(cost)
}

// account counts what this agent, or one that worked for it, has cost.
func (r *run) account(cost decide.Charge) {
	r.dialog.usage.Add(cost.Usage)
	r.st.Usage.Add(cost.Usage)
	r.st.loop.Spent.Add(cost)
}

// timeLeft returns how much of Limits.Time is left, and whether there is such a limit.
func (r *run) timeLeft() (time.Duration, bool) {
	return r.st.loop.Spent.Left(r.limits(), r.cfg.Now())
}

// timeIsUp reports whether Limits.Time has passed: nothing starts then but the last answer. The timer
// may be ahead of a wall clock that a loaded State is compared with.
func (r *run) timeIsUp() bool {
	left, limited := r.timeLeft()
	return limited && (left <= 0 || r.inbox.timer.stage == finished)
}

// stopTimer has the timer report nothing, also where it is about to.
func (r *run) stopTimer() {
	r.inbox.timer.stage = finished
	r.inbox.timer.cancel()
}

// watchTime has all calls cancelled after that long, instead of when it was set before.
func (r *run) watchTime(left time.Duration) {
	r.stopTimer()
	f := &flight{stage: committed}
	r.inbox.timer = f
	timer := time.AfterFunc(left, func() {
		// An error: the run has ended, or another time counts.
		_ = r.inbox.ask(f, func() error {
			f.stage = finished
			r.endFlights(fmt.Errorf("%w, %s was reached", errTimeUp, r.limits().TimeUp()))
			return nil
		})
	})
	f.cancel = func() { timer.Stop() }
}
