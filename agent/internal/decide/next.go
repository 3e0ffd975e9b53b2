package decide

import (
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// An Action is what a run does next.
type Action int

// The actions.
const (
	AskModel       Action = iota
	LastAnswer            // a limit was reached: ask the model for a last answer
	Remind                // the model has answered without the required typed answer: ask for that
	Judge                 // decide about a new call
	Start                 // start calls
	Receive               // wait for a report of a running call
	Close                 // all calls have ended: add their results to the conversation
	Wait                  // ask the user, or end the run until the user or the host has answered
	WaitBackground        // the model has answered, but calls run in the background: wait for one
	Stop                  // end the run because of a limit, see Spent.Stopped
	Finish                // end the run: the model has answered
	Interrupt             // end the run: it was cancelled, or the consumer has stopped
	Fail                  // end the run with an error
)

// An Effect is an action with its details.
type Effect struct {
	Action Action
	Calls  []*Call // of Judge and Start
	Limit  string  // of LastAnswer: the limit that was reached
	Hint   string  // of AskModel: a hint to add to the conversation before the model is called, "" for none
}

// AsksModel reports whether the action begins a step of the run: a model call or a hint before it.
func (e Effect) AsksModel() bool {
	return e.Action == AskModel || e.Action == LastAnswer || e.Action == Remind
}

// Typed says whether a run must end with an answer of a Go type.
type Typed int

// The values of Typed.
const (
	Untyped Typed = iota
	Wanted
	Given // the model has given the typed answer
)

// A Situation is what [Next] depends on in addition to the State.
type Situation struct {
	Messages   []*message.Message
	Limits     Limits
	OuterLimit string // the limit that an outer run has reached, "" for none
	Now        time.Time
	Parallel   int  // how many calls may run at a time
	Cancelled  bool // the run was cancelled, or the consumer has stopped
	Failed     bool // an error must end the run
	Typed      Typed
}

// Next decides what a run does next. The conversation must not be empty.
func Next(s *State, in Situation) Effect {
	running := s.count(Running)
	switch {
	case (in.Failed || in.Cancelled) && running > 0:
		return Effect{Action: Receive}
	case in.Failed:
		return Effect{Action: Fail}
	case in.Cancelled:
		return Effect{Action: Interrupt}
	case len(s.Open) > 0:
		return s.nextCall(running, in.Parallel)
	case in.Typed == Given: // even at a limit, or with other calls in the same answer
		return Effect{Action: Finish}
	}
	answered := in.Messages[len(in.Messages)-1].Role == message.RoleAssistant
	switch {
	case s.Spent.Stopped != "":
		return Effect{Action: Stop}
	case answered && len(s.Background) > 0:
		return Effect{Action: WaitBackground}
	case answered && in.Typed == Wanted:
		return Effect{Action: Remind}
	case answered:
		return Effect{Action: Finish}
	}
	if limit := s.Reached(in); limit != "" {
		return Effect{Action: LastAnswer, Limit: limit}
	}
	return Effect{Action: AskModel, Hint: loopHint(in.Messages)}
}

// nextCall decides while calls are open. All calls are judged before any starts, and all that may run have run before the
// run waits for the user. Nothing is judged while calls run, since they may change what the decision depends on.
func (s *State) nextCall(running, parallel int) Effect {
	if running == 0 {
		if s.EndedCalls() == len(s.Open) {
			return Effect{Action: Close}
		}
		if i := slices.IndexFunc(s.Open, func(c *Call) bool { return c.Status == New }); i >= 0 {
			return Effect{Action: Judge, Calls: s.Open[i : i+1]}
		}
	}
	if ready := Ready(s.Open); len(ready) > 0 && running < parallel {
		return Effect{Action: Start, Calls: ready[:min(len(ready), parallel-running)]}
	}
	if running > 0 {
		return Effect{Action: Receive}
	}
	return Effect{Action: Wait}
}

// Ready returns the calls that may start now: one call that must run alone, or a batch of parallel calls. A call that
// must run alone waits until all calls before it have ended, and all calls after it wait for it. Parallel calls do
// not wait for each other. Calls that change groups run alone, after all other calls.
func Ready(open []*Call) []*Call {
	var batch []*Call
	unready := false // an earlier parallel call runs, or waits for an answer
	for _, changesGroups := range []bool{false, true} {
		for i, c := range open {
			if c.ChangesGroups != changesGroups || c.Status == Done {
				continue
			}
			alone := !c.Parallel || c.ChangesGroups
			switch {
			case alone && c.Status == Allowed && !unready && len(batch) == 0:
				return open[i : i+1 : i+1]
			case alone:
				return batch
			case c.Status == Allowed:
				batch = append(batch, c)
			default:
				unready = true
			}
		}
		if unready || len(batch) > 0 {
			return batch
		}
	}
	return batch
}
