package agent

import (
	"net/http"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/internal/openaitest"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/openai"
)

// wires are models that get the turns of a turnModel from a strict server, by several protocols.
type wires struct {
	server *openaitest.Server
	models []model.Model // of all protocols

	mu  sync.Mutex
	now *turnModel
	cut int // the bytes after which a broken answer ends
}

func newWires(t *testing.T) *wires {
	w := new(wires)
	w.server = openaitest.Serve(openaitest.Always(openaitest.Func(func(*openaitest.Request) openaitest.Turn { return w.next() }))).
		Allow("reasoning_content")
	client := &http.Client{Transport: new(http.Transport)}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		w.server.Close()
	})
	for _, cfg := range []openai.Config{{API: openai.APIChat}, {API: openai.APIResponses}, {API: openai.APIResponses, LateTools: new(true)},
		{API: openai.APIResponses, LateTools: new(true), NoStream: true}} {
		cfg.BaseURL, cfg.Model, cfg.HTTPClient = w.server.URL, "test", client
		m, err := openai.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.models = append(w.models, m)
	}
	return w
}

// model returns the n-th model, which now plays the turns of from.
func (w *wires) model(from *turnModel, n, cut int) model.Model {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now, w.cut = from, cut
	return w.models[n]
}

// next returns the next answer of the server.
func (w *wires) next() openaitest.Turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.now.turns) == 0 {
		return openaitest.Broken()
	}
	tn := w.now.turns[0]
	w.now.turns = w.now.turns[1:]
	var calls []openaitest.Call
	text := ""
	for _, ch := range tn.chunks {
		switch ch := ch.(type) {
		case *model.TextDelta:
			text += ch.Text
		case *model.ToolCallDelta:
			calls = append(calls, openaitest.Call{ID: ch.ID, Name: ch.Name, Args: ch.Args})
		}
	}
	out := openaitest.Text(text).Calls(calls...)
	if len(calls) > 2 {
		out = out.Reasoning("Much is to be done.").Interleave()
	}
	if tn.err != nil {
		out = out.CutAfter(w.cut)
	}
	return out
}

// TestChaosOnTheWire is TestChaos over HTTP: each run of a conversation uses another protocol, and the server is strict.
func TestChaosOnTheWire(t *testing.T) {
	w := newWires(t)
	requests := 0
	rapid.Check(t, func(rt *rapid.T) {
		(&chaos{rt: rt, on: w, ran: map[string]int{}, repeats: map[string]int{}}).play(t)
		if faults := w.server.Faults(); len(faults) > 0 {
			rt.Fatal(faults[0])
		}
		requests = len(w.server.Requests())
	})
	if requests < 20 { // with -short, too
		t.Errorf("%d requests", requests)
	}
}
