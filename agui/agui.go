package agui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A Config configures a Handler. Store is required, and either Agent or Engine.
type Config struct {
	// Store must also be a [session.Inbox], a [session.Watcher] and a [session.Reader], like the stores of this
	// repository.
	Store session.Store

	// Agent is the agent of all threads. Its Save is set by New.
	Agent agent.Config

	// Engine runs the sessions in other processes. Nil means that this process runs them. With an Engine, Agent must
	// be zero.
	Engine Engine

	// Session returns the id of a thread's session, for example "tenant-" + threadID; see [session.CheckID]. An error
	// refuses the request, with the status 403. Nil means that the session's id is the thread's id, for every client.
	Session func(r *http.Request, threadID string) (string, error)

	// Ceiling returns the groups of tools that a request may use. An error refuses the request, with the status 403. Nil
	// means the zero Ceiling, which grants everything unless the toolkit's preset grants less.
	Ceiling func(r *http.Request) (toolkit.Ceiling, error)

	// State returns the agent's state for the frontend, which must encode to JSON. It is called after each step,
	// and must not change the agent.State. Nil means no state events.
	State func(*agent.State) any

	// MaxBody is the size of the largest request in bytes; 0 means 4 MiB.
	MaxBody int64

	// MaxTools is the maximum number of frontend tools in a request; 0 means 32, a negative number none. Their names,
	// descriptions and parameters may have 64 KiB in total.
	//
	// The next run has the tools in the toolkit's basic group, unless the ceiling leaves it out. The workers of an Engine
	// must create their agent with the function [Agent] to add them. When the model calls a frontend tool, the run ends
	// with the call's id in pendingToolCallIds; the frontend runs the tool, and its next request has the result. Such a
	// call needs no approval, but deny rules apply. A name that a tool of the agent has, or that begins with "mcp__",
	// is refused. Runs with frontend tools use a copy of the toolkit, which lists its sources again.
	MaxTools int

	Log *slog.Logger // for errors that are not sent to the client; nil means slog.Default()
}

// An Engine runs the sessions of a store, for example that of package agent/temporal.
type Engine interface {
	// Send sends an input to a session, as [session.Send] does, and makes a worker run the session.
	Send(ctx context.Context, session, input string, in agent.Input) (accepted bool, err error)
}

// A Handler serves sessions to AG-UI clients. It is safe for concurrent use.
//
//   - POST is AG-UI's request: it sends the new messages, answers and results of a RunAgentInput to the session, and
//     returns events until the agent has handled them.
//   - GET ?threadId=… returns a snapshot of the thread and the events of its current run, if there is one. With the
//     header Last-Event-ID, which a browser's EventSource sends when it reconnects, any replica returns exactly the
//     events after the event with this id. Status 204 means that no events will follow.
//   - DELETE ?threadId=… cancels the current run or the open questions. Status 202 means that the run has not ended
//     yet. Disconnecting does not cancel a run: GET returns the rest of its events.
//
// A request that is malformed, too large or not allowed gets an HTTP error with a JSON object {"error": "…"}. A
// request that contradicts the thread, such as a message while an approval is open, gets a stream with a RUN_ERROR.
type Handler struct {
	cfg    Config
	store  store
	runner *runner // nil if Config.Engine runs the sessions
}

// store has the required methods of Config.Store.
type store interface {
	session.Store
	session.Inbox
	session.Watcher
	session.Reader
}

// New returns a handler. Call Shutdown when it is no longer needed.
func New(cfg Config) (*Handler, error) {
	st, ok := cfg.Store.(store)
	switch {
	case cfg.Store == nil:
		return nil, errors.New("agui: Config.Store is nil; set it, for example to session.Dir(…)")
	case !ok:
		return nil, fmt.Errorf("agui: a store of type %T is not a session.Inbox, Watcher and Reader; use session.Dir, session.Memory or package postgres", cfg.Store)
	case cfg.Engine != nil && (cfg.Agent.Model != nil || cfg.Agent.Toolkit != nil):
		return nil, errors.New("agui: both Config.Agent and Config.Engine are set; the agent of an engine belongs to its workers")
	}
	cfg.MaxBody = cmp.Or(cfg.MaxBody, 4<<20)
	cfg.MaxTools = max(0, cmp.Or(cfg.MaxTools, 32))
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	h := &Handler{cfg: cfg, store: st}
	if cfg.Engine != nil {
		return h, nil
	}
	cfg.Agent.Save = session.Save
	a, err := agent.New(cfg.Agent)
	if err != nil {
		return nil, fmt.Errorf("agui: Config.Agent: %w", err)
	}
	h.runner = newRunner(st, cfg.Agent, a, cfg.Log)
	return h, nil
}

// Shutdown makes the handler refuse new inputs, and waits for the runs of this process. When ctx ends, Shutdown
// interrupts the runs, and waits until they are saved. Call it before http.Server.Shutdown, so that clients receive
// the end of their runs.
func (h *Handler) Shutdown(ctx context.Context) error {
	if h.runner == nil {
		return nil
	}
	return h.runner.shutdown(ctx)
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var err error
	switch r.Method {
	case http.MethodPost:
		err = h.post(w, r)
	case http.MethodGet:
		err = h.get(w, r)
	case http.MethodDelete:
		err = h.cancel(w, r)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		err = refuse(http.StatusMethodNotAllowed, "method %s is not allowed; POST a RunAgentInput, GET or DELETE ?threadId=…", r.Method)
	}
	if err == nil || r.Context().Err() != nil { // the client has disconnected
		return
	}
	refused, ok := errors.AsType[*refusal](err)
	if !ok {
		h.cfg.Log.ErrorContext(r.Context(), "agui: request failed", "method", r.Method, "error", err)
		refused = &refusal{http.StatusInternalServerError, "the request failed; the server's log has the reason"}
	}
	if w.Header().Get("Content-Type") == eventStream {
		return // the status 200 was already sent, so the stream just ends
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(refused.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": refused.text}) // fails if the client has disconnected
}

// A refusal is the error for a request that gets an HTTP error.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// A mismatch is the error for a request that contradicts the thread. The answer is a stream with a RUN_ERROR.
type mismatch struct{ code, text string }

func (m *mismatch) Error() string { return m.text }

func mismatched(code, format string, args ...any) error {
	return &mismatch{code, fmt.Sprintf(format, args...)}
}

// sessionID returns the id of a thread's session, or a refusal if the client may not use it.
func (h *Handler) sessionID(r *http.Request, thread string) (string, error) {
	if err := session.CheckID(thread); err != nil {
		return "", refuse(http.StatusBadRequest, "threadId: %v", err)
	}
	if h.cfg.Session == nil {
		return thread, nil
	}
	id, err := h.cfg.Session(r, thread)
	if err != nil {
		h.cfg.Log.InfoContext(r.Context(), "agui: thread refused", "thread", thread, "error", err)
		return "", refuse(http.StatusForbidden, "thread %q may not be used", thread)
	}
	if err := session.CheckID(id); err != nil {
		return "", fmt.Errorf("Config.Session returned the id %q: %w", id, err)
	}
	return id, nil
}
