// Batch labels 500 tickets, eight at a time, each in its own conversation in the directory tickets. If you kill
// it and start it again, finished tickets are not repeated, and unfinished ones continue where they were.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

const (
	jobs    = 500
	workers = 8
	labels  = "tickets/labels"
)

type labelIn struct {
	Ticket string `json:"ticket"`
	Label  string `json:"label" jsonschema:"enum=bug,enum=wish"`
}

// label runs again if the program was killed while it ran. That does no harm, because it writes the same file
// with the same content.
func label(_ context.Context, in labelIn) (string, error) {
	file := filepath.Join(labels, filepath.Base(in.Ticket))
	return "labelled", os.WriteFile(file, []byte(in.Label+"\n"), 0o644)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := os.MkdirAll(labels, 0o755); err != nil {
		log.Fatal(err)
	}
	store, err := session.Dir("tickets/sessions")
	if err != nil {
		log.Fatal(err)
	}
	m, err := chooseModel()
	if err != nil {
		log.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Model:   m,
		Toolkit: toolkit.Of(tool.Must(tool.New("label", "Labels a ticket.", label, tool.Options{Idempotent: true}))),
		Policy:  permission.Policy{Rules: []permission.Rule{{Tool: "label", Behavior: permission.Allow}}},
		Save:    session.Save,
		Limits:  agent.Limits{Steps: 5, Tokens: 20_000},
	})
	if err != nil {
		log.Fatal(err)
	}

	var wg sync.WaitGroup
	var doneBefore, failed atomic.Int64
	queue := make(chan int)
	for range workers {
		wg.Go(func() {
			for n := range queue {
				done, err := work(ctx, a, store, n)
				if err != nil {
					failed.Add(1)
					log.Printf("ticket %d: %v", n, err)
				} else if done {
					doneBefore.Add(1)
				}
			}
		})
	}
	for n := 1; n <= jobs && ctx.Err() == nil; n++ {
		queue <- n
	}
	close(queue)
	wg.Wait()
	fmt.Printf("%d tickets: %d were done before, %d failed\n", jobs, doneBefore.Load(), failed.Load())
	if failed.Load() > 0 || ctx.Err() != nil {
		os.Exit(1)
	}
}

// work does one job, or the rest of it, and reports whether the job was already done.
func work(ctx context.Context, a *agent.Agent, store session.Store, n int) (bool, error) {
	s, err := session.Open(ctx, store, fmt.Sprintf("ticket-%d", n))
	if err != nil {
		return false, err
	}
	defer s.Close()
	if s.State.Done() {
		return true, nil
	}
	var inputs []agent.Input
	if len(s.State.Messages) == 0 { // otherwise the job was started, and continues without a new input
		inputs = append(inputs, agent.Say(fmt.Sprintf("Label ticket-%d: the text of the ticket", n)))
	}
	_, err = a.Reply(s.Context(ctx), s.State, inputs...)
	return false, err
}

// chooseModel returns a real model if OPENAI_API_KEY is set, and otherwise one that follows a script.
func chooseModel() (model.Model, error) {
	if os.Getenv("OPENAI_API_KEY") != "" {
		return openai.FromEnv()
	}
	return scripted.New(scripted.Repeat(scripted.Func(func(req *model.Request) (scripted.Turn, error) {
		if len(req.Messages) > 1 {
			return scripted.Say("It is labelled."), nil
		}
		ticket, _, _ := strings.Cut(strings.TrimPrefix(req.Messages[0].Text(), "Label "), ":")
		return scripted.Call("label", json.RawMessage(`{"ticket":"`+ticket+`","label":"bug"}`)), nil
	}))), nil
}
