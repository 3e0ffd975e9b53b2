package agent

import (
	"math"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

type trip struct {
	From string `json:"from"`
	Days int    `json:"days"`
}

// TestTypedSubAgents covers arguments and answers of several types.
func TestTypedSubAgents(t *testing.T) {
	final := func(args string) turn { return calls("f1 " + finalName + " " + args) }
	asked := func(in trip) string { return "From " + in.From + "." }
	for _, row := range []struct {
		why    string
		as     func(a *Agent) (tool.Tool, error)
		args   string
		answer turn
		task   string
		text   string
		data   string
		output bool // the tool has a schema of its result
	}{
		{"text to text", func(a *Agent) (tool.Tool, error) { return AsTool[string, string](a, "plan", "Plans.", nil) },
			`{"task":"Go."}`, says("Gone."), "Go.", "Gone.", "", false},
		{"a struct as JSON", func(a *Agent) (tool.Tool, error) { return AsTool[trip, string](a, "plan", "Plans.", nil) },
			`{"from":"Graz","days":2}`, says("Gone."), `{"from":"Graz","days":2}`, "Gone.", "", false},
		{"a struct in words", func(a *Agent) (tool.Tool, error) {
			return AsTool[trip, string](a, "plan", "Plans.", &AsToolOptions[trip]{Prompt: asked})
		}, `{"from":"Graz","days":2}`, says("Gone."), "From Graz.", "Gone.", "", false},
		{"options without a prompt", func(a *Agent) (tool.Tool, error) {
			return AsTool[string, string](a, "plan", "Plans.", new(AsToolOptions[string]))
		}, `{"task":"Go."}`, says("Gone."), "Go.", "Gone.", "", false},
		{"a struct for an answer", func(a *Agent) (tool.Tool, error) { return AsTool[string, verdict](a, "plan", "Plans.", nil) },
			`{"task":"Go."}`, final(`{"city":"Graz","score":4}`), "Go.", `{"city":"Graz","score":4}`, `{"city":"Graz","score":4}`, true},
		{"a number for an answer", func(a *Agent) (tool.Tool, error) { return AsTool[trip, int](a, "plan", "Plans.", nil) },
			`{"from":"Graz","days":2}`, final(`{"value":7}`), `{"from":"Graz","days":2}`, "7", "", false},
	} {
		inner, w := newAgent(t, Config{}, row.answer)
		plan, err := row.as(inner)
		if err != nil {
			t.Fatal(err)
		}
		if got := plan.Info().Output != nil; got != row.output {
			t.Errorf("%s: a schema of the result: %v", row.why, got)
		}
		a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(plan)}, calls("c1 plan "+row.args), says("done"))
		evs, err := play(t, a, new(State), Say("go"))
		if err != nil {
			t.Fatal(err)
		}
		res := of[*event.ToolResult](evs)[0].Result
		if res.Outcome != message.OutcomeSuccess || res.Text() != row.text || string(res.Structured) != row.data || w.reqs[0].Messages[0].Text() != row.task {
			t.Errorf("%s: %s %q, structured %s, task %q", row.why, res.Outcome, res.Text(), res.Structured, w.reqs[0].Messages[0].Text())
		}
	}
}

// TestTypedSubAgentWaits has a sub-agent ask the user before it gives its answer, in another process.
func TestTypedSubAgentWaits(t *testing.T) {
	var j journal
	kit := toolkit.Of(noting(&j, "note", tool.Options{}))
	team := func(inner, outer []turn) *Agent {
		sub, _ := newAgent(t, Config{Toolkit: kit}, inner...)
		plan, err := AsTool[string, verdict](sub, "plan", "Plans.", nil)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(plan)}, outer...)
		return a
	}
	st := new(State)
	if _, err := play(t, team([]turn{calls(`s1 note {"path":"a"}`)}, []turn{calls(`c1 plan {"task":"x"}`)}), st, Say("go")); err != nil {
		t.Fatal(err)
	}
	// The model must be reminded once as well.
	a := team([]turn{says("Graz."), calls("f1 " + finalName + ` {"city":"Graz","score":4}`)}, []turn{says("done")})
	st = reload(t, st)
	if _, err := play(t, a, st, st.Pending()[0].(*event.Approval).Allow()); err != nil {
		t.Fatal(err)
	}
	equal(t, "result", results(st), []string{`c1 success: {"city":"Graz","score":4}`})
	equal(t, "ran", j.String(), "note:a")
}

func TestAsToolRefuses(t *testing.T) {
	a, _ := newAgent(t, Config{})
	for _, row := range []struct {
		make func() (tool.Tool, error)
		want string
	}{
		{func() (tool.Tool, error) { return AsTool[string, string](nil, "plan", "Plans.", nil) }, "is nil"},
		{func() (tool.Tool, error) { return AsTool[string, string](a, "no good", "Plans.", nil) }, "no good"},
		{func() (tool.Tool, error) { return AsTool[int, string](a, "plan", "Plans.", nil) }, "int"},
		{func() (tool.Tool, error) { return AsTool[string, func()](a, "plan", "Plans.", nil) }, "func()"},
	} {
		if tl, err := row.make(); err == nil || tl != nil || !strings.Contains(err.Error(), row.want) || !strings.HasPrefix(err.Error(), "agent.AsTool: ") {
			t.Errorf("%v, %v; want an error with %q", tl, err, row.want)
		}
	}
}

// TestRequestParameters : every request for an answer has the parameters of the Config.
func TestRequestParameters(t *testing.T) {
	cold := 0.0
	a, w := newAgent(t, Config{Policy: bypass, Temperature: &cold, MaxTokens: 300}, says("done"))
	if _, err := play(t, a, new(State), Say("go")); err != nil {
		t.Fatal(err)
	}
	if req := w.reqs[0]; req.Temperature == nil || *req.Temperature != 0 || req.MaxTokens != 300 {
		t.Errorf("temperature %v, %d tokens", req.Temperature, req.MaxTokens)
	}
	for _, bad := range []float64{-1, math.NaN()} {
		if _, err := New(Config{Model: w, Toolkit: toolkit.Of(), Temperature: &bad}); err == nil || !strings.Contains(err.Error(), "Temperature") {
			t.Errorf("%g: %v", bad, err)
		}
	}
	if _, err := New(Config{Model: w, Toolkit: toolkit.Of(), MaxTokens: -1}); err == nil || !strings.Contains(err.Error(), "MaxTokens is -1") {
		t.Error(err)
	}
}
