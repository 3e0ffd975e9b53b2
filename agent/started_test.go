package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// silent is an error with an empty text.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// TestEventsOfCall checks the events and the result of one call, whether or not it may move to the background.
func TestEventsOfCall(t *testing.T) {
	simple := func(name string, fn func(context.Context) error) tool.Tool {
		return tool.Must(tool.New(name, "A tool.", func(ctx context.Context, _ struct{}) (string, error) { return "", fn(ctx) }, reads))
	}
	tools := toolkit.Of(asking("ask", yesOrNo, reads),
		simple("fails", func(context.Context) error { return errors.New("no luck") }),
		simple("aborts", func(context.Context) error { return fmt.Errorf("enough%w", silent{tool.ErrAbort}) }),
		simple("stays", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }),
		tool.Must(tool.NewStream("says", "Says.", func(context.Context, struct{}) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				_ = yield(tool.Text("one "), nil) && yield(tool.Text("two"), nil)
			}
		}, reads)))
	for _, row := range []struct {
		why, tool string
		result    string
		events    string // after those of the model
	}{
		{"it says something", "says", "c1 success: one \ntwo", "tool_start tool_delta tool_delta tool_result"},
		{"it asks", "ask", "c1 success: accept 0 fields, error <nil>", "tool_start elicitation elicitation tool_delta tool_result"},
		{"it fails", "fails", "c1 error: no luck", "tool_start tool_delta tool_result"},
		{"it aborts", "aborts", "c1 error: enough", "tool_start tool_result"},
		{"it takes too long", "stays", "c1 error: The call took longer than 1m0s and was stopped. It may have had an effect: check, then ask for less at a time.", "tool_start tool_result"},
	} {
		for _, background := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprintf("%s, background %v", row.why, background), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, _ := newAgent(t, Config{Policy: bypass, Background: background, ToolTimeout: time.Minute, Toolkit: tools,
						Elicit: func(context.Context, host.Elicitation) (host.Answer, error) {
							return host.Answer{Action: host.ActionAccept}, nil
						}}, calls("c1 "+row.tool+" {}"), says("done"))
					st := new(State)
					evs, err := play(t, a, st, Say("go"))
					if row.tool == "aborts" != errors.Is(err, tool.ErrAbort) {
						t.Fatal(err)
					}
					equal(t, "result", results(st)[:1], []string{row.result})
					var kinds []string
					for _, ev := range evs {
						switch ev.(type) {
						case *event.ToolStart, *event.ToolDelta, *event.ToolResult, *event.Elicitation:
							kinds = append(kinds, event.TypeOf(ev))
						}
					}
					equal(t, "events", strings.Join(kinds, " "), row.events)
				})
			})
		}
	}
}

// TestLatePieceOfCall has a server add to a call whose arguments were complete.
func TestLatePieceOfCall(t *testing.T) {
	for _, row := range []struct {
		why    string
		more   *model.ToolCallDelta
		result string
		ran    string
	}{
		{"blanks", &model.ToolCallDelta{Args: " "}, "c1 success: noted a", "read:a"},
		{"a second object", &model.ToolCallDelta{Args: `{"path":"b"}`}, "c1 error: ", ""},
		{"another name", &model.ToolCallDelta{Name: "look"}, "c1 success: noted a", "look:a"},
	} {
		var j journal
		first := &model.ToolCallDelta{ID: "c1", Name: "read", Args: `{"path":"a"}`}
		a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(noting(&j, "read", reads), noting(&j, "look", reads))},
			turn{chunks: []model.Chunk{first, row.more, finish(model.FinishToolCalls)}}, says("done"))
		st := new(State)
		if _, err := play(t, a, st, Say("go")); err != nil {
			t.Fatal(err)
		}
		if got := results(st); len(got) != 1 || !strings.HasPrefix(got[0], row.result) || j.String() != row.ran {
			t.Errorf("%s: ran %q, results %q", row.why, j.String(), got)
		}
	}
}

// TestAnswerDeniesOtherCalls has a person add a deny rule for the tool of calls that were allowed and have not started.
func TestAnswerDeniesOtherCalls(t *testing.T) {
	for _, allow := range []bool{false, true} {
		var j journal
		a, _ := newAgent(t, Config{MaxParallel: 1, Toolkit: toolkit.Of(judging{noting(&j, "read", reads)}),
			Policy: permission.Policy{Rules: []permission.Rule{{Tool: "read", Behavior: permission.Allow}}},
			Approve: func(context.Context, event.Approval) (event.Confirm, error) {
				return event.Confirm{Allow: allow, Rules: []permission.Rule{{Tool: "read", Behavior: permission.Deny}}}, nil
			}}, calls(`c1 read {"path":"a"}`, `c2 read {"path":"b"}`, `c3 read {"path":"danger"}`), says("done"))
		st := new(State)
		if _, err := play(t, a, st, Say("go")); err != nil {
			t.Fatal(err)
		}
		equal(t, "ran", j.String(), "")
		for _, res := range results(st) {
			if !strings.Contains(res, " denied: ") {
				t.Errorf("the question is answered with %v: %s", allow, res)
			}
		}
	}
}

// TestJudgedAgainAfterDenial has another call denied between the judgement and the start of a call.
func TestJudgedAgainAfterDenial(t *testing.T) {
	for _, row := range []struct {
		again  permission.Behavior
		ran    string
		result string
	}{
		{permission.Allow, "read:a", "noted a"},
		{permission.Ask, "read:b", "noted b"},
		{permission.Deny, "", "on second thoughts"},
	} {
		var j journal
		times := 0
		wavers := Middleware{Judge: func(next JudgeFunc) JudgeFunc {
			return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
				if c.Tool != "read" {
					return next(ctx, p, c)
				}
				if times++; times == 1 {
					return permission.Decision{Behavior: permission.Allow}
				}
				return permission.Decision{Behavior: row.again, Reason: "on second thoughts"}
			}
		}}
		a, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "read", reads), noting(&j, "other", reads)), Middleware: []Middleware{wavers},
			Policy: permission.Policy{Rules: []permission.Rule{{Tool: "other", Behavior: permission.Deny}}},
			Approve: func(context.Context, event.Approval) (event.Confirm, error) {
				return event.Confirm{Allow: true, Input: json.RawMessage(`{"path":"b"}`)}, nil
			}}, calls(`c1 read {"path":"a"}`, `c2 other {"path":"c"}`), says("done"))
		st := new(State)
		if _, err := play(t, a, st, Say("go")); err != nil {
			t.Fatal(err)
		}
		if got := results(st)[0]; j.String() != row.ran || !strings.Contains(got, row.result) {
			t.Errorf("%s: ran %q, result %q", row.again, j.String(), got)
		}
	}
}

// TestAskedOnceWhileACallEnds has a call that was allowed need approval just before it starts, and a call that was
// started together with it end before the user has answered.
func TestAskedOnceWhileACallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		times, asked := 0, 0
		wavers := Middleware{Judge: func(next JudgeFunc) JudgeFunc {
			return func(ctx context.Context, p *permission.Policy, c *permission.Call) permission.Decision {
				if !strings.Contains(string(c.Input), "second") {
					return next(ctx, p, c)
				}
				if times++; times == 1 {
					return permission.Decision{Behavior: permission.Allow}
				}
				return permission.Decision{Behavior: permission.Ask, Reason: "on second thoughts"}
			}
		}}
		a, _ := newAgent(t, Config{Toolkit: toolkit.Of(noting(&j, "read", reads), noting(&j, "other", reads)), Middleware: []Middleware{wavers},
			Policy: permission.Policy{Rules: []permission.Rule{{Tool: "read", Behavior: permission.Allow}, {Tool: "other", Behavior: permission.Deny}}},
			Approve: func(context.Context, event.Approval) (event.Confirm, error) {
				asked++
				time.Sleep(time.Minute)
				return event.Confirm{Allow: true}, nil
			}}, calls(`c1 read {"path":"first"}`, `c2 read {"path":"second"}`, `c3 other {"path":"x"}`), says("done"))
		st := new(State)
		evs, err := play(t, a, st, Say("go"))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "ran", j.String(), "read:first read:second")
		equal(t, "questions", asked, 1)
		equal(t, "questions emitted", len(of[*event.Approval](evs)), 1)
		checkState(t, st)
	})
}
