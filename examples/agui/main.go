// Agui serves an agent to frontends that speak AG-UI, such as those made with CopilotKit. Conversations are files, so
// several of these servers may share a directory, and a question may be answered after a restart.
package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
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
	token := os.Getenv("TOKEN")
	if token == "" {
		log.Fatal("TOKEN is empty; set it to a secret that the frontend sends as a bearer token")
	}
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
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", authenticate(token, h)))
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

// authenticate accepts requests that have the token. It compares digests, so that the time does not depend on how
// much of a guess was right.
func authenticate(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte("Bearer " + token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(r.Header.Get("Authorization")))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			http.Error(w, "a token is needed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
