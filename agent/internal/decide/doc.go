// Package decide holds the rules of an agent's loop: what comes next, and what an outcome changes.
//
// It is data and functions of data. A run, in package agent, does what they say: it calls models
// and tools, asks people, saves, and emits events. Nothing here waits, starts anything, or
// asks what time it is; times come as arguments. So every rule about order, limits, pauses, answers
// and crashes can be tested with a row, and a run that was saved anywhere continues as if it had
// not been: it keeps no plan outside of the [State].
//
//	for {
//		effect := decide.Next(&state, situation) // what is to be done
//		…                                        // done by the run
//		call.End(result)                         // what that changes
//	}
//
// # Calls
//
// A [Call] is one tool call of the model's last answer. Its status goes from new over allowed and
// running to done; people, the host and sub-agents may come in between. All calls of an answer are
// judged before any runs, so that a person gets the questions of an answer together, and everything
// that needs no answer runs before the run waits for one. The results enter the conversation
// together, in call order, when the last call has ended ([State.Close]).
//
// A call that continues in the background has a result at once, which says so, and is a [BackgroundCall] until
// the conversation has its real one.
//
// # The model
//
// A [Question] is one model call with what is done when the answer cannot be used: asked again, with
// a hint, after a compaction, or not at all.
package decide
