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
// that receives the input; with [Config.Engine] other processes run them, for example with Temporal.
//
// # Requests
//
//   - POST is AG-UI's: it sends the new messages, answers and results in a RunAgentInput to the session, and returns
//     the events that follow until the agent has handled them.
//   - GET ?threadId=… returns a snapshot of the thread and the events of its current run, if there is one. With the
//     header Last-Event-ID, which a browser's EventSource sends by itself, it returns exactly the events after that
//     one, on any replica. Status 204 means that there are no more.
//   - DELETE ?threadId=… cancels the current run or the open questions. Disconnecting does not cancel a run: a GET
//     returns its further events.
//
// A request that is malformed, too large or not allowed gets an HTTP error with a JSON object {"error": "…"}. A
// request that contradicts the thread, such as a message while an approval is open, gets a stream with a RUN_ERROR,
// as AG-UI requires.
//
// # Messages
//
// AG-UI clients send the whole conversation each time. The session is authoritative: its messages are compared with
// those of the request by id, and only new messages of the user are used. A history that differs from the
// session's, for example because another tab has sent a message meanwhile, is an error; GET the thread to load it.
// System and developer messages are refused: the agent has its own instructions. The request's state and
// forwardedProps are not used. Its context is added to the new message as a [message.Hint], which is as trusted as
// the user.
//
// # Events
//
// Text and reasoning are streamed while the model writes, if it runs in this process, or if the engine's workers
// publish it and the store is a [session.Notifier], as package temporal and package postgres do. Otherwise, or if a
// piece is missing, a message is sent when it is complete. The arguments of a tool call are sent when they are
// complete, since they may be repaired. Only the text of a result is sent, not its images. When a failed model call
// is repeated, its reasoning is closed, and its message id is sent in a CUSTOM event "kitbag.discard". Sub-agents
// become AG-UI's subagents, and each model call a step.
//
// An open approval ends the run with an interrupt, whose metadata has the question ([event.Approval]) under "kitbag".
// Its answer is {"approved": true}, optionally with "editedArgs", and "remember" to accept the suggested rules; or
// {"approved": false}, optionally with a "reason" for the model. A cancelled interrupt is a refusal.
//
// # Frontend tools
//
// The tools of a request are offered to the model for the run, next to those of the agent, and are run by the
// frontend: the run ends with their calls in pendingToolCallIds, and the next request has the results. They need no
// approval, since the frontend asks its user if necessary, but deny rules apply. A name that a tool of the agent
// has, or that begins with "mcp__", is refused. They belong to the basic group, which a ceiling may leave out. Runs
// with frontend tools use a copy of the toolkit, which lists its sources again. With [Config.Engine] the workers
// must create the agent with [Agent].
//
// # Trust
//
// Nothing in a request is trusted. A middleware around the handler must authenticate users, and [Config.Session]
// must decide which user may use which thread: without it, anyone who can reach the handler and knows a threadId
// can read and continue the thread. A request must have the media type application/json, which a page of another
// site can send only after a CORS preflight; a middleware may permit other origins.
//
// [Config.Ceiling] limits what a request may use. The ceiling and frontend tools of the last request belong to the
// session, and remain in force when another process continues its run. While a run is in progress, a request with a
// different ceiling or different tools is refused. Two simultaneous requests to two replicas could both be
// accepted, and then run with the ceiling of either: give each thread a single owner. A request that changes either
// of them changes the session's State, so an agent with [agent.Config.Key] refuses it.
package agui
