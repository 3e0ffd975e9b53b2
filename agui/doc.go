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
// System and developer messages are refused, and the request's state and forwardedProps are not used. The request's
// context is added to each new message as a [message.Hint], and is as trusted as the user's text.
//
// # Events
//
// Text and reasoning are streamed if the model runs in this process, or if the engine's workers publish them (package
// temporal) through a store that is a [session.Notifier] (package postgres). Otherwise, or if a piece is missing, a
// message is sent when it is complete. The arguments of a tool call, which may be repaired, and the text of its result
// are not streamed either; images in a result are not sent. Before a failed model call is repeated, its open text or
// reasoning is ended, and a CUSTOM event "kitbag.discard" has its message id. An AG-UI step is one model call, and
// an AG-UI subagent is a sub-agent.
//
// An open approval ends the run with an interrupt, whose metadata has the question ([event.Approval]) under "kitbag".
// The payload that answers the interrupt is {"approved": true}, optionally with "editedArgs", and "remember" to accept
// the suggested rules; or {"approved": false}, optionally with a "reason" for the model. Cancelling the interrupt
// denies the call.
//
// # Trust
//
// Nothing in a request is trusted. A middleware around the handler must authenticate users, and [Config.Session]
// must decide which user may use which thread: without it, anyone who knows a threadId can read and continue the
// thread. A request must have the media type application/json, which a page of another site can send only after a
// CORS preflight; a middleware may permit other origins.
//
// [Config.Ceiling] limits what a request may use. The session keeps the ceiling and the frontend tools of the last
// request, for another process that continues the run. While a run is in progress, a request with another ceiling or
// other tools is refused. If the agent has an [agent.Config.Key], the session's State is sealed, so a run fails if its
// ceiling or tools differ from those of the session's first run. If two replicas get requests with different ceilings
// at the same time, both may run with either ceiling: let [Config.Session] give each thread to one user only.
package agui
