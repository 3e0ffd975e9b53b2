package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// risky has a safety question about the word "danger".
type risky struct{ tool.Tool }

func (r risky) Unwrap() tool.Tool { return r.Tool }

func (risky) Judge(c *permission.Call) { c.Checker = riskyCall{input: string(c.Input)} }

type riskyCall struct {
	permission.BaseChecker
	input string
}

func (c riskyCall) Check(*permission.Policy) (v permission.Verdict) {
	if strings.Contains(c.input, "danger") {
		v = permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "it is dangerous"}
	}
	return v
}

const secret = "correct-horse-battery"

// newRiskyFixture returns an fixture whose agent waits for an approval to stamp a word.
func newRiskyFixture(t *testing.T, store session.Store, said string) (*fixture, *event.Approval) {
	o := &fixture{T: t, store: store}
	stamp := risky{tool.Must(tool.New("stamp", "Stamps a word.", func(_ context.Context, in wordIn) (string, error) {
		o.stamped = append(o.stamped, in.Word)
		return "stamped", nil
	}, tool.Options{}))}
	red := must(redact.New(redact.Literal("key", secret)))
	o.agent = must(agent.New(agent.Config{Save: session.Save, Redact: red, Toolkit: toolkit.Of(stamp),
		Model: scripted.New(scripted.Repeat(scripted.Func(func(req *model.Request) (scripted.Turn, error) {
			if len(req.Messages[len(req.Messages)-1].ToolResults()) > 0 {
				return scripted.Say("done"), nil
			}
			return scripted.Call("stamp", wordIn{"harmless"}), nil
		})))}))
	o.s = open(t, store, "a")
	o.send("said", agent.Say(said))
	if ends, err := o.run(); ends != "waiting" || err != nil {
		t.Fatal(ends, err)
	}
	return o, o.s.State.Pending()[0].(*event.Approval)
}

// TestStaleAnswer has two users answer the same question: one edits the call, so that it is asked about again,
// and the other's approval does not apply to the new question.
func TestStaleAnswer(t *testing.T) {
	o, q := newRiskyFixture(t, session.Memory(), "go")
	edited := q.Allow()
	edited.Input = json.RawMessage(`{"word":"danger"}`)
	o.send("edited", edited)
	o.send("stale", q.Allow())
	if ends, err := o.run(); ends != "waiting" || err != nil || len(o.stamped) > 0 {
		t.Fatalf("%s, %v: stamped %q without a question", ends, err, o.stamped)
	}
	in, err := o.store.(session.Inbox).Input(t.Context(), "a", "stale")
	if err != nil || !strings.Contains(in.Refused, "is to an earlier question") {
		t.Errorf("the stale answer: %+v, %v", in, err)
	}
	o.s = reopen(o)
	again := o.s.State.Pending()[0].(*event.Approval)
	o.send("fresh", again.Allow())
	if ends, err := o.run(); ends != "completed" || err != nil || strings.Join(o.stamped, " ") != "danger" {
		t.Errorf("%s, %v: stamped %q", ends, err, o.stamped)
	}
}

// reopen closes the session of o and opens it again.
func reopen(o *fixture) *session.Session {
	o.Helper()
	if err := o.s.Close(); err != nil {
		o.Fatal(err)
	}
	return open(o.T, o.store, "a")
}

// TestForkOntoInputs checks that a copy does not consume the inputs of another session.
func TestForkOntoInputs(t *testing.T) {
	for _, store := range []session.Store{session.Memory(), must(session.Dir(t.TempDir()))} {
		newRiskyFixture(t, store, "go")
		if _, err := session.Send(t.Context(), store, "b", "x", agent.Say("mine")); err != nil {
			t.Fatal(err)
		}
		if err := session.Fork(t.Context(), store, "a", "b", 0); !errors.Is(err, session.ErrConflict) {
			t.Errorf("%T: fork to a session with a waiting input: %v", store, err)
		}
		if _, _, err := session.Read(t.Context(), store, "c", 0); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%T: %v", store, err)
		}
		if err := session.Fork(t.Context(), store, "a", "c", 0); err != nil {
			t.Errorf("%T: %v", store, err)
		}
		err := session.Fork(t.Context(), store, "a", "c", 0)
		if !errors.Is(err, session.ErrConflict) || !strings.Contains(err.Error(), `session "c" exists; fork to an id that does not`) {
			t.Errorf("%T: fork to a session that exists: %v", store, err)
		}
	}
}

// TestRefusedIsRedacted checks that the reason for a refused input contains no secret.
func TestRefusedIsRedacted(t *testing.T) {
	dir := t.TempDir()
	o, q := newRiskyFixture(t, must(session.Dir(dir)), "go")
	wrong := q.Allow()
	wrong.Input = json.RawMessage(`{"word":"x","` + secret + `":1}`)
	o.send("wrong", wrong)
	if _, err := o.run(); err != nil {
		t.Fatal(err)
	}
	in, err := o.store.(session.Inbox).Input(t.Context(), "a", "wrong")
	if err != nil || in.Refused == "" {
		t.Fatalf("%+v, %v", in, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "a.jsonl"))
	if err != nil || strings.Contains(string(data), secret) {
		t.Errorf("%v: the session file holds the secret: %s", err, in.Refused)
	}
}
