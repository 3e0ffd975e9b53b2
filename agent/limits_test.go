package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestLimitsOfNonsense: a server or a price list that reports nonsense cannot lift a limit, nor can the State not be saved.
func TestLimitsOfNonsense(t *testing.T) {
	price := func(cost float64) func(string, message.Usage) float64 {
		return func(string, message.Usage) float64 { return cost }
	}
	for name, row := range map[string]struct {
		limits Limits
		usage  message.Usage
	}{
		"too many tokens": {Limits{Tokens: 100}, message.Usage{Input: math.MaxInt, Output: math.MaxInt}},
		"negative input":  {Limits{Tokens: 100}, message.Usage{Input: -1000, Output: 60}},
		"no number":       {Limits{Cost: 1, Price: price(math.NaN())}, message.Usage{}},
		"endless":         {Limits{Cost: 1, Price: price(math.Inf(1))}, message.Usage{}},
		"negative price":  {Limits{Cost: 1, Price: price(-1)}, message.Usage{}},
	} {
		var j journal
		a, w := newAgent(t, Config{Policy: bypass, Limits: row.limits, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))})
		for i := range 4 {
			tn := calls(fmt.Sprintf(`c%d note {"path":"%d"}`, i, i))
			tn.chunks[len(tn.chunks)-1] = &model.Finish{Reason: model.FinishToolCalls, Usage: row.usage}
			w.turns = append(w.turns, tn)
		}
		evs, err := play(t, a, new(State), Say("go"))
		if end := endOf(t, evs); end.Reason != event.EndLimit {
			t.Errorf("%s: %+v, %v", name, end, err)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, row := range []struct {
		name   string
		limits Limits
		ran    int
		detail string
	}{
		{"steps", Limits{Steps: 3}, 6, "3 steps"},
		{"calls", Limits{ToolCalls: 3}, 3, "3 tool calls"},
		{"tokens", Limits{Tokens: 30}, 6, "30 tokens"}, // 12 a call
		{"time", Limits{Time: 45 * time.Second}, 4, "45s"},
		{"cost", Limits{Cost: 0.2, Price: func(name string, u message.Usage) float64 {
			if name != "words" {
				t.Errorf("price of %q", name)
			}
			return float64(u.Output) / 20
		}}, 4, "0.2"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			var turns []turn
			for i := range 20 {
				turns = append(turns, calls(fmt.Sprintf(`a%d note {"path":"%d"}`, i, i), fmt.Sprintf(`b%d note {"path":"%d"}`, i, i)))
			}
			cfg := Config{Policy: bypass, Limits: row.limits, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}
			now := time.Unix(0, 0)
			cfg.Now = func() time.Time { now = now.Add(time.Second); return now } // a second passes with each call
			a, w := newAgent(t, cfg, turns...)
			last := -1
			w.turns = append(w.turns[:0:0], turns...)
			var st State
			var evs []event.Event
			for ev, err := range a.Run(t.Context(), &st, Say("go")) {
				if err != nil {
					t.Fatal(err)
				}
				evs = append(evs, ev)
				if m, ok := ev.(*event.Message); ok && m.Message.Role == message.RoleUser && last < 0 && strings.Contains(historyText(m.Message), "This is your last answer") {
					last = len(w.reqs)
					w.turns = []turn{says("so far so good")}
				}
			}
			checkState(t, &st)
			end := endOf(t, evs)
			if row.name != "time" { // it depends on how often the clock is read
				equal(t, "ran", len(j.ran), row.ran)
			}
			if end.Reason != event.EndLimit || !strings.Contains(end.Detail, row.detail) || end.Text != "so far so good" {
				t.Errorf("end %+v", end)
			}
			if last < 0 || w.reqs[last].Choice.Mode != model.ChoiceNone || len(w.reqs) != last+1 {
				t.Errorf("the last answer was request %d of %d", last+1, len(w.reqs))
			}
			w.turns = []turn{says("fresh")}
			if _, err := a.Reply(t.Context(), &st, Say("and now?")); err != nil {
				t.Errorf("the next input does not get new limits: %v", err)
			}
		})
	}
}

func historyText(m *message.Message) string {
	var b strings.Builder
	for _, bl := range m.Blocks {
		if h, ok := bl.(*message.Hint); ok {
			b.WriteString(h.Text)
		}
	}
	return b.String()
}

func TestLoopIsDetected(t *testing.T) {
	var j journal
	var turns []turn
	for i := range 30 {
		turns = append(turns, calls(fmt.Sprintf(`c%d note {"path":"same"}`, i)))
	}
	a, w := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, turns...)
	var st State
	evs, err := play(t, a, &st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "ran", len(j.ran), 6)
	if end := endOf(t, evs); end.Reason != event.EndLimit || !strings.Contains(end.Detail, "loop") {
		t.Errorf("end %+v", end)
	}
	warned := 0
	for _, m := range w.reqs[len(w.reqs)-1].Messages {
		if strings.Contains(historyText(m), "You have made the same calls") {
			warned++
		}
	}
	equal(t, "warnings", warned, 1)
}

// TestLastAnswerFits has the results of the last step be too long for the model's window: the final request must be
// shortened like any other, by the estimate or when a server rejects it.
func TestLastAnswerFits(t *testing.T) {
	for _, row := range []struct {
		name     string
		own      int // the window that the agent assumes
		requests int // that are rejected
	}{{"by the estimate", 8_000, 0}, {"after a refusal", 128_000, 1}} {
		t.Run(row.name, func(t *testing.T) {
			page := tool.Must(tool.New("page", "A page.", func(_ context.Context, in pathArg) (string, error) {
				return strings.Repeat("a page of it ", 600), nil
			}))
			cfg := Config{Policy: bypass, Limits: Limits{Steps: 1}, Toolkit: toolkit.Of(page), Window: Window{Tokens: row.own}}
			a, _ := newAgent(t, cfg)
			refused := 0
			a.model = turnFunc(func(req *model.Request) turn {
				switch size := (&windowedServer{bytes: 4}).tokens(req); {
				case size > 8_000:
					refused++
					return turn{err: &model.Error{Kind: model.KindContextTooLong, Message: "too long"}}
				case len(req.Messages) == 1:
					return calls(`c1 page {"path":"1"}`, `c2 page {"path":"2"}`, `c3 page {"path":"3"}`, `c4 page {"path":"4"}`, `c5 page {"path":"5"}`)
				}
				return says("so far so good")
			})
			st := new(State)
			evs, err := play(t, a, st, Say("go"))
			if end := endOf(t, evs); err != nil || end.Reason != event.EndLimit || end.Text != "so far so good" {
				t.Errorf("%+v, %v", end, err)
			}
			equal(t, "refused", refused, row.requests)
		})
	}
}

// TestUsageOfUnusableAnswers: an empty answer, and a last answer without the typed one, cost as much as any other.
func TestUsageOfUnusableAnswers(t *testing.T) {
	empty := turn{chunks: []model.Chunk{finish(model.FinishStop)}}
	a, _ := newAgent(t, Config{}, empty, says("Hello."))
	var st State
	if _, err := a.Reply(t.Context(), &st, Say("Hi")); err != nil {
		t.Fatal(err)
	}
	equal(t, "usage with an empty answer", st.Usage, message.Usage{Input: 20, Output: 4})

	a, _ = newAgent(t, Config{Limits: Limits{Tokens: 1}}, calls(`c1 none {}`), says("Graz."))
	st = State{}
	if _, err := ReplyAs[verdict](t.Context(), a, &st, Say("Where to?")); !errors.Is(err, ErrLimit) {
		t.Fatal(err)
	}
	equal(t, "usage without a typed answer", st.Usage, message.Usage{Input: 20, Output: 4})
}
