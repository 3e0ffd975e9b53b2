package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

var size = host.Elicitation{Server: "shop", Message: "Which \x1b[31msize?",
	Schema: json.RawMessage(`{"type":"object","properties":{"size":{"type":"string","enum":["S","M"]}},"required":["size"]}`)}

// asking returns a tool that asks the question q and returns the action.
func asking(name string, q host.Elicitation, o tool.Options) tool.Tool {
	return tool.Must(tool.New(name, "Asks.", func(ctx context.Context, _ struct{}) (string, error) {
		a, err := host.From(ctx).Elicit(ctx, q)
		return fmt.Sprintf("%s %d fields, error %v", a.Action, len(a.Content), err), nil
	}, o))
}

func TestElicit(t *testing.T) {
	fill := func(v any) func(context.Context, host.Elicitation) (host.Answer, error) {
		return func(context.Context, host.Elicitation) (host.Answer, error) {
			return host.Answer{Action: host.ActionAccept, Content: map[string]any{"size": v}}, nil
		}
	}
	page := host.Elicitation{Server: "shop", Message: "Log in.", URL: "http://shop.example/login"}
	for _, row := range []struct {
		why    string
		q      host.Elicitation
		elicit func(context.Context, host.Elicitation) (host.Answer, error)
		result string // of the tool
		action host.Action
		error  string // in the event
	}{
		{"a form", size, fill("M"), "accept 1 fields, error <nil>", host.ActionAccept, ""},
		{"a page", page, func(context.Context, host.Elicitation) (host.Answer, error) {
			return host.Answer{Action: host.ActionAccept}, nil
		}, "accept 0 fields, error <nil>", host.ActionAccept, ""},
		{"declined, with a secret", size, func(context.Context, host.Elicitation) (host.Answer, error) {
			return host.Answer{Action: host.ActionDecline, Content: map[string]any{"size": "M"}}, nil
		}, "decline 0 fields, error <nil>", host.ActionDecline, ""},
		{"no Elicit", size, nil, "cancel 0 fields, error <nil>", host.ActionCancel, "Config.Elicit is nil"},
		{"an answer that does not fit", size, fill("XXL"), "cancel 0 fields, error <nil>", host.ActionCancel, `one of "S", "M"`},
		{"an unknown action", size, func(context.Context, host.Elicitation) (host.Answer, error) { return host.Answer{Action: "maybe"}, nil }, "cancel 0 fields, error <nil>", host.ActionCancel, ""},
		{"the terminal fails", size, func(context.Context, host.Elicitation) (host.Answer, error) {
			return host.Answer{}, errors.New("private trouble")
		}, "cancel 0 fields, error <nil>", host.ActionCancel, "private trouble"},
	} {
		t.Run(row.why, func(t *testing.T) {
			a, _ := newAgent(t, Config{Policy: bypass, Elicit: row.elicit, Toolkit: toolkit.Of(asking("ask", row.q, tool.Options{}))},
				calls(`c1 ask {}`), says("done"))
			var st State
			evs, err := play(t, a, &st, Say("go"))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "result", results(&st), []string{"c1 success: " + row.result})
			questions := of[*event.Elicitation](evs)
			if len(questions) != 2 {
				t.Fatalf("%d events", len(questions))
			}
			put, over := questions[0], questions[1]
			if put.Action != "" || put.Call != "c1" || put.Server != "shop" || strings.Contains(put.Message, "\x1b") || put.Site != row.q.Site() ||
				len(put.Warnings) != len(row.q.Warnings()) {
				t.Errorf("question: %+v", put)
			}
			if over.Action != row.action || !strings.Contains(over.Error, row.error) || (over.Error == "") != (row.error == "") {
				t.Errorf("outcome: %+v, want %s %q", over, row.action, row.error)
			}
			saved, err := json.Marshal(&st)
			if err != nil || strings.Contains(string(saved), `"size":"M"`) || strings.Contains(string(saved), "private") {
				t.Errorf("the user's input or an error of the terminal is stored: %s %v", saved, err)
			}
		})
	}
}

// TestOneQuestionAtATime has several calls ask questions, while another one waits for
// Config.Approve.
func TestOneQuestionAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open, most, asked atomic.Int64
		person := func() {
			asked.Add(1)
			if n := open.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			open.Add(-1)
		}
		cfg := Config{
			Policy: permission.Policy{Rules: []permission.Rule{{Tool: "ask", Behavior: permission.Allow}}},
			Elicit: func(context.Context, host.Elicitation) (host.Answer, error) {
				person()
				return host.Answer{Action: host.ActionDecline}, nil
			},
			Approve: func(context.Context, event.Approval) (event.Confirm, error) {
				person()
				return event.Confirm{Allow: true}, nil
			},
			Toolkit: toolkit.Of(asking("ask", size, tool.Options{Parallel: true}), noting(&journal{}, "note", tool.Options{Parallel: true})),
		}
		a, _ := newAgent(t, cfg, calls(`c1 ask {}`, `c2 ask {}`, `c3 note {"path":"x"}`, `c4 ask {}`), says("done"))
		var st State
		if _, err := play(t, a, &st, Say("go")); err != nil {
			t.Fatal(err)
		}
		if most.Load() != 1 || asked.Load() != 4 {
			t.Errorf("%d questions, %d at a time; want 4, 1", asked.Load(), most.Load())
		}
	})
}

// TestQuestionEndsWithItsCall has questions that outlive their call or their run.
func TestQuestionEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late error
		leaked := make(chan struct{})
		leak := tool.Must(tool.New("leak", "Asks later.", func(ctx context.Context, _ struct{}) (string, error) {
			h := host.From(ctx)
			go func() {
				time.Sleep(time.Hour)
				_, late = h.Elicit(context.Background(), size)
				close(leaked)
			}()
			return "done", nil
		}))
		elicit := func(ctx context.Context, _ host.Elicitation) (host.Answer, error) {
			<-ctx.Done() // the user does not answer in time
			return host.Answer{Action: host.ActionAccept, Content: map[string]any{"size": "M"}}, nil
		}
		a, _ := newAgent(t, Config{Policy: bypass, Elicit: elicit, ToolTimeout: time.Minute, Toolkit: toolkit.Of(asking("ask", size, tool.Options{}), leak)},
			calls(`c1 ask {}`, `c2 leak {}`), says("done"))
		var st State
		evs, err := play(t, a, &st, Say("go"))
		if err != nil {
			t.Fatal(err)
		}
		if got := results(&st); !strings.Contains(got[0], "cancel 0 fields") && !strings.Contains(got[0], "took longer than 1m0s") || got[1] != "c2 success: done" {
			t.Errorf("results: %q", got)
		}
		for _, ev := range of[*event.Elicitation](evs) {
			if ev.Action == host.ActionAccept {
				t.Errorf("an answer after the end of the call was used: %+v", ev)
			}
		}
		<-leaked
		if !errors.Is(late, ErrInterrupted) {
			t.Errorf("a question after the run: %v", late)
		}
	})
}

// TestSubAgentElicits: a sub-agent without Elicit uses that of the outer agent.
func TestSubAgentElicits(t *testing.T) {
	sub, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(asking("ask", size, tool.Options{}))}, calls(`s1 ask {}`), says("over"))
	helper, err := AsTool[string, string](sub, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(helper), Elicit: func(context.Context, host.Elicitation) (host.Answer, error) {
		asked.Add(1)
		return host.Answer{Action: host.ActionAccept, Content: map[string]any{"size": "S"}}, nil
	}}, calls(`h1 helper {"task":"x"}`), says("done"))
	var st State
	evs, err := play(t, a, &st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	if questions := of[*event.Elicitation](evs); len(questions) != 2 || questions[0].Call != "h1/s1" || questions[1].Action != host.ActionAccept || asked.Load() != 1 {
		t.Errorf("asked %d times: %+v", asked.Load(), questions)
	}
}

// sampler returns a tool that uses the model n times.
func sampler(n int, req host.SampleRequest) tool.Tool {
	return tool.Must(tool.New("sample", "Uses the model.", func(ctx context.Context, _ struct{}) (string, error) {
		var out []string
		for range n {
			s, err := host.From(ctx).Sample(ctx, req)
			if err != nil && !errors.Is(err, host.ErrRefused) {
				out = append(out, "not refused but:")
			}
			out = append(out, fmt.Sprintf("%s %s %v", s.Text, s.StopReason, err))
		}
		return strings.Join(out, "; "), nil
	}))
}

func TestSample(t *testing.T) {
	rule := func(b permission.Behavior, name string) permission.Policy {
		return permission.Policy{Rules: []permission.Rule{{Tool: "sample", Behavior: permission.Allow}, {Tool: name, Behavior: b}}}
	}
	allowed := rule(permission.Allow, "mcp__my_shop__sampling")
	ask := rule(permission.Ask, "nothing")
	answer := func(action host.Action) func(context.Context, host.Elicitation) (host.Answer, error) {
		return func(_ context.Context, q host.Elicitation) (host.Answer, error) {
			if q.Server != "" || !strings.Contains(q.Message, `server "my shop"`) || !strings.Contains(q.Message, "\n> user: Allow this.\n> Forged line") {
				return host.Answer{}, fmt.Errorf("question %+v", q)
			}
			return host.Answer{Action: action}, nil
		}
	}
	req := host.SampleRequest{Server: "my shop", Messages: []*message.Message{message.User("Allow this.\nForged line")}, Stop: []string{"STOP"}}
	done := []turn{says("yes STOP no")}
	for _, row := range []struct {
		why    string
		cfg    Config
		times  int
		turns  []turn
		want   string
		tokens int // of the whole run, of which 24 are for the loop's own two model calls
	}{
		{"allowed by a rule", Config{Policy: allowed}, 1, done, "yes  stopSequence <nil>", 36},
		{"asked and allowed", Config{Policy: ask, Elicit: answer(host.ActionAccept)}, 1, done, "yes  stopSequence <nil>", 36},
		{"asked and declined", Config{Policy: ask, Elicit: answer(host.ActionDecline)}, 1, nil, "the user did not allow it (decline)", 24},
		{"no Elicit", Config{Policy: ask}, 1, nil, "the user did not allow it (cancel)", 24},
		{"denied, although Elicit accepts", Config{Policy: rule(permission.Deny, "mcp__my_shop__*"), Elicit: answer(host.ActionAccept)}, 1, nil, "denied by rule", 24},
		{"dont-ask", Config{Policy: permission.Policy{Mode: permission.ModeDontAsk, Rules: ask.Rules}, Elicit: answer(host.ActionAccept)}, 1, nil, "refused by the host", 24},
		{"too often", Config{Policy: allowed, Limits: Limits{Samples: 2}}, 3, []turn{says("one"), says("two")}, "one endTurn <nil>; two endTurn <nil>;   refused by the host: the limit of 2 samples", 48},
		{"not at all", Config{Policy: allowed, Limits: Limits{Samples: -1}}, 1, nil, "the limit of -1 samples", 24},
		{"too many tokens", Config{Policy: allowed, Limits: Limits{SampleTokens: 20}}, 2, []turn{says("one")}, "one endTurn <nil>;   refused by the host: the request has about 9 tokens", 36},
		{"the run's tokens", Config{Policy: allowed, Limits: Limits{Tokens: 30}}, 2, []turn{says("one")}, "one endTurn <nil>;   refused by the host: the request has about 9 tokens", 36},
		{"cut off", Config{Policy: allowed}, 1, []turn{{chunks: append(says("half").chunks[:1:1], finish("length"))}}, "half maxTokens <nil>", 36},
	} {
		t.Run(row.why, func(t *testing.T) {
			row.cfg.Toolkit = toolkit.Of(sampler(row.times, req))
			turns := append([]turn{calls(`c1 sample {}`)}, row.turns...)
			a, w := newAgent(t, row.cfg, append(turns, says("done"))...)
			var st State
			evs, err := play(t, a, &st, Say("go"))
			if err != nil {
				t.Fatal(err)
			}
			if got := results(&st); !strings.Contains(strings.Join(got, ""), row.want) {
				t.Errorf("result %q, want %q", got, row.want)
			}
			if n := st.Usage.Input + st.Usage.Output; n != row.tokens || st.loop.Spent.Tokens != row.tokens {
				t.Errorf("%d tokens, %d counted for the limits; want %d", n, st.loop.Spent.Tokens, row.tokens)
			}
			made := 0
			for _, ev := range of[*event.Sampling](evs) {
				if ev.Server != "my shop" || ev.Call != "c1" {
					t.Errorf("event %+v", ev)
				}
				if ev.Refused == "" {
					made++
				}
			}
			if made != len(row.turns) {
				t.Errorf("%d samples were emitted, want %d", made, len(row.turns))
			}
			for _, r := range w.reqs[1 : 1+len(row.turns)] {
				if len(r.Tools) != 0 || r.System != "" || r.MaxTokens <= 0 || r.MaxTokens > 50_000 || len(r.Messages) != 1 {
					t.Errorf("the model was asked %+v", r)
				}
			}
			if st.Messages[len(st.Messages)-1].Text() == "" || len(st.Messages) > 5 {
				t.Errorf("the conversation has %d messages, including samples", len(st.Messages))
			}
		})
	}
}

// TestOneHost: all running calls of a run have the same host, including background calls, so that a server's question
// that may belong to any of them reaches the user.
func TestOneHost(t *testing.T) {
	for _, cfg := range []Config{{}, {Background: time.Millisecond}} {
		// On a fake clock, so that no call is slow.
		synctest.Test(t, func(t *testing.T) {
			hosts := make(chan host.Host, 9)
			report := func(ctx context.Context, _ struct{}) (string, error) {
				hosts <- host.From(ctx)
				return "", nil
			}
			tell := tool.Must(tool.New("tell", "Reports its host.", report, reads))
			alone := tool.Must(tool.New("alone", "Reports its host.", report))
			cfg.Policy, cfg.Toolkit = bypass, toolkit.Of(tell, alone)
			a, _ := newAgent(t, cfg, calls(`c1 tell {}`, `c2 tell {}`), calls(`c3 alone {}`), says("done"))
			var st State
			if _, err := a.Reply(t.Context(), &st, Say("go")); err != nil {
				t.Fatal(err)
			}
			first, second, later := <-hosts, <-hosts, <-hosts
			if first == nil || first != second || cfg.Background > 0 && first != later {
				t.Errorf("background %v: the hosts are %p, %p and %p", cfg.Background, first, second, later)
			}
		})
	}
}
