package agent

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// printing is a tool that runs the text in its judgement. Rules match paths, and calls with the path "bad"
// must fail.
type printing struct {
	tool.Tool
	text *string
}

func newPrinting(j *journal, text *string) printing {
	return printing{tool.Must(tool.New("note", "Runs a text.", func(ctx context.Context, in pathArg) (string, error) {
		j.add(tool.CallFrom(ctx).Judgement.Text + ":" + in.Path)
		return "ran", nil
	})), text}
}

func (p printing) Unwrap() tool.Tool { return p.Tool }

func (p printing) Judge(c *permission.Call) {
	c.Checker = printed{text: *p.text, input: string(c.Input)}
}

type printed struct {
	permission.BaseChecker
	text, input string
}

func (p printed) Check(*permission.Policy) permission.Verdict {
	return permission.Verdict{Found: permission.Judgement{Text: p.text, Files: []permission.File{{Path: "/" + p.text}}}}
}

func (p printed) Match(_ *permission.Policy, r permission.Rule) (bool, error) {
	return strings.Contains(p.input, `"`+r.Pattern+`"`), nil
}

func (p printing) Preview(_ context.Context, input json.RawMessage) (string, error) {
	if strings.Contains(string(input), "bad") {
		return "", errors.New("this cannot be done")
	}
	return "", nil
}

// TestApprovedTextRuns: only the text that a person approved runs; for another text they are asked again.
func TestApprovedTextRuns(t *testing.T) {
	for _, row := range []struct {
		name, later, edited string
		asked               bool
		ran                 string
	}{
		{"the same text", "one", "", false, "one:a"},
		{"another text", "two", "", true, "two:a"},
		{"the person's own arguments", "two", `{"path":"b"}`, false, "two:b"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			text := "one"
			a, w := newAgent(t, Config{Toolkit: toolkit.Of(newPrinting(&j, &text))}, calls(`c1 note {"path":"a"}`))
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			equal(t, "shown", st.Pending()[0].(*event.Approval).Runs, "one")
			text = row.later
			w.turns = []turn{says("done")}
			st = reload(t, st)
			equal(t, "shown after a reload", st.Pending()[0].(*event.Approval).Runs, "one")
			answer := event.Confirm{Call: "c1", Allow: true}
			if row.edited != "" {
				answer.Input = json.RawMessage(row.edited)
			}
			if _, err := play(t, a, st, answer); err != nil {
				t.Fatal(err)
			}
			if row.asked {
				equal(t, "ran", j.String(), "")
				equal(t, "shown", st.Pending()[0].(*event.Approval).Runs, row.later)
				if _, err := play(t, a, reload(t, st), event.Confirm{Call: "c1", Allow: true}); err != nil {
					t.Fatal(err)
				}
			}
			equal(t, "ran", j.String(), row.ran)
		})
	}
}

// TestDoomedCallIsNotAsked: no question is asked about a call that must fail.
func TestDoomedCallIsNotAsked(t *testing.T) {
	var j journal
	text := "one"
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(newPrinting(&j, &text))}, calls(`c1 note {"path":"bad"}`), says("done"))
	st := new(State)
	evs, err := play(t, a, st, Say("go"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "questions", len(of[*event.Approval](evs)), 0)
	equal(t, "results", results(st), []string{"c1 error: this cannot be done"})
}

// TestMiddlewareIsJudged: a call that middleware changes is judged again; a person has approved another call.
func TestMiddlewareIsJudged(t *testing.T) {
	change := Middleware{Tool: func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, c tool.Call) iter.Seq2[tool.Chunk, error] {
			c.Input = json.RawMessage(strings.Replace(string(c.Input), `"a"`, `"b"`, 1))
			return next(ctx, t, c)
		}
	}}
	allow := func(path string) permission.Rule {
		return permission.Rule{Tool: "note", Pattern: path, Behavior: permission.Allow}
	}
	for _, row := range []struct {
		name   string
		rules  []permission.Rule
		ran    string
		result string
	}{
		{"both allowed", []permission.Rule{allow("a"), allow("b")}, "one:b", "ran"},
		{"the changed one is not", []permission.Rule{allow("a")}, "", "changed after it was allowed: no rule covers the call"},
		{"the changed one is denied", []permission.Rule{{Tool: "note", Pattern: "b", Behavior: permission.Deny}, allow("a"), allow("b")}, "", "denied by rule note(b)"},
		{"a person approved the first", nil, "", "changed after it was allowed"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			text := "one"
			cfg := Config{Toolkit: toolkit.Of(newPrinting(&j, &text)), Policy: permission.Policy{Rules: row.rules}, Middleware: []Middleware{change}}
			cfg.Approve = func(context.Context, event.Approval) (event.Confirm, error) { return event.Confirm{Allow: true}, nil }
			a, _ := newAgent(t, cfg, calls(`c1 note {"path":"a"}`), says("done"))
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			equal(t, "ran", j.String(), row.ran)
			if got := results(st); len(got) != 1 || !strings.Contains(got[0], row.result) {
				t.Errorf("results %q, want %q", got, row.result)
			}
		})
	}
}

// TestMiddlewareThatAllows: a decision of a middleware gets the judgement of the tool.
func TestMiddlewareThatAllows(t *testing.T) {
	own := Middleware{Judge: func(JudgeFunc) JudgeFunc {
		return func(context.Context, *permission.Policy, *permission.Call) permission.Decision {
			return permission.Decision{Behavior: permission.Allow, Reason: "mine", Judgement: permission.Judgement{Text: "forged"}}
		}
	}}
	var j journal
	text := "one"
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(newPrinting(&j, &text)), Middleware: []Middleware{own}}, calls(`c1 note {"path":"a"}`), says("done"))
	if _, err := play(t, a, new(State), Say("go")); err != nil {
		t.Fatal(err)
	}
	equal(t, "ran", j.String(), "one:a")
}

// TestSavedEditIsAskedAbout has a person edit a call, and the program stop before the edited call is judged: the
// next run judges it and asks again.
func TestSavedEditIsAskedAbout(t *testing.T) {
	for _, row := range []struct {
		name, later string
	}{{"the same text", "one"}, {"another text", "two"}} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			text := "one"
			var saved [][]byte
			cfg := Config{Toolkit: toolkit.Of(newPrinting(&j, &text), noting(&j, "other", tool.Options{})), Save: func(_ context.Context, st *State) error {
				data, err := json.Marshal(st)
				saved = append(saved, data)
				return err
			}}
			a, w := newAgent(t, cfg, calls(`c1 note {"path":"a"}`, `c2 other {"path":"b"}`), says("done"))
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			saved = nil
			if _, err := play(t, a, st, event.Confirm{Call: "c1", Allow: true, Input: json.RawMessage(`{"path":"x"}`)}, event.Confirm{Call: "c2"}); err != nil {
				t.Fatal(err)
			}
			equal(t, "ran", j.String(), "one:x")
			j.ran, text, w.turns = nil, row.later, []turn{says("done")}
			if err := json.Unmarshal(saved[0], st); err != nil || !st.loop.Open[0].Approved || st.loop.Open[0].Judgement != nil {
				t.Fatalf("%s, %v", saved[0], err)
			}
			if _, err := play(t, a, st); err != nil {
				t.Fatal(err)
			}
			equal(t, "ran", j.String(), "")
			equal(t, "shown", st.Pending()[0].(*event.Approval).Runs, row.later)
			if _, err := play(t, a, reload(t, st), event.Confirm{Call: "c1", Allow: true}); err != nil {
				t.Fatal(err)
			}
			equal(t, "ran", j.String(), row.later+":x")
		})
	}
}

// TestEditedCallWaitsForItsTurn answers the second of two questions first, with other arguments. The answer is used when the
// first is answered in a later run, unless the judgement of the call has changed.
func TestEditedCallWaitsForItsTurn(t *testing.T) {
	for later, asked := range map[string]bool{"one": false, "two": true} {
		t.Run(later, func(t *testing.T) {
			var j journal
			text := "one"
			cfg := Config{Toolkit: toolkit.Of(newPrinting(&j, &text), noting(&j, "other", tool.Options{}))}
			a, w := newAgent(t, cfg, calls(`c1 other {"path":"a"}`, `c2 note {"path":"b"}`))
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			if _, err := play(t, a, st, event.Confirm{Call: "c2", Allow: true, Input: json.RawMessage(`{"path":"x"}`)}); err != nil {
				t.Fatal(err)
			}
			equal(t, "questions", len(st.Pending()), 1)
			st, text, w.turns = reload(t, st), later, []turn{says("done")}
			if _, err := play(t, a, st, event.Confirm{Call: "c1", Allow: true}); err != nil {
				t.Fatal(err)
			}
			if !asked {
				equal(t, "ran", j.String(), "other:a one:x")
				return
			}
			equal(t, "ran", j.String(), "other:a")
			equal(t, "shown", st.Pending()[0].(*event.Approval).Runs, later)
		})
	}
}

// TestApprovalSaysHowFar: a question names what an approval permits, and a sandbox only if it exists,
// also after a reload. If the sandbox is gone, the question is asked again.
func TestApprovalSaysHowFar(t *testing.T) {
	for _, row := range []struct {
		why     string
		verdict permission.Verdict
		profile permission.Profile
		network bool
	}{
		{"no profile", permission.Verdict{}, "", false},
		{"a required profile that is not enforced", permission.Verdict{Found: permission.Judgement{Profile: permission.ProfileWork, Network: true}}, "", false},
		{"confined", permission.Verdict{Confined: true, Found: permission.Judgement{Profile: permission.ProfileWork}}, permission.ProfileWork, false},
		{"confined, with the network", permission.Verdict{Confined: true, Found: permission.Judgement{Profile: permission.ProfileWork, Network: true}}, permission.ProfileWork, true},
	} {
		var j journal
		verdict := row.verdict
		kit := toolkit.Of(judged{noting(&j, "note", tool.Options{}), func() permission.Verdict { return verdict }})
		a, _ := newAgent(t, Config{Toolkit: kit}, calls(`c1 note {"path":"a"}`), says("done"))
		st := new(State)
		evs, err := play(t, a, st, Say("go"))
		if err != nil {
			t.Fatal(err)
		}
		st = reload(t, st)
		for _, q := range []*event.Approval{of[*event.Approval](evs)[0], st.Pending()[0].(*event.Approval)} {
			if q.Profile != row.profile || q.Network != row.network {
				t.Errorf("%s: %q, network %v", row.why, q.Profile, q.Network)
			}
		}
		verdict.Confined = false
		evs, err = play(t, a, st, st.Pending()[0].(*event.Approval).Allow())
		if err != nil {
			t.Fatal(err)
		}
		if again := len(of[*event.Approval](evs)) > 0; again != row.verdict.Confined {
			t.Errorf("%s: asked again without the sandbox: %v", row.why, again)
		}
	}
}

// TestLeavingTheSandbox: in a State that was loaded without a seal, the approval of a call outside the sandbox
// is ignored; that of a call in the sandbox is used.
func TestLeavingTheSandbox(t *testing.T) {
	for _, row := range []struct {
		why           string
		profile       permission.Profile
		key           []byte
		reload, again bool
	}{
		{"the same process", permission.ProfileOpen, nil, false, false},
		{"without a seal", permission.ProfileOpen, nil, true, true},
		{"with a seal", permission.ProfileOpen, []byte("sixteen bytes ok"), true, false},
		{"in the sandbox", permission.ProfileWork, nil, true, false},
	} {
		for _, nested := range []bool{false, true} {
			var j journal
			verdict := permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: "why", Confined: true, Found: permission.Judgement{Profile: row.profile}}
			kit := toolkit.Of(judged{noting(&j, "note", tool.Options{}), func() permission.Verdict { return verdict }})
			turns := []turn{calls(`c1 note {"path":"a"}`, `c2 note {"path":"b"}`), says("done")}
			cfg, head := Config{Toolkit: kit, Key: row.key}, ""
			a, _ := newAgent(t, cfg, turns...)
			if nested {
				inner, _ := newAgent(t, Config{Toolkit: kit}, turns...)
				helper, err := AsTool[string, string](inner, "helper", "Helps.", nil)
				if err != nil {
					t.Fatal(err)
				}
				cfg.Toolkit, cfg.Policy = toolkit.Of(helper), permission.Policy{Rules: []permission.Rule{{Tool: "helper", Behavior: permission.Allow}}}
				a, _ = newAgent(t, cfg, calls(`s helper {"task":"x"}`), says("done"))
				head = "s/"
			}
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			if _, err := play(t, a, st, event.Confirm{Call: head + "c2", Allow: true}); err != nil {
				t.Fatal(err)
			}
			if row.reload {
				st = reload(t, st)
			}
			evs, err := play(t, a, st, event.Confirm{Call: head + "c1", Allow: true})
			if err != nil {
				t.Fatal(err)
			}
			if again := len(of[*event.Approval](evs)) > 0; again != row.again || strings.Contains(j.String(), "note:b") == row.again {
				t.Errorf("%s, nested %v: asked again %v, ran %s", row.why, nested, again, j.String())
			}
		}
	}
}
