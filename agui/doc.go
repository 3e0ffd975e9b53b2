// Package agui serves sessions to frontends that speak AG-UI 1.0 over server-sent events, such as those built
// with @ag-ui/client or CopilotKit.
//
//	store, err := session.Dir("chats")
//	h, err := agui.New(agui.Config{
//		Store: store,
//		Agent: agent.Config{Model: m, Toolkit: tk, Policy: policy},
//	})
//	http.Handle("/agent", authenticate(h))
//
// An AG-UI thread is a session, and its threadId is the session's id unless [Config.Session] says otherwise. All
// replicas of a server share the store, and any of them can serve any request. The sessions are run in the process
// that receives the input; with [Config.Engine] they are run elsewhere, for example by Temporal.
//
// # Requests
//
//   - POST is AG-UI's: it sends the new messages, answers and results in a RunAgentInput to the session, and returns
//     the events from there until the agent has dealt with them.
//   - GET ?threadId=… returns a snapshot of the thread and the events of its current run, if there is one. With the
//     header Last-Event-ID, which a browser's EventSource sends by itself, it returns the events after that one, on
//     any replica: none is lost, and none comes twice. 204 means that there are no more.
//   - DELETE ?threadId=… cancels the current run, or the questions that wait. A client that disconnects does not
//     cancel anything: the run continues, and a GET finds it again.
//
// A request that is malformed, too large or not allowed gets an HTTP error with a JSON object {"error": "…"}. One that
// does not fit the thread, such as a message while an approval is open, gets a stream with a RUN_ERROR, as AG-UI
// requires.
//
// # Messages
//
// AG-UI clients send the whole conversation each time. The session is the truth: messages that it has are compared
// with it by id, and only new ones of the user are used. A history that differs from the session's, for example
// because another tab has sent a message meanwhile, is an error; GET the thread to load it. System and developer
// messages are refused: the instructions are those of the agent. The request's state and forwardedProps are not
// used. Its context is added to the new message as a [message.Hint], which is as trusted as the user.
//
// # Events
//
// Text and reasoning are streamed while the model writes, if it runs in this process; otherwise each message is sent
// when it is complete. The arguments of a tool call are sent when they are complete, since they may be repaired. Of a
// result the text is sent, not its images. The reasoning of a model call that failed and is repeated is closed, and
// its message id sent in a CUSTOM event "kitbag.discard". Sub-agents become AG-UI's subagents, and each model call a
// step.
//
// An open approval ends the run with an interrupt, whose metadata has the question ([event.Approval]) under "kitbag".
// Its answer is {"approved": true}, optionally with "editedArgs", and "remember" to accept the suggested rules; or
// {"approved": false}, optionally with a "reason" for the model. A cancelled interrupt is a refusal.
//
// # Frontend tools
//
// The tools of a request are offered to the model for the run, next to those of the agent, and are run by the
// frontend: the run ends with their calls in pendingToolCallIds, and the next request has the results. They need no
// approval, since the frontend asks its user if necessary, but deny rules apply. A name that the agent's toolkit has, or that
// begins with "mcp__", is refused. They belong to the basic group, which a ceiling may leave out. For runs with frontend tools the toolkit is copied, so its sources are listed
// again.
//
// # Trust
//
// Nothing in a request is trusted. Authentication is the task of a middleware around the handler, and which user may
// use which thread that of [Config.Session]: without it, anyone who can reach the handler and knows a threadId can
// read and continue the thread. A request must have the media type application/json, which another site cannot send
// without the browser asking this one; a middleware that permits other origins decides about that.
//
// [Config.Ceiling] limits what a request may use. The ceiling and frontend tools of the last request belong to the
// session, and remain in force when another process continues its run. While a run is in progress, a request with
// other ones is refused. Two requests at the same instant to two replicas could both be accepted, and then run
// with the ceiling of either: let a thread have one owner.
package agui
