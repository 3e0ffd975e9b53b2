package decide

import (
	"slices"
	"time"

	"github.com/kitbag-go/kitbag/message"
)

// A Step is what a run does next.
type Step int

// The steps.
const (
	AskModel       Step = iota
	LastAnswer          // a limit was reached: ask the model for a last answer
	Remind              // the model has answered, but not with the required typed answer
	Judge               // decide about a call that has not been judged
	Start               // start calls
	Receive             // wait for a call that runs
	Close               // all calls have ended: add their results to the conversation
	Wait                // an answer of the user or the host is needed
	WaitBackground      // the model has answered, but calls run in the background
	Stop                // a limit has ended the run, see Spent.Stopped
	Finish              // the model has answered
	Interrupt           // the run was cancelled, or the consumer has stopped
	Fail                // an error ends the run
)

// An Effect is a step with its details.
type Effect struct {
	Step  Step
	Calls []*Call // of Judge and Start
	Limit string  // of LastAnswer: the limit that was reached
	Hint  string  // of AskModel: a hint to add before, "" for nothing
}

// AsksModel reports whether the step calls the model.
func (e Effect) AsksModel() bool {
	return e.Step == AskModel || e.Step == LastAnswer || e.Step == Remind
}

// Typed says whether a run must end with an answer of a Go type.
type Typed int

// The values of Typed.
const (
	Untyped Typed = iota
	Wanted
	Given // the model has given it
)

// A Situation is what the decision about the next step depends on in addition to the State.
type Situation struct {
	Messages   []*message.Message
	Limits     Limits
	OuterLimit string // the limit that an outer run has reached
	Now        time.Time
	Parallel   int  // how many calls may run at a time
	Ended      bool // the run was cancelled, or the consumer has stopped
	Failed     bool // an error must end the run
	Typed      Typed
}

// Next decides the next step of a run.
func Next(s *State, in Situation) Effect {
	running := s.count(Running)
	switch {
	case (in.Failed || in.Ended) && running > 0:
		return Effect{Step: Receive}
	case in.Failed:
		return Effect{Step: Fail}
	case in.Ended:
		return Effect{Step: Interrupt}
	case len(s.Open) > 0:
		return s.nextCall(running, in.Parallel)
	case in.Typed == Given: // even at a limit, or with other calls in the same answer
		return Effect{Step: Finish}
	}
	last := in.Messages[len(in.Messages)-1].Role
	switch {
	case s.Spent.Stopped != "":
		return Effect{Step: Stop}
	case last == message.RoleAssistant && len(s.Background) > 0:
		return Effect{Step: WaitBackground}
	case last == message.RoleAssistant && in.Typed == Wanted:
		return Effect{Step: Remind}
	case last == message.RoleAssistant:
		return Effect{Step: Finish}
	}
	if limit := s.Reached(in); limit != "" {
		return Effect{Step: LastAnswer, Limit: limit}
	}
	return Effect{Step: AskModel, Hint: loopHint(in.Messages)}
}

// nextCall decides while calls are open. It judges before it runs, and runs before it waits: when the user is
// asked, everything that needed no answer is done.
func (s *State) nextCall(running, parallel int) Effect {
	if running == 0 {
		if s.EndedCalls() == len(s.Open) {
			return Effect{Step: Close}
		}
		if i := slices.IndexFunc(s.Open, func(c *Call) bool { return c.Status == New }); i >= 0 {
			return Effect{Step: Judge, Calls: s.Open[i : i+1]}
		}
	}
	if ready := Ready(s.Open); len(ready) > 0 && running < parallel {
		return Effect{Step: Start, Calls: ready[:min(len(ready), parallel-running)]}
	}
	if running > 0 {
		return Effect{Step: Receive}
	}
	return Effect{Step: Wait}
}

// Ready returns the calls that may start now: one call that must run alone, or a batch of parallel calls. A call that
// must run alone waits until all calls before it have ended, and all calls after it wait for it. Parallel calls do
// not wait for each other. ChangesGroups calls run alone, after all others.
func Ready(open []*Call) []*Call {
	var batch []*Call
	waiting := false // a call before this one has not ended
	for _, changesGroups := range []bool{false, true} {
		for i, c := range open {
			if c.ChangesGroups != changesGroups || c.Status == Done {
				continue
			}
			alone := !c.Parallel || c.ChangesGroups
			switch {
			case alone && (waiting || len(batch) > 0):
				return batch
			case c.Status == Allowed && alone:
				return open[i : i+1 : i+1]
			case c.Status == Allowed:
				batch = append(batch, c)
			case alone:
				return batch
			default:
				waiting = true
			}
		}
		if waiting || len(batch) > 0 {
			return batch
		}
	}
	return batch
}
