package agent

import "github.com/kitbag-go/kitbag/message"

// action is what a run does next.
type action int

const (
	actModel     action = iota // ask the model
	actJudge                   // decide about calls that have not been judged
	actCall                    // run the calls that readyCalls returns
	actClose                   // all calls have ended: add their results to the conversation
	actWait                    // a person or the host is needed
	actAwait                   // the model has answered, but calls go on in the background
	actLimit                   // a limit was reached: ask for a last answer
	actStop                    // the last answer was asked for
	actDone                    // the model has answered
	actRemind                  // it has, but not with the typed answer that is wanted
	actInterrupt               // the context has ended
)

// next decides what a run does, from the state alone, so that a run that was
// saved anywhere goes on as if it had not been.
//
// limit names the limit that was reached, if one was; it is asked only when it
// matters.
func next(st *State, limit func() string) action {
	if len(st.open) > 0 {
		return nextCall(st.open)
	}
	last := st.Messages[len(st.Messages)-1]
	switch {
	case st.spent.Stopped != "":
		return actStop
	case last.Role == message.RoleAssistant && len(st.away) > 0:
		return actAwait
	case last.Role == message.RoleAssistant:
		return actDone
	case limit() != "":
		return actLimit
	default:
		return actModel
	}
}

// nextCall decides while calls are open. It judges before it runs, and runs before it
// waits: a person who is asked finds everything done that needed no answer.
func nextCall(open []*openCall) action {
	done := true
	for _, c := range open {
		if c.Status == statusNew {
			return actJudge
		}
		done = done && c.Status == statusDone
	}
	switch {
	case done:
		return actClose
	case len(readyCalls(open)) > 0:
		return actCall
	default:
		return actWait
	}
}

// readyCalls returns the calls that may start now, together: a run of parallel
// calls, or one other call alone. A call starts when no call before it still
// has to run, but that parallel calls do not wait for each other. Late calls
// start, one by one, when all others have ended.
func readyCalls(open []*openCall) []*openCall {
	var batch []*openCall
	waiting := false // a call before this one has not ended
	for _, late := range []bool{false, true} {
		for i, c := range open {
			if c.Late != late || c.Status == statusDone {
				continue
			}
			alone := !c.Parallel || c.Late
			switch {
			case alone && (waiting || len(batch) > 0):
				return batch
			case c.Status == statusAllowed && alone:
				return open[i : i+1 : i+1]
			case c.Status == statusAllowed:
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
