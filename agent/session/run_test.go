package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// stampAgent returns an agent that calls a tool for some words of the user: a word that ends in "!" is stamped, which
// needs an approval, and "host" is an external call. With below, a sub-agent stamps.
func stampAgent(stamped *[]string, below bool, save func(context.Context, *agent.State) error) *agent.Agent {
	stamp := tool.Must(tool.New("stamp", "Stamps a word.", func(_ context.Context, in wordIn) (string, error) {
		*stamped = append(*stamped, in.Word)
		return "stamped", nil
	}, tool.Options{}))
	if below {
		inner := must(agent.New(agent.Config{Model: scripted.New(scripted.Repeat(scripted.Func(nextStamp("stamp")))), Toolkit: toolkit.Of(stamp)}))
		stamp = tool.Must(agent.AsTool[string, string](inner, "desk", "Stamps a word.", nil))
	}
	name := stamp.Info().Name
	return must(agent.New(agent.Config{
		Model:   scripted.New(scripted.Repeat(scripted.Func(nextStamp(name)))),
		Toolkit: toolkit.Of(stamp, tool.Must(tool.External[wordIn]("host", "Is an external call."))),
		Policy:  permission.Policy{Rules: []permission.Rule{{Tool: "host", Behavior: permission.Allow}, {Tool: "desk", Behavior: permission.Allow}}},
		Save:    save,
	}))
}

type wordIn struct {
	Word string `json:"word"`
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// nextStamp is the model: it makes the calls for the last message.
func nextStamp(name string) func(req *model.Request) (scripted.Turn, error) {
	return func(req *model.Request) (scripted.Turn, error) {
		last := req.Messages[len(req.Messages)-1]
		if len(last.ToolResults()) > 0 {
			return scripted.Say("done"), nil
		}
		var calls []scripted.Turn
		for _, word := range strings.Fields(last.Text()) {
			switch {
			case word == "break":
				return scripted.Turn{}, errors.New("the model is broken")
			case word == "host":
				calls = append(calls, scripted.Call("host", wordIn{word}))
			case strings.HasSuffix(word, "!") && name == "desk":
				calls = append(calls, scripted.Call(name, map[string]string{"task": word}))
			case strings.HasSuffix(word, "!"):
				calls = append(calls, scripted.Call(name, wordIn{word}))
			}
		}
		if len(calls) == 0 {
			return scripted.Say("heard " + last.Text()), nil
		}
		return calls[0].And(calls[1:]...), nil
	}
}

// fixture is a session with an inbox and an agent.
type fixture struct {
	*testing.T
	store   session.Store
	s       *session.Session
	agent   *agent.Agent
	stamped []string
}

func newFixture(t *testing.T) *fixture {
	o := &fixture{T: t, store: session.Memory()}
	o.agent = stampAgent(&o.stamped, false, session.Save)
	o.s = open(t, o.store, "a")
	return o
}

func (o *fixture) send(id string, in agent.Input) {
	o.Helper()
	if ok, err := session.Send(o.Context(), o.store, "a", id, in); err != nil || !ok {
		o.Fatalf("send %s: %v, %v", id, ok, err)
	}
}

// run runs the session and returns how its runs ended.
func (o *fixture) run() (ends string, err error) {
	var list []string
	for ev, e := range o.s.Run(o.Context(), o.agent) {
		if e != nil {
			err = e
			continue
		}
		if end, ok := ev.(*event.End); ok {
			list = append(list, string(end.Reason))
		}
	}
	return strings.Join(list, " "), err
}

// question returns the only waiting call.
func (o *fixture) question() string {
	o.Helper()
	p := o.s.State.Pending()
	if len(p) != 1 {
		o.Fatalf("%v wait", p)
	}
	if q, ok := p[0].(*event.External); ok {
		return q.Call
	}
	return p[0].(*event.Approval).Call
}

func (o *fixture) status() session.Status {
	o.Helper()
	_, in, err := session.Read(o.Context(), o.store, "a", 0)
	if err != nil {
		o.Fatal(err)
	}
	return in.Status
}

// userText returns the texts of the user's messages.
func (o *fixture) userText() string {
	var texts []string
	for _, m := range o.s.State.Messages {
		if m.Role == message.RoleUser && m.Text() != "" {
			texts = append(texts, m.Text())
		}
	}
	return strings.Join(texts, ", ")
}

// inputs returns the state of inputs: refused, used or waiting.
func (o *fixture) inputs(ids ...string) string {
	o.Helper()
	var list []string
	for _, id := range ids {
		e, err := o.store.(session.Inbox).Input(o.Context(), "a", id)
		switch {
		case err != nil:
			o.Fatal(err)
		case e.Refused != "":
			list = append(list, "refused")
		case e.Record > 0:
			list = append(list, "used")
		default:
			list = append(list, "waiting")
		}
	}
	return strings.Join(list, " ")
}

// expect checks the result of a run.
func (o *fixture) expect(ends string, status session.Status, ids, states string) {
	o.Helper()
	got, err := o.run()
	if err != nil || got != ends || o.status() != status {
		o.Errorf("the runs ended %q, %v, the session is %q; want %q, %q", got, err, o.status(), ends, status)
	}
	if got := o.inputs(strings.Fields(ids)...); got != states {
		o.Errorf("the inputs %s were %s, want %s", ids, got, states)
	}
}

func TestRun(t *testing.T) {
	o := newFixture(t)
	o.s.Labels = map[string]string{"tenant": "anna"}
	o.send("1", agent.Say("hello"))
	o.send("2", agent.Say("are you there?", &message.Data{MediaType: "text/plain", Bytes: []byte("x")}))
	o.expect("completed", session.StatusEnded, "1 2", "used used")
	if got := o.userText(); got != "hello, are you there?" || len(o.s.State.Messages[1].Blocks) != 2 {
		t.Errorf("the user's messages are %q", got)
	}
	o.expect("", session.StatusEnded, "", "")

	o.send("3", agent.Say("a!"))
	o.expect("waiting", session.StatusWaiting, "3", "used")
	o.send("4", agent.Say("more")) // waits for the answer
	o.expect("", session.StatusWaiting, "4", "waiting")
	call := o.question()
	o.send("no-such", event.Confirm{Call: "no-such", Allow: true})
	o.send("wrong", event.Result{Call: call})
	o.send("yes", event.Confirm{Call: call, Allow: true})
	o.send("no", event.Confirm{Call: call})
	o.expect("completed completed", session.StatusEnded, "no-such wrong yes no 4", "refused refused used refused used")
	if fmt.Sprint(o.stamped) != "[a!]" {
		t.Errorf("stamped are %v", o.stamped)
	}

	o.send("5", agent.Say("host"))
	o.expect("waiting", session.StatusWaiting, "5", "used")
	o.send("6", event.Result{Call: o.question(), Blocks: message.Blocks{&message.Text{Text: "ok"}}})
	o.expect("completed", session.StatusEnded, "6", "used")

	o.send("7", agent.Say("b!"))
	o.expect("waiting", session.StatusWaiting, "7", "used")
	o.send("8", agent.Interrupt{})
	o.send("9", event.Confirm{Call: o.question(), Allow: true})
	o.send("10", agent.Say("never mind"))
	o.expect("completed", session.StatusEnded, "8 9 10", "used refused used")

	o.send("11", agent.Compact{})
	o.expect("completed", session.StatusEnded, "11", "used")

	shut(t, o.s)
	o.s = open(t, o.store, "a")
	if o.s.Labels["tenant"] != "anna" {
		t.Errorf("the labels are %v", o.s.Labels)
	}
	o.expect("", session.StatusEnded, "", "")
}

// TestRunFails: a run continues after a failure of the model if there is a new input.
func TestRunFails(t *testing.T) {
	o := newFixture(t)
	o.send("1", agent.Say("break"))
	if ends, err := o.run(); ends != "error" || err == nil || o.status() != session.StatusFailed || o.inputs("1") != "used" {
		t.Errorf("%q, %v, %s", ends, err, o.status())
	}
	o.send("2", event.Confirm{Call: "none", Allow: true}) // is refused, so that there is no reason to run
	o.expect("", session.StatusFailed, "2", "refused")
	o.agent = must(agent.New(agent.Config{Model: scripted.New(scripted.Say("better")), Toolkit: toolkit.Of(), Save: session.Save}))
	o.expect("completed", session.StatusEnded, "", "")
	if got := o.userText(); got != "break" {
		t.Errorf("the user's messages are %q", got)
	}
}

// TestRunRefused gives an agent inputs that only it can refuse.
func TestRunRefused(t *testing.T) {
	o := newFixture(t)
	o.send("1", agent.Say("x!"))
	o.expect("waiting", session.StatusWaiting, "1", "used")
	o.send("2", event.Confirm{Call: o.question(), Allow: true, Input: []byte(`{"other":{}}`)})
	o.expect("", session.StatusWaiting, "2", "refused")
	e, err := o.store.(session.Inbox).Input(t.Context(), "a", "2")
	if err != nil || !strings.Contains(e.Refused, "edited arguments") {
		t.Errorf("%+v, %v", e, err)
	}
	if _, err := o.store.(session.Inbox).Send(t.Context(), "a", session.Entry{ID: "3", Data: []byte(`{"dance":true}`)}); err != nil {
		t.Fatal(err)
	}
	o.send("4", event.Confirm{Call: o.question(), Allow: true})
	o.expect("completed", session.StatusEnded, "3 4", "refused used")
}

// TestRunLacks runs an agent without Save, and a store without an inbox.
func TestRunLacks(t *testing.T) {
	o := newFixture(t)
	o.agent = must(agent.New(agent.Config{Model: scripted.New(scripted.Say("hi")), Toolkit: toolkit.Of()}))
	o.send("1", agent.Say("hello"))
	if _, err := o.run(); err == nil || !strings.Contains(err.Error(), "set agent.Config.Save") {
		t.Errorf("an agent that does not save: %v", err)
	}
	bare := open(t, struct{ session.Store }{session.Memory()}, "a")
	for _, err := range bare.Run(t.Context(), o.agent) {
		if err == nil || !strings.Contains(err.Error(), "is not a session.Inbox") {
			t.Errorf("a store without an inbox: %v", err)
		}
	}
	if _, err := session.Send(t.Context(), struct{ session.Store }{o.store}, "a", "1", agent.Say("x")); err == nil {
		t.Error("a store without an inbox was sent an input")
	}
}

// TestRunInterrupted interrupts a run from outside, and one that has not begun.
func TestRunInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newFixture(t)
		slow := tool.Must(tool.New("slow", "Takes an hour.", func(ctx context.Context, _ struct{}) (string, error) {
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
			}
			return "", ctx.Err()
		}, tool.Options{}))
		o.agent = must(agent.New(agent.Config{Model: scripted.New(scripted.Call("slow", struct{}{}), scripted.Say("done")), Toolkit: toolkit.Of(slow),
			Policy: permission.Policy{Mode: permission.ModeBypass}, Save: session.Save}))
		o.send("1", agent.Say("go"))
		begin := time.Now()
		time.AfterFunc(10*time.Second, func() {
			if _, err := session.Send(context.Background(), o.store, "a", "stop", agent.Interrupt{}); err != nil {
				t.Error(err)
			}
		})
		o.expect("interrupted interrupted", session.StatusEnded, "1 stop", "used used")
		if d := time.Since(begin); d > 11*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestRunCrashes simulates a crash before and after each save, with a question of the agent or of a
// sub-agent: each input takes effect once.
func TestRunCrashes(t *testing.T) {
	for _, below := range []bool{false, true} {
		for _, before := range []bool{false, true} {
			for at := 1; crashed(t, below, before, at); at++ {
				if at > 100 {
					t.Fatal("the run does not end")
				}
			}
		}
	}
}

// crashed reports whether there was a save with that number.
func crashed(t *testing.T, below, before bool, at int) bool {
	o := &fixture{T: t, store: session.Memory()}
	saves, died := 0, false
	dead := errors.New("dead")
	work := func() {
		o.s = open(t, o.store, "a")
		defer shut(t, o.s)
		o.agent = stampAgent(&o.stamped, below, func(ctx context.Context, st *agent.State) error {
			if saves++; saves >= at && !died && before {
				return dead
			}
			err := o.s.Save(ctx, st)
			if saves >= at && !died {
				return dead
			}
			return err
		})
		_, err := o.run()
		died = died || errors.Is(err, dead)
		if err != nil && !errors.Is(err, dead) {
			t.Fatal(err)
		}
	}
	o.send("1", agent.Say("a!"))
	for i := 0; ; i++ {
		work()
		if i > 9 {
			t.Fatalf("below %v, before %v, save %d: the run does not end", below, before, at)
		}
		if o.status() == session.StatusEnded && i > 1 {
			break
		}
		for _, p := range o.s.State.Pending() {
			call := p.(*event.Approval).Call
			if _, err := session.Send(t.Context(), o.store, "a", fmt.Sprint("yes", i), event.Confirm{Call: call, Allow: true}); err != nil {
				t.Fatal(err)
			}
		}
	}
	what := fmt.Sprintf("below %v, before %v, save %d", below, before, at)
	if o.userText() != "a!" {
		t.Errorf("%s: the user's messages are %q", what, o.userText())
	}
	if len(o.stamped) > 1 || len(o.stamped) == 0 && !died {
		t.Errorf("%s: stamped are %v", what, o.stamped)
	}
	if waiting, err := o.store.(session.Inbox).Inputs(t.Context(), "a"); err != nil || len(waiting) > 0 {
		t.Errorf("%s: %v wait, %v", what, waiting, err)
	}
	return died
}
