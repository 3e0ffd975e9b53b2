// Package agui serves sessions to frontends that speak AG-UI 1.0 over server-sent events, such as those built with
// @ag-ui/client or CopilotKit.
//
//	store, err := session.Dir("chats")
//	h, err := agui.New(agui.Config{
//		Store: store,
//		Agent: agent.Config{Model: m, Toolkit: tk, Policy: policy},
//	})
//	http.Handle("/agent", authenticate(h))
//
// An AG-UI thread is a session, and its threadId is the session's id unless [Config.Session] says otherwise. All
// replicas of a server share the store, and any of them can serve any request. The process that receives an input
// runs the session; with [Config.Engine] other processes run it, for example with Temporal. [Handler] lists the
// requests.
//
// # Messages
//
// AG-UI clients send the whole conversation each time. The session is authoritative: its messages are compared with
// those of the request by id, and only new messages of the user are used. A history that differs from the
// session's, for example because another tab has sent a message meanwhile, is an error; GET the thread to load it.
// System and developer messages are refused, and the request's state and forwardedProps are not used. Its context
// is added to the new message as a [message.Hint], which is as trusted as the user.
//
// # Events
//
// Text and reasoning are streamed if the model runs in this process, or if the engine's workers publish them and
// the store is a [session.Notifier], as package temporal and package postgres do. Otherwise, or if a piece is
// missing, a message is sent when it is complete. So are the arguments of a tool call, since they may be repaired,
// and the text of a result; its images are not sent. When a failed model call is repeated, its reasoning is closed,
// and its message id is sent in a CUSTOM event "kitbag.discard". Sub-agents become AG-UI's subagents, and each model
// call a step.
//
// An open approval ends the run with an interrupt, whose metadata has the question ([event.Approval]) under "kitbag".
// Its answer is {"approved": true}, optionally with "editedArgs", and "remember" to accept the suggested rules; or
// {"approved": false}, optionally with a "reason" for the model. A cancelled interrupt is a refusal.
//
// # Trust
//
// Nothing in a request is trusted. A middleware around the handler must authenticate users, and [Config.Session]
// must decide which user may use which thread: without it, anyone who knows a threadId can read and continue the
// thread. A request must have the media type application/json, which a page of another site can send only after a
// CORS preflight; a middleware may permit other origins.
//
// [Config.Ceiling] limits what a request may use. The session keeps the ceiling and the frontend tools of the last
// request, for the process that continues its run. While a run is in progress, a request that changes one of them is
// refused, and so is any such request if the agent has an [agent.Config.Key], since the State is then sealed. Two
// simultaneous requests to two replicas could both be accepted, and run with the ceiling of either: give each thread
// a single owner.
package agui
