// Package inspect shows the sessions of a store in a browser: what each agent was shown, what it did, and the
// questions that wait for an answer. It is what "kitbag ui" serves.
//
//	store, err := session.Dir("sessions")
//	h, err := inspect.New(store, inspect.Options{})
//	defer h.Close()
//	http.Handle("/inspect/", http.StripPrefix("/inspect", h))
//	fmt.Println("open http://localhost:8080/inspect/?token=" + h.Token())
//
// The page needs no build step and makes no request to another server. It works with every [session.Store], and
// shows more if the store also implements:
//
//   - session.Reader: the conversation and the questions. Without it there is only the list.
//   - session.Watcher: the timeline with times, tokens and decisions, live. Without it, and for sessions from versions
//     without events, the timeline is made from the messages.
//   - session.Inbox: answers.
//
// # Answers
//
// An answer is sent to the session's inbox. The process that runs the session reads the inbox
// (session.Session.Run); if there is no such process, Options.Resume runs the session. Without Options.Resume the page
// says that the answer waits for the program to which the session belongs.
//
// # Live pages
//
// The handler does nothing while no page is open. It reads a session once for all pages that show it, and sends them the
// changes. To take this work off the process that runs the agent, serve the page in a separate process, as
// "kitbag ui" does.
//
// # What is stored
//
// This package stores answers, and copies that the user makes. It shows what the agent saves:
//
//   - the State after each record: the conversation, the open questions, the rules that were accepted, usage;
//   - the events of each record, with their times, from which the timeline is made;
//   - the record of each event: the place where a fork can begin;
//   - a digest and the length of each new part of a request ([event.Part]). From these and from the number of cached
//     tokens that the provider reports, the ledger concludes what was billed again, and why.
//
// A copy (fork) has the conversation up to a record, but no events. A State that is sealed ([agent.Config.Key]) cannot be
// copied. Copies and exports do not contain what [agent.Config.Redact] has removed. Programs make copies with
// [session.Fork], and with [session.ForkBefore] to edit a message or to get another answer.
//
// The model and the policy for a copy are stored in its State ([VariantOf]), and this handler runs the copy only with
// them, also after a restart. This does not seal the State: anyone who can write to the store can change them, like the
// rules that were accepted in a session.
//
// # Gateways
//
// The page gets the MCP gateways from Options.Gateways, which is called only while the page of gateways is open. "kitbag
// mcp serve" answers "kitbag ui" on a socket that only its user can open.
//
// # Trust
//
// Anyone who has the token can read every session of the store and answer as the user. A request must have the cookie
// that the token is exchanged for. A request is refused if its Origin is another site, or its Host is a name that is
// not in Options.Hosts: so a site whose name resolves to this machine cannot reach the handler (DNS rebinding). The
// cookie is valid for the path of the handler only, because browsers send cookies to all ports of a host.
// There is no encryption: across machines put the handler behind TLS.
//
// The contents of sessions are not trusted: names, texts, arguments and results come from models, tools and
// servers. The page puts them into the document as text only; its Content-Security-Policy allows no inline script
// and no other origin, and requires trusted types. In what the user is asked to approve, invisible and misleading
// characters are written out.
package inspect

// The page reads JSON from these paths, relative to its own:
//
//	GET  api/sessions?q=TEXT&after=CURSOR   {"sessions": […], "next": CURSOR}, live ones first
//	GET  api/inbox                          {"questions": […]} of all sessions
//	GET  api/sessions/ID                    one session, with its questions
//	GET  api/sessions/ID/rows?from=N&n=N    {"total": N, "rows": […]}, at most 500 rows of the timeline
//	GET  api/sessions/ID/rows?…&of=N.N      the rows of the sub-agent of a row
//	GET  api/sessions/ID/requests?from=N    the ledger of the prompt cache: {"total", "requests": […], "lost", "cost"}
//	GET  api/sessions/ID/groups?open=NAME   groups of tools over time, and what they would cost in other styles, or with these groups always open
//	GET  api/sessions/ID/compare?with=ID    two timelines side by side
//	GET  api/sessions/ID/find?q=TEXT&from=N {"row": N}, the next row whose events contain the text, or -1
//	GET  api/sessions/ID/details?row=N.N    the events of a row
//	POST api/sessions/ID/answer             {"call", "question", "allow", "rules", "reason"}
//	POST api/sessions/ID/resume             runs the session
//	POST api/sessions/ID/fork               {"record", "before", "to", "say", "run", "model", "settings"}: copies it up to
//	                                        a record or a message, sends the copy a message, and runs it
//	POST api/sessions/ID/judge              {"settings", "row"}: judges calls again; {"judged": N, "differ": […]}
//	GET  api/sessions/ID/export?as=FORM     a file: jsonl (the events), html (a page), go (a test with a scripted model)
//	GET  api/gateways                       {"gateways": […], "pins": […]}: the MCP gateways that run, and changed tools
//	POST api/pins/accept                    {"id"}: accepts a changed tool
//	GET  api/live?session=ID                server-sent events: "list" when the list has changed; of a session "rows" with
//	                                        {"reload", "from", "total", "rows": {INDEX: …}}, and "session" with what api/sessions/ID has
//
// This API may change with any version: there is no other client.
