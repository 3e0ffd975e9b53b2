// Agui serves an agent to frontends that speak AG-UI, such as those made with CopilotKit. Conversations are files, so
// several of these servers may share a directory, and a question may be answered after a restart.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agui"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type transfer struct {
	To    string `json:"to"`
	Euros int    `json:"euros" jsonschema:"minimum=1"`
}

func send(_ context.Context, in transfer) (string, error) {
	return fmt.Sprintf("sent %d € to %s", in.Euros, in.To), nil
}

func main() {
	var m model.Model = scripted.New(scripted.Call("send_money", transfer{"the landlord", 700}),
		scripted.Repeat(scripted.Say("Set OPENAI_API_KEY to talk to a real model.")))
	if os.Getenv("OPENAI_API_KEY") != "" {
		var err error
		if m, err = openai.FromEnv(); err != nil {
			log.Fatal(err)
		}
	}
	store, err := session.Dir("threads")
	if err != nil {
		log.Fatal(err)
	}
	h, err := newHandler(m, store)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("http://127.0.0.1:8080")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", authenticate(os.Getenv("TOKEN"), h)))
}

// newHandler returns the server. A call of send_money needs approval, because no rule allows it.
func newHandler(m model.Model, store session.Store) (*agui.Handler, error) {
	return agui.New(agui.Config{
		Store: store,
		Agent: agent.Config{
			Model:   m,
			Toolkit: toolkit.Of(tool.Must(tool.New("send_money", "Transfers money.", send))),
			Limits:  agent.Limits{Steps: 20, Tokens: 200_000},
		},
	})
}

// authenticate lets those through who know the token; without one it is a server for this machine's user only.
func authenticate(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "a token is needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
