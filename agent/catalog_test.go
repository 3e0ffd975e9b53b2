package agent

import (
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A namedModel is a model with a name and a window.
type namedModel struct {
	turnModel
	name   string
	window int
}

func (m *namedModel) Name() string       { return m.name }
func (m *namedModel) ContextWindow() int { return m.window }

// TestWindowOfTheCatalogue: the window of the Config has precedence, then that of the model, then that of the catalogue.
func TestWindowOfTheCatalogue(t *testing.T) {
	for _, row := range []struct {
		m    model.Model
		set  int
		want int
	}{
		{&namedModel{name: "gpt-6-astra"}, 0, 922_000},
		{&namedModel{name: "claude-haiku-4-5-20251001"}, 0, 136_000},
		{&namedModel{name: "gpt-6-astra", window: 50_000}, 0, 50_000},
		{&namedModel{name: "gpt-6-astra", window: 50_000}, 9000, 9000},
		{&namedModel{name: "gpt-4o"}, 0, defaultWindow}, // only its price is known
		{&namedModel{name: "no-such-model"}, 0, defaultWindow},
		{&turnModel{}, 0, defaultWindow},
	} {
		a, err := New(Config{Model: row.m, Toolkit: toolkit.Of(), Window: Window{Tokens: row.set}})
		if err != nil {
			t.Fatal(err)
		}
		if got := a.cfg.Window.Tokens; got != row.want {
			t.Errorf("%+v, %d: %d, want %d", row.m, row.set, got, row.want)
		}
	}
}

// TestPriceOfTheCatalogue: a limit in money uses the prices of the catalogue, and is an error for a model without one.
func TestPriceOfTheCatalogue(t *testing.T) {
	for name, m := range map[string]model.Model{"no-such-model": &namedModel{name: "no-such-model"}, "": &turnModel{}} {
		_, err := New(Config{Model: m, Toolkit: toolkit.Of(), Limits: Limits{Cost: 1}})
		want := `agent.New: Limits.Cost needs the prices of the model: no price of the model "` + name + `" is known; set Limits.Price`
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// 10 tokens in and 2 out are $0.0002 with gpt-6-astra.
	m := &namedModel{name: "gpt-6-astra", turnModel: turnModel{turns: []turn{calls("c1 nothing {}"), calls("c2 nothing {}"), says("done")}}}
	a, err := New(Config{Model: m, Toolkit: toolkit.Of(), Limits: Limits{Cost: 0.0004}, Policy: bypass})
	if err != nil {
		t.Fatal(err)
	}
	evs, err := play(t, a, new(State), Say("go"))
	if end := endOf(t, evs); err != nil || end.Reason != event.EndLimit || end.Detail != "the cost limit of 0.0004" {
		t.Errorf("%+v, %v", end, err)
	}
	own, err := New(Config{Model: m, Toolkit: toolkit.Of(), Limits: Limits{Cost: 1, Price: func(string, message.Usage) float64 { return 7 }}})
	if err != nil || own.cfg.Limits.Price("", message.Usage{}) != 7 {
		t.Error(err)
	}
}
