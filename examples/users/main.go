// Users serves several users over HTTP. A token identifies the user. Each user has conversations of
// their own, the tools work on that user's data, and the permissions depend on the role.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type user struct{ Name, Role string }

type userKey struct{}

// A bank is the data of the tools. They get the user from the context, so the model cannot choose another account.
type bank struct {
	mu       sync.Mutex
	accounts map[string]int
}

func (b *bank) balance(ctx context.Context, _ struct{}) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accounts[ctx.Value(userKey{}).(user).Name], nil
}

type payment struct {
	To    string `json:"to"`
	Euros int    `json:"euros" jsonschema:"minimum=1"`
}

func (b *bank) pay(ctx context.Context, in payment) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	from := ctx.Value(userKey{}).(user).Name
	if b.accounts[from] < in.Euros {
		return "", fmt.Errorf("the account has %d €", b.accounts[from])
	}
	b.accounts[from] -= in.Euros
	b.accounts[in.To] += in.Euros
	return fmt.Sprintf("paid %d € to %s", in.Euros, in.To), nil
}

// policies are the permissions of the roles. A call that no rule covers needs approval.
var policies = map[string]permission.Policy{
	"owner": {TrustReadOnly: true},
	"guest": {TrustReadOnly: true, Rules: []permission.Rule{{Tool: "pay", Behavior: permission.Deny}}},
}

type server struct {
	dir    string
	users  map[[32]byte]user // by the hash of the token
	agents map[string]*agent.Agent

	mu   sync.Mutex
	busy map[string]int // running requests by user
}

func newServer(m model.Model, b *bank, dir string, tokens map[string]user) (*server, error) {
	s := &server{dir: dir, users: map[[32]byte]user{}, agents: map[string]*agent.Agent{}, busy: map[string]int{}}
	for token, u := range tokens {
		if len(token) < 16 {
			return nil, fmt.Errorf("the token of %s has %d bytes; use one of at least 16 bytes (openssl rand -hex 16)", u.Name, len(token))
		}
		s.users[sha256.Sum256([]byte(token))] = u
	}
	kit := toolkit.Of(
		tool.Must(tool.New("balance", "Returns how many euros the account has.", b.balance, tool.Options{ReadOnly: true})),
		tool.Must(tool.New("pay", "Pays from the account.", b.pay)))
	for role, policy := range policies {
		a, err := agent.New(agent.Config{
			Model: m, Toolkit: kit, Policy: policy, Save: session.Save,
			Limits: agent.Limits{Steps: 10, Tokens: 50_000, Time: time.Minute},
		})
		if err != nil {
			return nil, err
		}
		s.agents[role] = a
	}
	return s, nil
}

type request struct {
	Text     string `json:"text"`
	Call     string `json:"call"`     // set if this is the answer to a question about this call
	Question int64  `json:"question"` // the number of the question that the user has seen
	Allow    bool   `json:"allow"`
}

type response struct {
	Text    string        `json:"text,omitempty"`
	Pending []event.Event `json:"pending,omitempty"` // questions
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	u, ok := s.users[sha256.Sum256([]byte(token))]
	if !ok {
		http.Error(w, "unknown token", http.StatusUnauthorized)
		return
	}
	if !s.enter(u.Name) {
		http.Error(w, "two of your requests are already running", http.StatusTooManyRequests)
		return
	}
	defer s.leave(u.Name)
	var q request
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var in agent.Input = agent.Say(q.Text)
	if q.Call != "" {
		in = event.Confirm{Call: q.Call, Question: q.Question, Allow: q.Allow}
	}
	res, err := s.reply(context.WithValue(r.Context(), userKey{}, u), u, r.PathValue("id"), in)
	switch {
	case errors.Is(err, session.ErrConflict):
		http.Error(w, "the conversation is in use", http.StatusConflict)
	case errors.Is(err, agent.ErrNoCall), errors.Is(err, agent.ErrNotWaiting):
		http.Error(w, "no such open question", http.StatusNotFound)
	case errors.Is(err, agent.ErrInput): // such as an empty message
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		log.Printf("%s: %v", u.Name, err)
		http.Error(w, "the agent failed", http.StatusInternalServerError)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(res) // fails if the client disconnects
	}
}

// reply runs the agent of the user's role on one of the user's conversations.
func (s *server) reply(ctx context.Context, u user, id string, in agent.Input) (response, error) {
	store, err := session.Dir(filepath.Join(s.dir, u.Name))
	if err != nil {
		return response{}, err
	}
	chat, err := session.Open(ctx, store, id)
	if err != nil {
		return response{}, err
	}
	defer chat.Close()
	reply, err := s.agents[u.Role].Reply(chat.Context(ctx), chat.State, in)
	if errors.Is(err, agent.ErrWaiting) {
		return response{Pending: chat.State.Pending()}, nil
	}
	if err != nil {
		return response{}, err
	}
	return response{Text: reply.Text()}, nil
}

// enter limits a user to two concurrent requests, so that the model stays available to others.
func (s *server) enter(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[name] == 2 {
		return false
	}
	s.busy[name]++
	return true
}

func (s *server) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[name]--
}

func main() {
	m, err := openai.FromEnv()
	if err != nil {
		log.Fatal(err)
	}
	s, err := newServer(m, &bank{accounts: map[string]int{"ada": 1000}}, "chats", map[string]user{
		os.Getenv("ADA_TOKEN"):   {"ada", "owner"},
		os.Getenv("GUEST_TOKEN"): {"guest", "guest"},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /chat/{id}", s)
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", mux))
}
