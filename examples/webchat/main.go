// Webchat is a chat in the browser. The events of a run are sent as they happen (server-sent events). A call
// that needs approval ends the stream, and the answer starts the next one. Conversations are files, so an
// answer may come after a restart.
package main

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

//go:embed index.html
var page embed.FS

type transfer struct {
	To    string `json:"to"`
	Euros int    `json:"euros" jsonschema:"minimum=1"`
}

func send(_ context.Context, in transfer) (string, error) {
	return fmt.Sprintf("sent %d € to %s", in.Euros, in.To), nil
}

func main() {
	var m model.Model = scripted.New(
		scripted.Call("send_money", transfer{"the landlord", 700}), scripted.Say("The rent is paid."),
		scripted.Repeat(scripted.Say("Set OPENAI_API_KEY to talk to a real model.")))
	if os.Getenv("OPENAI_API_KEY") != "" {
		var err error
		if m, err = openai.FromEnv(); err != nil {
			log.Fatal(err)
		}
	}
	store, err := session.Dir("chats")
	if err != nil {
		log.Fatal(err)
	}
	s, err := newServer(m, store)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("http://127.0.0.1:8080")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", s.handler()))
}

// A server has one agent for all conversations.
type server struct {
	agent *agent.Agent
	store session.Store
}

func newServer(m model.Model, store session.Store) (*server, error) {
	a, err := agent.New(agent.Config{
		Model:   m,
		Toolkit: toolkit.Of(tool.Must(tool.New("send_money", "Transfers money.", send))),
		Save:    session.Save,
		Limits:  agent.Limits{Steps: 20, Tokens: 200_000},
	})
	return &server{a, store}, err
}

// handler rejects requests that another site makes in the user's name. It does not authenticate: the server is
// for one user on this machine.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(page))
	mux.HandleFunc("GET /chat/{id}", s.show)
	mux.HandleFunc("POST /chat/{id}", s.say)
	mux.HandleFunc("GET /chat/{id}/events", s.follow)
	return http.NewCrossOriginProtection().Handler(mux)
}

// show returns a conversation: its messages and open questions. It also works during a run, because Read does
// not open the session.
func (s *server) show(w http.ResponseWriter, r *http.Request) {
	st, info, err := session.Read(r.Context(), s.store, r.PathValue("id"), 0)
	if errors.Is(err, fs.ErrNotExist) {
		st, err = &agent.State{}, nil // a new conversation
	}
	if err != nil {
		fail(w, err)
		return
	}
	type said struct {
		Role string `json:"role"`
		Text string `json:"text"`
	}
	answer := struct {
		Status  session.Status `json:"status"`
		Said    []said         `json:"said"`
		Pending []event.Event  `json:"pending"`
		Event   int64          `json:"event"` // the last event that this includes
	}{info.Status, []said{}, st.Pending(), info.Event}
	for _, m := range st.Messages {
		if text := m.Text(); text != "" {
			answer.Said = append(answer.Said, said{string(m.Role), text})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // fails if the client disconnects
}

// follow streams the events that are stored after the page's last event, whichever process runs the
// conversation. A browser that loses its connection requests them again, with Last-Event-ID.
func (s *server) follow(w http.ResponseWriter, r *http.Request) {
	last := cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("after"), "0")
	after, err := strconv.ParseInt(last, 10, 64)
	if err != nil {
		http.Error(w, "after must be the number of an event", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	for ev, err := range session.Watch(r.Context(), s.store, r.PathValue("id"), after) {
		if err != nil || write(w, ev) != nil || http.NewResponseController(w).Flush() != nil {
			return // the page was closed, or requests the events again
		}
	}
}

// A request is a message, or the answer to a question.
type request struct {
	Text     string `json:"text"`
	Call     string `json:"call"`
	Question int64  `json:"question"` // the number of the question about the call
	Allow    bool   `json:"allow"`
	Always   bool   `json:"always"` // also add the suggested rules
	Reason   string `json:"reason"`
}

// input returns the input of the run.
func (q request) input(st *agent.State) (agent.Input, error) {
	if q.Call == "" {
		return agent.Say(q.Text), nil
	}
	for _, p := range st.Pending() {
		ask, ok := p.(*event.Approval)
		switch {
		case !ok || ask.Call != q.Call || ask.Question != q.Question:
			continue // the user has not seen this question
		case !q.Allow:
			return ask.Deny(q.Reason), nil
		case q.Always:
			return ask.Allow(ask.Suggest...), nil
		}
		return ask.Allow(), nil
	}
	return nil, fmt.Errorf("%w: %q, question %d; load the page again", agent.ErrNoCall, q.Call, q.Question)
}

// say runs the agent and streams its events. The run does not end with the request: the user finds the answer
// when they open the page again.
func (s *server) say(w http.ResponseWriter, r *http.Request) {
	var q request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Minute)
	defer cancel()
	chat, err := session.Open(ctx, s.store, r.PathValue("id"))
	if err != nil {
		fail(w, err)
		return
	}
	defer chat.Close()
	in, err := q.input(chat.State)
	if err != nil {
		fail(w, err)
		return
	}
	out := http.NewResponseController(w)
	started := false
	for ev, err := range s.agent.Run(chat.Context(ctx), chat.State, in) {
		if err != nil && !started { // the run rejects the input
			fail(w, err)
			return
		}
		if err != nil { // the page gets it with the event end
			log.Printf("chat %s: %v", r.PathValue("id"), err)
			return
		}
		if !started {
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-store")
			started = true
		}
		if err := write(w, ev); err == nil {
			_ = out.Flush()
		} // otherwise the client has disconnected, and the run continues
	}
}

// write writes a server-sent event.
func write(w io.Writer, ev event.Event) error {
	data, err := json.Marshal(ev)
	if err != nil {
		return err
	}
	h := ev.Head()
	_, err = fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", h.Seq, h.Type, data)
	return err
}

func fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, session.ErrConflict): // another run is active
		http.Error(w, "the agent is still working; try again soon", http.StatusConflict)
	case errors.Is(err, agent.ErrWaiting):
		http.Error(w, "answer the question first", http.StatusConflict)
	case errors.Is(err, agent.ErrNoCall):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, agent.ErrInput): // such as an empty message
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		log.Print(err)
		http.Error(w, "the conversation cannot be opened", http.StatusInternalServerError)
	}
}
