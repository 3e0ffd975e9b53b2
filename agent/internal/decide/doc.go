// Package decide contains the rules of an agent's loop: what to do next, and what an outcome changes.
//
// It consists of data and functions on data. A run, in package agent, does what they say: it calls models and tools,
// asks users, saves, and emits events. Nothing here waits, starts anything, or reads the clock; times are arguments.
// So every rule about order, limits, pauses, answers and crashes can be tested with a table row. A run keeps no plan
// outside of the [State], so a State that was saved at any moment continues as if nothing had interrupted the run.
//
//	for {
//		effect := decide.Next(&state, situation) // says what to do next, such as to start calls
//		…                                        // the run does that
//		call.End(result)                         // changes the State by the outcome
//	}
//
// # Calls
//
// A [Call] is one tool call of the model's last answer. Its status changes from new to allowed, running and
// done; before done it may wait for users, the host or a sub-agent. All calls of an answer are judged before
// any runs, so that a user gets all questions of an answer together, and everything that needs no answer
// runs before the run waits for one. The results are added to the conversation together, in call order, when
// the last call has ended ([State.Close]).
//
// A call that continues in the background gets a result at once, which says that the call continues, and is a
// [BackgroundCall] until its real result is in the conversation.
//
// # The model
//
// [Attempts.React] decides what follows a model call whose answer cannot be used: call the model again, with
// a hint or after a compaction, or give up.
package decide
