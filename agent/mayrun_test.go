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
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// shifting is a tool whose calls are dangerous for a reason that the test can change.
type shifting struct {
	tool.Tool
	reason *string
}

func (s shifting) Judge(c *permission.Call) {
	c.Checker = ruling(func() permission.Verdict {
		return permission.Verdict{Behavior: permission.Ask, Safety: true, Reason: *s.reason}
	})
}

func (s shifting) Unwrap() tool.Tool { return s.Tool }

// TestAnotherDangerIsAskedAbout approves a dangerous call that has become
// dangerous for another reason: it is asked about again.
func TestAnotherDangerIsAskedAbout(t *testing.T) {
	for _, row := range []struct {
		name, later string
		asked       bool
	}{
		{"the same reason", "writes to /etc", false},
		{"another reason", "runs a file that was just written", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			var j journal
			reason := "writes to /etc"
			a, w := newAgent(t, Config{Toolkit: toolkit.Of(shifting{noting(&j, "note", tool.Options{}), &reason})}, calls(`c1 note {"path":"a"}`))
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			reason = row.later
			w.turns = []turn{says("done")}
			st = reload(t, st)
			if _, err := play(t, a, st, event.Confirm{Call: "c1", Allow: true}); err != nil {
				t.Fatal(err)
			}
			if row.asked {
				equal(t, "ran", j.String(), "")
				if q := st.Pending(); len(q) != 1 || !strings.Contains(q[0].(*event.Approval).Reason, row.later) {
					t.Fatalf("questions %+v", q)
				}
				if _, err := play(t, a, reload(t, st), event.Confirm{Call: "c1", Allow: true}); err != nil {
					t.Fatal(err)
				}
			}
			equal(t, "ran", j.String(), "note:a")
		})
	}
}

// TestSlowApprove has Config.Approve answer after the question has expired, or
// fail when it expires: the answer is ignored, the question waits,
// and the run continues normally.
func TestSlowApprove(t *testing.T) {
	for _, where := range []string{"its own question", "a sub-agent's question"} {
		for _, row := range []struct {
			name  string
			slow  time.Duration
			fails bool
			end   event.EndReason
			ran   string
		}{
			{"in time", time.Minute - 1, false, event.EndCompleted, "note:x"},
			{"too late", time.Minute + 1, false, event.EndWaiting, ""},
			{"too late, with an error", time.Minute + 1, true, event.EndWaiting, ""},
		} {
			t.Run(where+", "+row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var j journal
					slow := row.slow
					outer := Config{AnswerWithin: time.Minute}
					outer.Approve = func(ctx context.Context, q event.Approval) (event.Confirm, error) {
						if q.Name == "helper" {
							return event.Confirm{Allow: true}, nil
						}
						if row.fails && slow > 0 {
							<-ctx.Done()
							return event.Confirm{}, ctx.Err()
						}
						time.Sleep(slow)
						return event.Confirm{Allow: true}, nil
					}
					a, _ := family(t, &j, outer, Config{AnswerWithin: time.Minute, Policy: permission.Policy{}}, notes, calls(`h1 helper {"task":"x"}`), says("done"))
					if where == "its own question" {
						outer.Toolkit = toolkit.Of(noting(&j, "note", tool.Options{}))
						a, _ = newAgent(t, outer, calls(`n1 note {"path":"x"}`), says("done"))
					}
					st := new(State)
					evs, err := play(t, a, st, Say("go"))
					if err != nil {
						t.Fatal(err)
					}
					equal(t, "end", endOf(t, evs).Reason, row.end)
					equal(t, "ran", j.String(), row.ran)
					if row.end == event.EndCompleted {
						return
					}
					equal(t, "pending", len(st.Pending()), 1)
					slow = 0
					if evs, err = play(t, a, reload(t, st)); err != nil {
						t.Fatal(err)
					}
					equal(t, "asked again, the end", endOf(t, evs).Reason, event.EndCompleted)
					equal(t, "ran", j.String(), "note:x")
				})
			})
		}
	}
}

// TestApproveTakesTurns has two sub-agents ask at the same time, and the second answer take
// so long that the first expires meanwhile.
func TestApproveTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		asked := 0
		outer := Config{Policy: bypass}
		outer.Approve = func(_ context.Context, q event.Approval) (event.Confirm, error) {
			if asked++; asked == 2 {
				time.Sleep(2 * time.Minute)
			}
			return event.Confirm{Allow: true}, nil
		}
		a, _ := family(t, &j, outer, Config{AnswerWithin: time.Minute}, notes, calls(`h1 helper {"task":"x"}`, `h2 helper {"task":"y"}`), says("done"))
		st := new(State)
		evs, err := play(t, a, st, Say("go"))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "end", endOf(t, evs).Reason, event.EndWaiting)
		equal(t, "ran", j.String(), "")
		if evs, err = play(t, a, reload(t, st)); err != nil {
			t.Fatal(err)
		}
		equal(t, "asked again, the end", endOf(t, evs).Reason, event.EndCompleted)
		equal(t, "asked", asked, 4)
	})
}

// TestAnswerExpiresOnItsWay gives an answer that is in time when the run starts, but
// too late when it is applied or reaches the sub-agent: the question is asked again.
func TestAnswerExpiresOnItsWay(t *testing.T) {
	for _, moment := range []string{"run_start", "tool_start"} {
		t.Run(moment, func(t *testing.T) {
			var j journal
			now := time.Unix(0, 0)
			outer := Config{Policy: bypass}
			outer.Now = func() time.Time { return now }
			inner := Config{AnswerWithin: time.Minute}
			inner.Now = outer.Now // the outer run checks answers for it with this clock
			a, _ := family(t, &j, outer, inner, notes, calls(`h1 helper {"task":"x"}`), says("done"))
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Minute)
			for ev, err := range a.Run(t.Context(), st, event.Confirm{Call: "h1/s1", Allow: true}) {
				if err != nil {
					t.Fatal(err)
				}
				if event.TypeOf(ev) == moment {
					now = now.Add(time.Second)
				}
			}
			equal(t, "ran", j.String(), "")
			equal(t, "pending", len(st.Pending()), 1)
			if _, err := play(t, a, st, event.Confirm{Call: "h1/s1", Allow: true}); err != nil {
				t.Fatal(err)
			}
			equal(t, "ran", j.String(), "note:x")
		})
	}
}

// prepared is a tool whose Preview fails for some calls.
type prepared struct{ tool.Tool }

func (p prepared) Unwrap() tool.Tool { return p.Tool }

func (prepared) Preview(_ context.Context, input json.RawMessage) (string, error) {
	if strings.Contains(string(input), "missing") {
		return "", errors.New("read the file first")
	}
	return "", nil
}

// TestNoQuestionAboutFailingPreview: no question is asked about a call whose Preview fails.
func TestNoQuestionAboutFailingPreview(t *testing.T) {
	var j journal
	asked := 0
	a, _ := newAgent(t, Config{Toolkit: toolkit.Of(prepared{noting(&j, "edit", tool.Options{})}), Approve: func(context.Context, event.Approval) (event.Confirm, error) {
		asked++
		return event.Confirm{Allow: true}, nil
	}}, calls(`c1 edit {"path":"missing"}`, `c2 edit {"path":"here"}`), says("done"))
	st := new(State)
	if _, err := play(t, a, st, Say("go")); err != nil {
		t.Fatal(err)
	}
	equal(t, "questions", asked, 1)
	equal(t, "results", results(st), []string{"c1 error: read the file first", "c2 success: noted here"})
}
