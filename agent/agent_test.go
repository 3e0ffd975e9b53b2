package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

func TestToolRound(t *testing.T) {
	var j journal
	a, w := newAgent(t, Config{Policy: bypass, Instructions: "Be brief.", Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))},
		calls(`c1 note {"path":"a"}`, `c2 note {"path":"b"}`), says("done"))
	var st State
	reply, err := a.Reply(t.Context(), &st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "answer", reply.Text(), "done")
	equal(t, "ran", j.String(), "note:a note:b")
	equal(t, "results", results(&st), []string{"c1 success: noted a", "c2 success: noted b"})
	equal(t, "usage", st.Usage, message.Usage{Input: 20, Output: 4})
	equal(t, "system", w.reqs[0].System, "Be brief.")
	checkState(t, &st)
}

func TestBadCallsBecomeResults(t *testing.T) {
	boom := tool.Must(tool.New("boom", "Panics.", func(context.Context, struct{}) (string, error) { panic("secret stack") }))
	fail := tool.Must(tool.New("fail", "Fails.", func(context.Context, struct{}) (string, error) { return "", errors.New("disk full") }))
	var j journal
	tk := toolkit.Of(boom, fail, noting(&j, "note", tool.Options{}))
	for _, row := range []struct{ call, want string }{
		{`c nope {"a":1}`, "nope"},
		{`c note {"path":`, ""},
		{`c note {"path":null}`, "path"},
		{`c note {}`, "path"},
		{`c note []`, ""},
		{`c boom {}`, "boom"},
		{`c fail {}`, "disk full"},
	} {
		a, w := newAgent(t, Config{Policy: bypass, Toolkit: tk}, calls(row.call), says("sorry"))
		var st State
		evs, err := play(t, a, &st, Say("go"))
		if err != nil {
			t.Errorf("%s: %v", row.call, err)
			continue
		}
		res := of[*event.ToolResult](evs)
		if len(res) != 1 || res[0].Outcome != message.OutcomeError || !strings.Contains(res[0].Text, row.want) {
			t.Errorf("%s: %+v", row.call, res)
		}
		if strings.Contains(res[0].Text, "goroutine") {
			t.Errorf("%s: the result has a stack trace: %s", row.call, res[0].Text)
		}
		equal(t, "end", endOf(t, evs).Reason, event.EndCompleted)
		equal(t, "requests", len(w.reqs), 2)
	}
	equal(t, "ran", j.String(), "")
}

func TestParallelIsBoundedAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		slow := tool.Must(tool.New("slow", "Waits.", func(_ context.Context, in pathArg) (string, error) {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Duration(10-len(in.Path)) * time.Second) // later calls end sooner
			now.Add(-1)
			return in.Path, nil
		}, tool.Options{Parallel: true}))
		var specs, want []string
		for i := range 7 {
			p := strings.Repeat("x", i)
			specs = append(specs, fmt.Sprintf(`c%d slow {"path":%q}`, i, p))
			want = append(want, fmt.Sprintf("c%d success: %s", i, p))
		}
		a, _ := newAgent(t, Config{Policy: bypass, MaxParallel: 3, Toolkit: toolkit.Of(slow)}, calls(specs...), says("done"))
		var st State
		evs, err := play(t, a, &st, Say("go"))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "results", results(&st), want)
		equal(t, "most at a time", most.Load(), int32(3))
		if of[*event.ToolResult](evs)[0].Call == "c0" {
			t.Error("results are emitted in call order, not when they are ready")
		}
	})
}

func TestConfirm(t *testing.T) {
	var j journal
	tk := toolkit.Of(noting(&j, "note", tool.Options{}), noting(&j, "other", tool.Options{}))
	allow := []permission.Rule{{Tool: "note", Behavior: permission.Allow}}
	for _, row := range []struct {
		name   string
		answer event.Confirm
		ran    string
		result string
		again  bool // a second call of note needs approval
	}{
		{"yes", event.Confirm{Allow: true}, "note:a", "c1 success: noted a", true},
		{"no", event.Confirm{Reason: "wrong file"}, "", "c1 denied: The user refused this call of note. Reason: wrong file", true},
		{"always", event.Confirm{Allow: true, Rules: allow}, "note:a note:again", "c1 success: noted a", false},
		{"edit", event.Confirm{Allow: true, Input: json.RawMessage(`{"path":"b"}`)}, "note:b",
			"c1 success: [The user changed the arguments of this call to {\"path\":\"b\"}.]\nnoted b", true},
		{"never", event.Confirm{Rules: []permission.Rule{{Tool: "note", Behavior: permission.Deny}}}, "",
			"c1 denied: The user refused this call of note. That is a decision: do not do the same in another way. Continue without it, or say what you would need.", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			j.ran = nil
			a, w := newAgent(t, Config{Toolkit: tk}, calls(`c1 note {"path":"a"}`))
			var st State
			evs, err := play(t, a, &st, Say("go"))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "end", endOf(t, evs).Reason, event.EndWaiting)
			q := of[*event.Approval](evs)
			if len(q) != 1 || q[0].Call != "c1" || q[0].Name != "note" || len(st.Pending()) != 1 || len(q[0].Suggest) == 0 {
				t.Fatalf("questions: %+v, pending %v", q, st.Pending())
			}
			if _, err := a.Reply(t.Context(), &st, Say("hello?")); !errors.Is(err, ErrWaiting) {
				t.Errorf("a message while it waits: %v", err)
			}
			loaded := reload(t, &st)
			row.answer.Call = "c1"
			w.turns = []turn{calls(`c2 note {"path":"again"}`), says("done")}
			evs, err = play(t, a, loaded, row.answer)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "ran", j.String(), row.ran)
			equal(t, "asked again", len(of[*event.Approval](evs)) == 1, row.again)
			first := of[*event.ToolResult](evs)[0]
			equal(t, "result", fmt.Sprintf("%s %s: %s", first.Call, first.Outcome, first.Text), row.result)
			equal(t, "the model's arguments stay", string(loaded.Messages[1].ToolCalls()[0].Input), `{"path":"a"}`)
		})
	}
}

func TestConfirmRefusesNonsense(t *testing.T) {
	var j journal
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, calls(`c1 note {"path":"a"}`))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	before, _ := json.Marshal(&st)
	for _, in := range [][]Input{
		{event.Confirm{Call: "c9", Allow: true}},
		{event.Confirm{Call: "c1"}, event.Confirm{Call: "c1", Allow: true}},
		{event.Confirm{Call: "c1", Allow: true, Input: json.RawMessage(`{"nope":7}`)}},
		{event.Confirm{Call: "c1", Allow: true, Rules: []permission.Rule{{Tool: "other", Behavior: permission.Allow}}}},
		{event.Confirm{Call: "c1", Allow: true, Rules: []permission.Rule{{Tool: "*", Behavior: permission.Allow}}}},
		{event.Confirm{Call: "c1", Allow: true, Rules: []permission.Rule{{Tool: "note", Behavior: "perhaps"}}}},
		{event.Result{Call: "c1"}},
		{nil},
		{Say("more")},
	} {
		evs, err := play(t, a, &st, in...)
		if err == nil || len(evs) > 0 {
			t.Errorf("%+v: %v, %d events", in, err, len(evs))
		}
	}
	after, _ := json.Marshal(&st)
	equal(t, "state", string(after), string(before))
	equal(t, "ran", j.String(), "")
}

func TestBatchAsksOnceForWhatOneRuleCovers(t *testing.T) {
	var j journal
	tk := toolkit.Of(noting(&j, "note", tool.Options{Parallel: true}), noting(&j, "other", tool.Options{Parallel: true}))
	specs := []string{`c1 note {"path":"a"}`, `c2 note {"path":"b"}`, `c3 other {"path":"c"}`}
	a, w := newAgent(t, Config{Toolkit: tk}, calls(specs...))
	var st State
	evs, _ := play(t, a, &st, Say("go"))
	equal(t, "questions", len(of[*event.Approval](evs)), 2)
	equal(t, "pending", len(st.Pending()), 2)

	// Approval without a rule raises the covered question; c3's is emitted again.
	evs, err := play(t, a, &st, event.Confirm{Call: "c1", Allow: true})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "end", endOf(t, evs).Reason, event.EndWaiting)
	equal(t, "ran", j.String(), "note:a")
	var ids []string
	for _, q := range of[*event.Approval](evs) {
		ids = append(ids, q.Call)
	}
	equal(t, "questions", ids, []string{"c2", "c3"})
	w.turns = []turn{says("done")}
	evs, err = play(t, a, reload(t, &st), event.Confirm{Call: "c2"}, event.Confirm{Call: "c3", Allow: true})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "end", endOf(t, evs).Reason, event.EndCompleted)
	equal(t, "ran", j.String(), "note:a other:c")
}

func TestApproveInProcess(t *testing.T) {
	var j journal
	var asked []string
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{})),
		Approve: func(_ context.Context, q event.Approval) (event.Confirm, error) {
			asked = append(asked, string(q.Input))
			return event.Confirm{Allow: len(asked) == 1}, nil
		}}, calls(`c1 note {"path":"a"}`, `c2 note {"path":"b"}`), says("done"))
	var st State
	evs, err := play(t, a, &st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "asked", asked, []string{`{"path":"a"}`, `{"path":"b"}`})
	equal(t, "ran", j.String(), "note:a")
	equal(t, "end", endOf(t, evs).Reason, event.EndCompleted)
}

func TestApprovedCallIsStillDenied(t *testing.T) {
	var j journal
	cfg := Config{Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}
	a, _ := newAgent(t, cfg, calls(`c1 note {"path":"a"}`))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	cfg.Policy.Rules = []permission.Rule{{Tool: "note", Behavior: permission.Deny}}
	b, _ := newAgent(t, cfg, says("done"))
	if _, err := play(t, b, &st, event.Confirm{Call: "c1", Allow: true}); err != nil {
		t.Fatal(err)
	}
	equal(t, "ran", j.String(), "")
	if r := results(&st); len(r) != 1 || !strings.HasPrefix(r[0], "c1 denied") {
		t.Errorf("results %q", r)
	}
}

func TestInterrupts(t *testing.T) {
	started := make(chan struct{}, 8)
	hang := tool.Must(tool.New("hang", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		started <- struct{}{}
		<-ctx.Done()
		return "", ctx.Err()
	}, tool.Options{Parallel: true}))
	quick := tool.Must(tool.New("quick", "Does.", func(context.Context, struct{}) (string, error) { return "ok", nil }, tool.Options{Parallel: true}))
	tk := toolkit.Of(hang, quick)

	t.Run("in a tool", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, _ := newAgent(t, Config{Policy: bypass, Toolkit: tk}, calls(`c1 quick {}`, `c2 hang {}`, `c3 hang {}`))
		var st State
		var evs []event.Event
		for ev, err := range a.Run(ctx, &st, Say("go")) {
			if err != nil {
				t.Fatal(err)
			}
			if evs = append(evs, ev); event.TypeOf(ev) == "tool_result" && len(of[*event.ToolResult](evs)) == 1 {
				<-started
				<-started
				cancel()
			}
		}
		checkState(t, &st)
		equal(t, "end", endOf(t, evs).Reason, event.EndInterrupted)
		r := results(&st)
		if len(r) != 3 || !strings.HasPrefix(r[0], "c1 success") || !strings.HasPrefix(r[1], "c2 interrupted") {
			t.Errorf("results %q", r)
		}
	})
	t.Run("in the model's answer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		tn := turn{block: true, chunks: []model.Chunk{&model.TextDelta{Text: "I beg"},
			&model.ToolCallDelta{ID: "c1", Name: "quick", Args: `{`}}}
		a, w := newAgent(t, Config{Policy: bypass, Toolkit: tk}, tn)
		var st State
		var evs []event.Event
		for ev, err := range a.Run(ctx, &st, Say("go")) {
			if err != nil {
				t.Fatal(err)
			}
			if evs = append(evs, ev); event.TypeOf(ev) == "tool_call_delta" {
				cancel()
			}
		}
		equal(t, "end", endOf(t, evs).Reason, event.EndInterrupted)
		equal(t, "what was shown is kept", st.Messages[1].Text(), "I beg")
		equal(t, "an incomplete call is not", len(st.Messages[1].ToolCalls()), 0)
		w.turns = []turn{says("done")}
		if _, err := play(t, a, &st, Say("again")); err != nil {
			t.Error(err)
		}
	})
	t.Run("by a person while it waits", func(t *testing.T) {
		a, w := newAgent(t, Config{Toolkit: tk}, calls(`c1 quick {}`, `c2 quick {}`))
		var st State
		play(t, a, &st, Say("go"))
		evs, err := play(t, a, &st, Interrupt{})
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "end", endOf(t, evs).Reason, event.EndInterrupted)
		equal(t, "results", len(results(&st)), 2)
		w.turns = []turn{says("done")}
		if _, err := a.Reply(t.Context(), &st, Say("again")); err != nil {
			t.Error(err)
		}
	})
}

// TestBreakAnywhere stops at every event of a run and continues.
func TestBreakAnywhere(t *testing.T) {
	for stop := 1; ; stop++ {
		var j journal
		a, w := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{Parallel: true}))},
			calls(`c1 note {"path":"a"}`, `c2 note {"path":"b"}`), says("done"))
		var st State
		n, last := 0, ""
		for ev, err := range a.Run(t.Context(), &st, Say("go")) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == stop {
				last = event.TypeOf(ev)
				break
			}
		}
		if n < stop {
			return
		}
		checkState(t, &st)
		if len(st.loop.Open) > 0 || st.busy.Load() {
			t.Fatalf("after a break at %s: %d open calls", last, len(st.loop.Open))
		}
		w.turns = []turn{says("fine")}
		if _, err := play(t, a, &st, Say("and?")); err != nil {
			t.Fatalf("after a break at %s: %v", last, err)
		}
	}
}

func TestBusyAndSingleUse(t *testing.T) {
	a, _ := newAgent(t, Config{}, says("a"))
	var st State
	seq := a.Run(t.Context(), &st, Say("go"))
	for range seq {
		if _, err := a.Reply(t.Context(), &st, Say("me too")); !errors.Is(err, ErrBusy) {
			t.Fatalf("second run: %v", err)
		}
	}
	for ev, err := range seq {
		if ev != nil || err == nil {
			t.Fatal("ranged twice")
		}
	}
}

func TestOddAnswers(t *testing.T) {
	upstream := &model.Error{Kind: model.KindConnection, Message: "reset"}
	text := func(s string) model.Chunk { return &model.TextDelta{Text: s} }
	noRetry := middleware.RetryConfig{Retries: -1}
	for _, row := range []struct {
		name  string
		turns []turn
		want  string // the text of all assistant messages
		fails string
	}{
		{"cut off after text", []turn{{chunks: []model.Chunk{text("one ")}, err: upstream}, says("two")}, "one |two", ""},
		{"cut off in a call", []turn{{chunks: []model.Chunk{&model.ToolCallDelta{ID: "c", Name: "note", Args: `{"pa`}}, err: upstream}, says("two")}, "two", ""},
		{"always cut off", []turn{{chunks: []model.Chunk{text("1")}, err: upstream}, {chunks: []model.Chunk{text("2")}, err: upstream},
			{chunks: []model.Chunk{text("3")}, err: upstream}}, "1|2|3", "reset"},
		{"refused", []turn{{err: &model.Error{Kind: model.KindInvalidRequest, Message: "no"}}}, "", "no"},
		{"empty once", []turn{{chunks: []model.Chunk{finish("stop")}}, says("two")}, "two", ""},
		{"thinking only", []turn{{chunks: []model.Chunk{&model.ThinkingDelta{Text: "hm"}, finish("stop")}}, says("two")}, "two", ""},
		{"always empty", []turn{{chunks: []model.Chunk{finish("stop")}}, {chunks: []model.Chunk{finish("stop")}}, {chunks: []model.Chunk{finish("stop")}}}, "", "empty"},
		{"no finish", []turn{{chunks: []model.Chunk{text("one")}}, says("two")}, "one|two", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, _ := newAgent(t, Config{Policy: bypass, Retry: noRetry}, row.turns...)
			var st State
			evs, err := play(t, a, &st, Say("go"))
			if row.fails == "" && err != nil || row.fails != "" && (err == nil || !strings.Contains(err.Error(), row.fails)) {
				t.Fatalf("error %v, want %q", err, row.fails)
			}
			if err != nil {
				equal(t, "end", endOf(t, evs).Reason, event.EndError)
			}
			var texts []string
			for _, m := range st.Messages {
				if m.Role == message.RoleAssistant {
					texts = append(texts, m.Text())
				}
			}
			equal(t, "texts", strings.Join(texts, "|"), row.want)
		})
	}
}

func TestCallIDsAndInterleaving(t *testing.T) {
	var j journal
	tn := turn{chunks: []model.Chunk{
		&model.ToolCallDelta{Index: 0, ID: "x", Name: "note", Args: `{"pa`},
		&model.ToolCallDelta{Index: 1, ID: "x", Name: "note", Args: `{"path":`},
		&model.ToolCallDelta{Index: 0, Args: `th":"a"}`},
		&model.ToolCallDelta{Index: 2, Name: "note", Args: `{"path":"c"}`},
		&model.ToolCallDelta{Index: 1, Args: `"b"}`},
		finish("tool_calls"),
	}}
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, tn, calls(`x note {"path":"d"}`), says("done"))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	equal(t, "ran", j.String(), "note:a note:b note:c note:d")
}

// external marks a tool as one that the host runs.
type external struct{ tool.Tool }

func (e external) Unwrap() tool.Tool { return e.Tool }

func (e external) Info() tool.Info {
	info := e.Tool.Info()
	info.External = true
	return info
}

func TestExternal(t *testing.T) {
	var j journal
	a, w := newAgent(t, Config{Policy: bypass, Window: Window{MaxResult: 100}, Toolkit: toolkit.Of(external{noting(&j, "browser", tool.Options{})})}, calls(`c1 browser {"path":"p"}`))
	var st State
	evs, err := play(t, a, &st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	if x := of[*event.External](evs); len(x) != 1 || x[0].Call != "c1" || string(x[0].Input) != `{"path":"p"}` {
		t.Fatalf("external %+v", x)
	}
	w.turns = []turn{says("done")}
	evs, err = play(t, a, reload(t, &st), event.Result{Call: "c1", Blocks: []message.Block{&message.Text{Text: "a page" + strings.Repeat(" and more", 1000)}}})
	if err != nil {
		t.Fatal(err)
	}
	if text := of[*event.ToolResult](evs)[0].Text; !strings.HasPrefix(text, "a page") || len(text) > 300 {
		t.Errorf("the result was not clipped: %d bytes", len(text))
	}
	equal(t, "ran", j.String(), "")
	equal(t, "end", endOf(t, evs).Reason, event.EndCompleted)
}

func TestLimitAndAbort(t *testing.T) {
	var j journal
	abort := tool.Must(tool.New("abort", "Aborts.", func(context.Context, struct{}) (string, error) {
		return "", fmt.Errorf("licence expired: %w", tool.ErrAbort)
	}))
	tk := toolkit.Of(noting(&j, "note", tool.Options{}), abort)
	a, _ := newAgent(t, Config{Policy: bypass, Limits: Limits{Steps: 2}, Toolkit: tk}, calls(`c1 note {"path":"a"}`), calls(`c2 note {"path":"b"}`))
	var st State
	if _, err := a.Reply(t.Context(), &st, Say("go")); !errors.Is(err, ErrLimit) {
		t.Errorf("limit: %v", err)
	}
	checkState(t, &st)
	a, _ = newAgent(t, Config{Policy: bypass, Toolkit: tk}, calls(`d1 abort {}`, `d2 note {"path":"c"}`))
	evs, err := play(t, a, &st, Say("go"))
	if !errors.Is(err, tool.ErrAbort) || endOf(t, evs).Reason != event.EndError {
		t.Errorf("abort: %v", err)
	}
	equal(t, "ran", j.String(), "note:a note:b")
}

func TestToolTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := tool.Must(tool.New("hang", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}))
		a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(hang), ToolTimeout: time.Hour}, calls(`c1 hang {}`), says("done"))
		var st State
		if _, err := play(t, a, &st, Say("go")); err != nil {
			t.Fatal(err)
		}
		if r := results(&st); len(r) != 1 || !strings.Contains(r[0], "longer than 1h") {
			t.Errorf("results %q", r)
		}
	})
}

// TestInterruptedBy: the errors of Reply and ReplyAs have the cause with which a context
// ended.
func TestInterruptedBy(t *testing.T) {
	a, _ := newAgent(t, Config{}, says("never"), says("never"))
	why := errors.New("the customer has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := a.Reply(ctx, new(State), Say("hello")); !errors.Is(err, ErrInterrupted) || !errors.Is(err, why) {
		t.Errorf("Reply: %v", err)
	}
	if _, err := ReplyAs[string](ctx, a, new(State), Say("hello")); !errors.Is(err, ErrInterrupted) || !errors.Is(err, why) {
		t.Errorf("ReplyAs: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, cfg := range []Config{{}, {Model: &turnModel{}}, {Model: &turnModel{}, Toolkit: toolkit.Of(), Limits: Limits{Steps: -1}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Policy: permission.Policy{Mode: "yolo"}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Key: []byte("short")},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Limits: Limits{ToolCalls: -1}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Limits: Limits{Tokens: -1}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Limits: Limits{Time: -1}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Limits: Limits{Cost: -1}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Limits: Limits{Cost: math.NaN(), Price: func(string, message.Usage) float64 { return 1 }}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), AnswerWithin: -1},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Window: Window{Tokens: -1}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Window: Window{Compact: math.NaN()}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Window: Window{Keep: math.NaN()}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Window: Window{Keep: 0.8}},
		{Model: &turnModel{}, Toolkit: toolkit.Of(), Policy: permission.Policy{Rules: []permission.Rule{{Tool: "a", Behavior: "alow"}}}}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
	a, _ := newAgent(t, Config{})
	for _, inputs := range [][]Input{nil, {Compact{}}, {Compact{}, Compact{}}, {Say("a", (*message.Data)(nil))}, {Say("a", (*message.Text)(nil))}, {Say("", (*message.Hint)(nil))}} {
		if evs, err := play(t, a, new(State), inputs...); err == nil || len(evs) > 0 {
			t.Errorf("%v on an empty state: %v", inputs, err)
		}
	}
	if _, err := a.Reply(t.Context(), nil, Say("hello")); err == nil || !strings.Contains(err.Error(), "&agent.State{}") {
		t.Errorf("without a State: %v", err)
	}
}

func TestQuestionsExpire(t *testing.T) {
	var j journal
	now := time.Unix(0, 0)
	cfg := Config{AnswerWithin: time.Hour, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}
	cfg.Now = func() time.Time { return now }
	a, w := newAgent(t, cfg, calls(`c1 note {"path":"a"}`))
	var st State
	if _, err := play(t, a, &st, Say("go")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Hour)
	yes := event.Confirm{Call: "c1", Allow: true}
	if evs, err := play(t, a, &st, yes); !errors.Is(err, ErrExpired) || len(evs) > 0 {
		t.Fatalf("a late answer: %v", err)
	}
	evs, err := play(t, a, &st)
	if err != nil || len(of[*event.Approval](evs)) != 1 {
		t.Fatalf("asked again: %v", err)
	}
	w.turns = []turn{says("done")}
	if _, err := play(t, a, &st, yes); err != nil {
		t.Fatal(err)
	}
	equal(t, "ran", j.String(), "note:a")
}

// TestLateCallsDoNotDependOnOrder opens a group and calls a tool of another group
// that this closes, in either order.
func TestLateCallsDoNotDependOnOrder(t *testing.T) {
	for _, order := range [][]string{
		{`r reset_tools {"b":true}`, `n note {"path":"x"}`},
		{`n note {"path":"x"}`, `r reset_tools {"b":true}`},
	} {
		var j journal
		tk, err := toolkit.New(toolkit.Config{Groups: []toolkit.Group{
			{Name: "a", Description: "A.", Tools: []tool.Tool{noting(&j, "note", tool.Options{})}},
			{Name: "b", Description: "B.", Tools: []tool.Tool{noting(&j, "other", tool.Options{})}},
		}, Control: toolkit.ResetTools(nil)})
		if err != nil {
			t.Fatal(err)
		}
		a, w := newAgent(t, Config{Policy: bypass, Toolkit: tk}, calls(order...), calls(`n2 note {"path":"y"}`), calls(`o other {"path":"z"}`), says("done"))
		var st State
		if _, err := tk.Enable(t.Context(), &st.Scope, "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := play(t, a, &st, Say("go")); err != nil {
			t.Fatal(err)
		}
		equal(t, "ran", j.String(), "note:x other:z")
		equal(t, "requests", len(w.reqs), 4)
	}
}

// TestEventsMatchHistory rebuilds the messages from the deltas.
func TestEventsMatchHistory(t *testing.T) {
	var j journal
	tn := turn{chunks: []model.Chunk{
		&model.ThinkingDelta{Text: "hm"}, &model.ThinkingDelta{Text: "m", Extra: json.RawMessage(`{"sig":"x"}`)},
		&model.TextDelta{Text: "I "}, &model.TextDelta{Text: "call"},
		&model.ToolCallDelta{Index: 0, ID: "c1", Name: "note", Args: `{"path":`},
		&model.ToolCallDelta{Index: 1, ID: "c2", Name: "note", Args: `{"path":`},
		&model.ToolCallDelta{Index: 0, Args: `"a"}`}, &model.ToolCallDelta{Index: 1, Args: `"b"}`},
		&model.TextDelta{Text: "and continue"}, finish("tool_calls")}}
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, tn, says("done"))
	var st State
	evs, err := play(t, a, &st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{} // by message and block
	for _, ev := range evs {
		switch ev := ev.(type) {
		case *event.TextDelta:
			got[ev.Message+" "+ev.Block] += ev.Text
		case *event.ThinkingDelta:
			got[ev.Message+" "+ev.Block] += ev.Text
		case *event.ToolCallDelta:
			got[ev.Message+" "+ev.Call] += ev.Args
		}
	}
	want := map[string]string{}
	for _, m := range st.Messages {
		for _, b := range m.Blocks {
			key := m.ID + " " + b.BlockID()
			switch b := b.(type) {
			case *message.Text:
				if m.Role == message.RoleAssistant {
					want[key] = b.Text
				}
			case *message.Thinking:
				want[key] = b.Text
			case *message.ToolCall:
				want[key] = string(b.Input)
			}
		}
	}
	equal(t, "from the events", got, want)
}

func TestArgumentsThatWereCutOffNeverRun(t *testing.T) {
	for _, args := range []string{`{"path":"/tmp/a`, `"/tmp/a`, `/tmp/a`, `{"path":"/tmp/a"`} {
		var j journal
		cut := turn{chunks: []model.Chunk{&model.ToolCallDelta{ID: "c1", Name: "note", Args: args}, finish(model.FinishLength)}}
		a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{}))}, cut, says("done"))
		var st State
		if _, err := play(t, a, &st, Say("go")); err != nil {
			t.Fatal(err)
		}
		if r := results(&st); j.String() != "" || len(r) != 1 || !strings.HasPrefix(r[0], "c1 error") {
			t.Errorf("%s: ran %q, results %q", args, j.String(), r)
		}
	}
}
