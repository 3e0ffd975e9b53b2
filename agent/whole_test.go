package agent

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// breaks is a turn whose stream breaks off after a text.
func breaks(text string) turn {
	return turn{chunks: []model.Chunk{&model.TextDelta{Text: text}}, err: &model.Error{Kind: model.KindConnection, Message: "reset"}}
}

// TestContinuedAnswer has an answer break off twice: the whole answer is returned, not only its last part.
func TestContinuedAnswer(t *testing.T) {
	turns := []turn{breaks("The first "), breaks("and the second "), says("part.")}
	const want = "The first and the second part."
	a, _ := newAgent(t, Config{}, turns...)
	st := new(State)
	evs, err := play(t, a, st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "End.Text", endOf(t, evs).Text, want)
	for range 2 { // the second time it has its answer
		m, err := a.Reply(t.Context(), st)
		if err != nil || m.Text() != want || m.Message.ID != st.Messages[len(st.Messages)-1].ID {
			t.Errorf("Reply: %+v, %v", m, err)
		}
	}

	inner, _ := newAgent(t, Config{}, turns...)
	helper, err := AsTool[string, string](inner, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ = newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(helper)}, calls(`c1 helper {"task":"x"}`), says("done"))
	st = new(State)
	if _, err := play(t, a, st, Say("go")); err != nil {
		t.Fatal(err)
	}
	equal(t, "a sub-agent's answer", results(st), []string{"c1 success: " + want})

	limit := turns[:1:1]
	limit = append(limit, says("part."), says("unused"))
	a, _ = newAgent(t, Config{}, append(limit, calls(finalName+" "+finalName+` {"city":"Graz","score":4}`))...)
	v, err := ReplyAs[verdict](t.Context(), a, new(State), Say("go"))
	if err != nil || v.City != "Graz" {
		t.Errorf("ReplyAs: %+v, %v", v, err)
	}
}

// TestTimeLimitEndsHangs has the model, or a tool, hang until the time is up.
func TestTimeLimitEndsHangs(t *testing.T) {
	hangs := tool.Must(tool.New("hangs", "Hangs.", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}))
	deaf := tool.Must(tool.New("deaf", "Hangs, even when it is cancelled.", func(context.Context, struct{}) (string, error) {
		time.Sleep(time.Hour)
		return "", nil
	}))
	inner, err := New(Config{Model: &turnModel{turns: []turn{{block: true}}}, Toolkit: toolkit.Of()})
	if err != nil {
		t.Fatal(err)
	}
	helper, err := AsTool[string, string](inner, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		turns []turn
		took  time.Duration
		text  string
		last  string // the last text of the conversation
	}{
		"the model at once":       {[]turn{{block: true}}, time.Minute, "", "go"},
		"the model with a text":   {[]turn{{chunks: []model.Chunk{&model.TextDelta{Text: "So far"}}, block: true}}, time.Minute, "So far", "So far"},
		"a tool":                  {[]turn{calls(`c1 hangs {}`), says("sorry")}, time.Minute, "sorry", "sorry"},
		"a tool that does not":    {[]turn{calls(`c1 deaf {}`), says("sorry")}, time.Minute + 200*time.Millisecond, "sorry", "sorry"},
		"a sub-agent":             {[]turn{calls(`c1 helper {"task":"x"}`), says("sorry")}, time.Minute, "sorry", "sorry"},
		"the last answer, too":    {[]turn{calls(`c1 hangs {}`), {block: true}}, time.Minute + 15*time.Second, "", ""},
		"the model in the second": {[]turn{says(""), {block: true}}, time.Minute, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, _ := newAgent(t, Config{Policy: bypass, Limits: Limits{Time: time.Minute}, Toolkit: toolkit.Of(hangs, deaf, helper)}, row.turns...)
				st := new(State)
				began := time.Now()
				evs, err := play(t, a, st, Say("go"))
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "took", time.Since(began), row.took)
				end := endOf(t, evs)
				if end.Reason != event.EndLimit || end.Detail != "the limit of 1m0s" || end.Text != row.text {
					t.Errorf("end %+v", end)
				}
				if last := st.Messages[len(st.Messages)-1]; row.last != "" && last.Text() != row.last {
					t.Errorf("the last message is %q", last.Text())
				}
				if _, err := a.Reply(t.Context(), st); !errors.Is(err, ErrLimit) { // and the model is not asked
					t.Errorf("Reply: %v", err)
				}
				time.Sleep(time.Hour) // calls that ignore the cancel end by themselves
			})
		})
	}
}

// TestFinishedIsNotAskedAgain runs finished conversations without inputs.
func TestFinishedIsNotAskedAgain(t *testing.T) {
	typed := calls(`f1 final_answer {"city":"Graz","score":4}`)
	a, w := newAgent(t, Config{}, says("done"), typed)
	plain, graz := new(State), new(State)
	if _, err := a.Reply(t.Context(), plain, Say("go")); err != nil {
		t.Fatal(err)
	}
	first, err := ReplyAs[verdict](t.Context(), a, graz, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		m, err := a.Reply(t.Context(), plain)
		if err != nil || m.Text() != "done" {
			t.Errorf("Reply: %v, %v", m, err)
		}
		v, err := ReplyAs[verdict](t.Context(), a, graz)
		if err != nil || v != first {
			t.Errorf("ReplyAs: %+v, %v", v, err)
		}
		plain, graz = reload(t, plain), reload(t, graz)
	}
	equal(t, "requests", len(w.reqs), 2)

	w.turns = []turn{calls(`f2 final_answer {"value":7}`)} // an answer of another type is requested again
	if n, err := ReplyAs[int](t.Context(), a, graz); err != nil || n != 7 {
		t.Errorf("ReplyAs: %d, %v", n, err)
	}
}

// TestPendingEventHeaders compares the pending events with those that were emitted.
func TestPendingEventHeaders(t *testing.T) {
	var j journal
	policy := permission.Policy{Rules: []permission.Rule{{Tool: "helper", Behavior: permission.Allow}, {Tool: "outside", Behavior: permission.Allow}}}
	seams := Seams{Now: func() time.Time { return time.Unix(1000, 0).UTC() }}
	inner, _ := newAgent(t, Config{Seams: seams, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{Parallel: true}), noting(&j, "write", tool.Options{Parallel: true}))},
		calls(`s1 note {"path":"x"}`, `s2 write {"path":"x"}`))
	helper, err := AsTool[string, string](inner, "helper", "Helps.", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := newAgent(t, Config{Seams: seams, Policy: policy, Toolkit: toolkit.Of(helper, parallel{noting(&j, "ask", tool.Options{})}, external{noting(&j, "outside", tool.Options{Parallel: true})})},
		calls(`c1 ask {"path":"x"}`, `c2 helper {"task":"x"}`, `c3 outside {"path":"x"}`))
	st := new(State)
	evs, err := play(t, a, st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	var emitted []string
	for _, ev := range evs {
		switch ev.(type) {
		case *event.Approval, *event.External:
			emitted = append(emitted, jsonOf(t, ev))
		}
	}
	for _, st := range []*State{st, reload(t, st)} {
		var pending []string
		for _, ev := range st.Pending() {
			pending = append(pending, jsonOf(t, ev))
		}
		if len(pending) != 4 || strings.Join(pending, "\n") != strings.Join(emitted[len(emitted)-4:], "\n") {
			t.Errorf("pending:\n%s\nthe events:\n%s", strings.Join(pending, "\n"), strings.Join(emitted, "\n"))
		}
	}
}

func jsonOf(t *testing.T, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestFailureIsReportedOnce has the store refuse every save from the second on.
func TestFailureIsReportedOnce(t *testing.T) {
	var j journal
	conflict := errors.New("another process has saved this session")
	saves := 0
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "note", tool.Options{Parallel: true})), Save: func(context.Context, *State) error {
		if saves++; saves > 2 {
			return conflict
		}
		return nil
	}}, calls(`c1 note {"path":"a"}`, `c2 note {"path":"b"}`, `c3 note {"path":"c"}`))
	evs, err := play(t, a, new(State), Say("go"))
	if !errors.Is(err, conflict) || strings.Count(err.Error(), conflict.Error()) != 1 || endOf(t, evs).Detail != err.Error() {
		t.Errorf("%v", err)
	}
}

// TestCancelIsNotAFailure cancels a run while something waits that then fails: the run is interrupted and has
// not failed.
func TestCancelIsNotAFailure(t *testing.T) {
	var j journal
	long := tool.Must(tool.New("long", "Says much.", func(context.Context, struct{}) (string, error) {
		return strings.Repeat("many words ", 2000), nil
	}))
	for name, row := range map[string]struct {
		cfg   Config
		turns []turn
		limit bool // the time limit ends the run, not a cancel
	}{
		"a question":          {cfg: Config{Policy: permission.Policy{}}, turns: []turn{calls(`c1 ask {"path":"x"}`)}},
		"a summary":           {cfg: Config{Policy: bypass, Window: Window{Tokens: 1000, MaxResult: -1}}, turns: []turn{calls(`c1 long {}`), calls(`c2 long {}`), {block: true}}},
		"a summary, by limit": {cfg: Config{Policy: bypass, Limits: Limits{Time: time.Minute}, Window: Window{Tokens: 1000, MaxResult: -1}}, turns: []turn{calls(`c1 long {}`), calls(`c2 long {}`), {block: true}, {block: true}}, limit: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if !row.limit {
					time.AfterFunc(time.Minute, cancel)
				}
				row.cfg.Toolkit = toolkit.Of(long, noting(&j, "ask", tool.Options{}))
				row.cfg.Approve = func(ctx context.Context, _ event.Approval) (event.Confirm, error) {
					<-ctx.Done()
					return event.Confirm{}, ctx.Err()
				}
				a, w := newAgent(t, row.cfg, row.turns...)
				st := new(State)
				evs, err := playCtx(t, ctx, a, st, Say("go"))
				want := event.EndInterrupted
				if row.limit {
					want = event.EndLimit
				}
				if err != nil || endOf(t, evs).Reason != want {
					t.Errorf("%+v, %v", endOf(t, evs), err)
				}
				if row.limit && len(w.turns) > 1 {
					t.Errorf("%d turns are left", len(w.turns))
				}
			})
		})
	}
}
