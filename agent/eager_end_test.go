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
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// noter returns a tool whose path is its duration. It first records the path in the tools' State.
func noter(c *clock) tool.Tool {
	return tool.Must(tool.New("read", "Reads and remembers.", func(ctx context.Context, in pathArg) (string, error) {
		d, err := time.ParseDuration(in.Path)
		if err != nil {
			return "", err
		}
		c.note("begins %s", in.Path)
		err = noted.Update(ctx, func(all *[]string) error { *all = append(*all, in.Path); return nil })
		select {
		case <-time.After(d):
			c.note("ends %s", in.Path)
		case <-ctx.Done():
			c.note("stops %s", in.Path)
			err = ctx.Err()
		}
		return "took " + in.Path, err
	}, reads))
}

// TestEagerForgets breaks an answer off when one early call has ended and another
// runs: both are discarded, and the run continues when the second has ended.
func TestEagerForgets(t *testing.T) {
	reset := &model.Error{Kind: model.KindConnection, Message: "reset"}
	started := func(err error, more ...model.Chunk) turn {
		tn := whole(`c1 read {"path":"1ms"}`, `c2 read {"path":"1h"}`)
		tn.chunks = append(tn.chunks[:2:2], more...)
		tn.err = err
		return tn
	}
	again := whole(`c1 read {"path":"1ms"}`)
	const early = "10ms begins 1ms, 11ms ends 1ms, 20ms begins 1h, "
	for _, row := range []struct {
		why   string
		turns []turn
		end   event.EndReason
		notes string
		tools string // the tools' State
		calls int    // counted for the limits
	}{
		{"the stream breaks", []turn{started(reset), again, says("done")}, event.EndCompleted,
			early + "30ms stops 1h, 40ms begins 1ms, 41ms ends 1ms", `["old","1ms"]`, 1},
		{"it breaks after some text", []turn{started(reset, &model.TextDelta{Text: "I "}), again, says("done")}, event.EndCompleted,
			early + "40ms stops 1h, 50ms begins 1ms, 51ms ends 1ms", `["old","1ms"]`, 1},
		{"it ends without a finish", []turn{started(nil, &model.ThinkingDelta{Text: "hm"}), again, says("done")}, event.EndCompleted,
			early + "30ms stops 1h, 40ms begins 1ms, 41ms ends 1ms", `["old","1ms"]`, 1},
		{"it always breaks", []turn{started(reset), started(reset), started(reset)}, event.EndError,
			early + "30ms stops 1h, 40ms begins 1ms, 41ms ends 1ms, 50ms begins 1h, 60ms stops 1h, " +
				"70ms begins 1ms, 71ms ends 1ms, 80ms begins 1h, 90ms stops 1h", `["old"]`, 0},
		{"a permanent failure", []turn{started(&model.Error{Kind: model.KindInvalidRequest, Message: "no"})}, event.EndError,
			early + "30ms stops 1h", `["old"]`, 0},
		{"the conversation is too long", []turn{started(&model.Error{Kind: model.KindContextTooLong, Message: "no"}), says("a summary"), again, says("done")}, event.EndCompleted,
			early + "30ms stops 1h, 60ms begins 1ms, 61ms ends 1ms", `["old","1ms"]`, 1},
		{"the run is cancelled", []turn{{chunks: started(nil).chunks, block: true}}, event.EndInterrupted,
			early + "1s stops 1h", `["old"]`, 0},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClock()
				a, w := newAgent(t, Config{Policy: bypass, Eager: true, Toolkit: toolkit.Of(noter(c)), Retry: middleware.RetryConfig{Retries: -1}}, row.turns...)
				a.model = &paced{turnModel: w, pace: 10 * time.Millisecond}
				st := &State{Messages: []*message.Message{message.User(strings.Repeat("word ", 300)), message.Assistant(&message.Text{Text: "yes"})}}
				if err := noted.Update(toolstate.With(t.Context(), &st.Tools), func(all *[]string) error { *all = []string{"old"}; return nil }); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				evs, _ := playCtx(t, ctx, a, st, Say("go"))
				equal(t, "end", endOf(t, evs).Reason, row.end)
				equal(t, "notes", c.String(), row.notes)
				data, err := st.Tools.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "tools", string(data), `{"noted":`+row.tools+`}`)
				equal(t, "calls", st.loop.Spent.Calls, row.calls)
				equal(t, "results emitted", len(of[*event.ToolResult](evs)), row.calls)
				if err := CheckHistory(st.Messages); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestEagerConsumerLeaves has the consumer stop in the middle of the answer, while
// one early call runs and another waits for an answer. No goroutine is left, or synctest would fail,
// and the tools' State is restored.
func TestEagerConsumerLeaves(t *testing.T) {
	for how, leave := range map[string]func() (more bool){
		"breaks": func() bool { return false },
		"panics": func() bool { panic("the consumer's") },
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, st := newClock(), new(State)
				a, w := newAgent(t, Config{Policy: bypass, Eager: true, Toolkit: toolkit.Of(asking("ask", yesOrNo, reads), noter(c))},
					turn{chunks: append(whole(`c1 ask {}`, `c2 read {"path":"1h"}`).chunks[:2:2], &model.TextDelta{Text: "I ask."}, &model.TextDelta{Text: "Still."})})
				a.model = &paced{turnModel: w, pace: 10 * time.Millisecond}
				defer func() {
					_ = recover()
					equal(t, "notes", c.String(), "20ms begins 1h, 40ms stops 1h")
					equal(t, "noted", len(st.Tools.Keys()), 0)
				}()
				for ev := range a.Run(t.Context(), st, Say("go")) {
					if d, ok := ev.(*event.TextDelta); ok && d.Text == "Still." && !leave() {
						break
					}
				}
			})
		})
	}
}

// TestEagerCancelled cancels the run while an early call runs whose answer is complete.
func TestEagerCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, st := newClock(), new(State)
		a, w := newAgent(t, Config{Policy: bypass, Eager: true, MaxParallel: 1, Toolkit: toolkit.Of(noter(c))},
			whole(`c1 read {"path":"1ms"}`, `c2 read {"path":"1h"}`), says("done"))
		a.model = &paced{turnModel: w, pace: 10 * time.Millisecond}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		evs, _ := playCtx(t, ctx, a, st, Say("go"))
		equal(t, "end", endOf(t, evs).Reason, event.EndInterrupted)
		equal(t, "notes", c.String(), "10ms begins 1ms, 11ms ends 1ms, 20ms begins 1h, 1s stops 1h")
		equal(t, "result", results(st), []string{"c1 success: took 1ms", "c2 interrupted: The call was interrupted before it ended. It may have had an effect: check before you call it again."})
	})
}

// TestEagerChangedCall has a server add to the arguments of a call that was complete and has started early. The results are the same as without Eager.
func TestEagerChangedCall(t *testing.T) {
	for _, row := range []struct {
		why    string
		more   *model.ToolCallDelta
		result string
		ran    string
	}{
		{"blanks", &model.ToolCallDelta{Args: " "}, "c1 success: noted a", "read:a read:a"},
		{"a second object", &model.ToolCallDelta{Args: `{"path":"b"}`}, "", "read:a"},
		{"another name", &model.ToolCallDelta{Name: "look"}, "c1 success: noted a", "read:a look:a"},
	} {
		t.Run(row.why, func(t *testing.T) {
			var got [2][]string
			var j journal
			for i, eager := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					j = journal{}
					a, w := newAgent(t, Config{Policy: bypass, Eager: eager, Toolkit: toolkit.Of(noting(&j, "read", reads), noting(&j, "look", reads))},
						turn{chunks: []model.Chunk{whole(`c1 read {"path":"a"}`).chunks[0], row.more, finish(model.FinishToolCalls)}}, says("done"))
					a.model = &paced{turnModel: w, pace: time.Millisecond}
					st := new(State)
					if _, err := play(t, a, st, Say("go")); err != nil {
						t.Fatal(err)
					}
					got[i] = results(st)
				})
			}
			equal(t, "results", got[1], got[0])
			if row.result != "" {
				equal(t, "results", got[1], []string{row.result})
			}
			if got := j.String(); !strings.HasPrefix(got, row.ran) {
				t.Errorf("ran %q, want %q", got, row.ran)
			}
		})
	}
}

// TestEagerHoldsBack has an early call yield text, ask a question, fail, abort
// the run or take too long: its events and its question are emitted when the
// answer is complete.
func TestEagerHoldsBack(t *testing.T) {
	for _, background := range []time.Duration{0, time.Hour} {
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
			t.Run(fmt.Sprintf("%s, background %v", row.why, background), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					simple := func(name string, fn func(context.Context) error) tool.Tool {
						return tool.Must(tool.New(name, "A tool.", func(ctx context.Context, _ struct{}) (string, error) { return "", fn(ctx) }, reads))
					}
					asked := time.Duration(0)
					began := time.Now()
					a, w := newAgent(t, Config{Policy: bypass, Eager: true, Background: background, ToolTimeout: time.Minute,
						Elicit: func(context.Context, host.Elicitation) (host.Answer, error) {
							asked = time.Since(began)
							return host.Answer{Action: host.ActionAccept}, nil
						},
						Toolkit: toolkit.Of(asking("ask", yesOrNo, reads),
							simple("fails", func(context.Context) error { return errors.New("no luck") }),
							simple("aborts", func(context.Context) error { return fmt.Errorf("enough%w", silent{tool.ErrAbort}) }),
							simple("stays", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }),
							tool.Must(tool.NewStream("says", "Says.", func(context.Context, struct{}) iter.Seq2[tool.Chunk, error] {
								return func(yield func(tool.Chunk, error) bool) {
									_ = yield(tool.Text("one "), nil) && yield(tool.Text("two"), nil)
								}
							}, reads)))},
						turn{chunks: append(whole("c1 " + row.tool + " {}").chunks[:1:1], &model.TextDelta{Text: "I call."}, &model.TextDelta{}, finish(model.FinishToolCalls))}, says("done"))
					a.model = &paced{turnModel: w, pace: 2 * time.Second}
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
						case *event.TextDelta, *event.Message:
							if len(kinds) > 0 && kinds[len(kinds)-1] != "tool_result" {
								t.Errorf("%s among the events of the call: %q", event.TypeOf(ev), kinds)
							}
						}
					}
					equal(t, "events", strings.Join(kinds, " "), row.events)
					if row.tool == "ask" {
						equal(t, "asked after", asked, 8*time.Second)
					}
				})
			})
		}
	}
}

// silent is an error with an empty text.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// TestEagerLeaves has an early call move to the background: the time is counted from the end of the
// model's answer. Meanwhile no other call starts early.
func TestEagerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClock()
		ends := Middleware{Step: func(next StepFunc) StepFunc {
			return func(ctx context.Context) error {
				ctx, cancel := context.WithCancel(ctx) // must not cancel the background call
				defer cancel()
				return next(ctx)
			}
		}}
		a, w := newAgent(t, Config{Policy: bypass, Eager: true, Background: time.Minute, Middleware: []Middleware{ends}, Toolkit: toolkit.Of(timed(c, "read", reads))},
			whole(`c1 read {"path":"3m"}`), whole(`c2 read {"path":"1s"}`), says("meanwhile"), says("done"))
		a.model = &paced{turnModel: w, pace: 30 * time.Second}
		st := new(State)
		for ev, err := range a.Run(t.Context(), st, Say("go")) {
			if err != nil {
				t.Fatal(err)
			}
			if b, ok := ev.(*event.Background); ok {
				c.note("background %t", b.Result != nil)
			}
		}
		equal(t, "results", told(st), []string{"c1 of read success: took 3m"})
		equal(t, "notes", c.String(), "2m0s background false, 3m1s read 1s, 3m30s read 3m, 4m1s background true")
		checkState(t, st)
	})
}

// TestEagerKey: an early call has the same idempotency key as without Eager.
func TestEagerKey(t *testing.T) {
	var keys [2]string
	for i, eager := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			o := reads
			o.Idempotent = true
			early := false
			var m *paced
			keyed := tool.Must(tool.New("keyed", "A tool.", func(ctx context.Context, _ pathArg) (string, error) {
				early = m.writing.Load()
				return tool.CallFrom(ctx).Key, nil
			}, o))
			a, w := newAgent(t, Config{Policy: bypass, Eager: eager, Toolkit: toolkit.Of(keyed)}, whole(`c1 keyed {"path":"a"}`), says("done"))
			m = &paced{turnModel: w, pace: time.Millisecond}
			a.model = m
			st := &State{ID: "ses"}
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			equal(t, "early", early, eager)
			keys[i] = results(st)[0]
		})
	}
	if keys[0] != keys[1] || len(keys[0]) < 40 {
		t.Errorf("the result with the key is %q, without Eager %q", keys[1], keys[0])
	}
}

// TestEagerRefused has a person add a deny rule for the tool of early calls that were
// allowed and have run. The results are the same as without Eager: a call
// that has not started is judged by the rule.
func TestEagerRefused(t *testing.T) {
	rule := []permission.Rule{{Tool: "read", Behavior: permission.Deny}}
	for _, row := range []struct {
		why    string
		answer event.Confirm
		ran    string
		denied string
	}{
		{"refuse", event.Confirm{Rules: rule}, "read:a read:b", "c1 c2 c3"},
		{"allow", event.Confirm{Allow: true, Rules: rule}, "read:a read:b", "c1 c2 c3"},
	} {
		t.Run(row.why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				a, w := newAgent(t, Config{Eager: true, MaxParallel: 1, Toolkit: toolkit.Of(judging{noting(&j, "read", reads)}),
					Policy:  permission.Policy{Rules: []permission.Rule{{Tool: "read", Behavior: permission.Allow}}},
					Approve: func(context.Context, event.Approval) (event.Confirm, error) { return row.answer, nil }},
					whole(`c1 read {"path":"a"}`, `c2 read {"path":"b"}`, `c3 read {"path":"danger"}`), says("done"))
				a.model = &paced{turnModel: w, pace: time.Millisecond}
				st := new(State)
				if _, err := play(t, a, st, Say("go")); err != nil {
					t.Fatal(err)
				}
				var denied []string
				for _, res := range results(st) {
					if f := strings.Fields(res); f[1] == "denied:" {
						denied = append(denied, f[0])
					}
				}
				equal(t, "ran", j.String(), row.ran)
				equal(t, "denied", strings.Join(denied, " "), row.denied)
			})
		})
	}
}

// TestEagerSharedLimit: agents that share a limit of calls start none early, because
// two of them could use the last call.
func TestEagerSharedLimit(t *testing.T) {
	for _, row := range []struct {
		limit int
		want  string
	}{{0, "true true"}, {10, "false false"}, {2, "false false"}} {
		synctest.Test(t, func(t *testing.T) {
			var early journal
			m := &paced{pace: time.Millisecond}
			read := tool.Must(tool.New("read", "Reads.", func(context.Context, pathArg) (string, error) {
				early.add(fmt.Sprint(m.writing.Load()))
				time.Sleep(5 * time.Millisecond)
				return "", nil
			}, reads))
			sub, w := newAgent(t, Config{Policy: bypass, Eager: true, Toolkit: toolkit.Of(read)},
				whole(`s1 read {"path":"a"}`, `s2 read {"path":"b"}`), says("helped"))
			m.turnModel, sub.model = w, m
			helper, err := AsTool[string, string](sub, "helper", "Helps.", nil)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(helper), Limits: Limits{ToolCalls: row.limit}},
				whole(`c1 helper {"task":"x"}`), says("done"))
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			want := row.want
			if row.limit == 2 { // the call of the helper counts
				want = "false"
			}
			equal(t, fmt.Sprintf("early, with a limit of %d", row.limit), early.String(), want)
		})
	}
}

// TestEagerJudgedAgain: an early call is judged again if another call was denied
// meanwhile. Its result is dropped if it is no longer allowed, or if a
// person changes its arguments.
func TestEagerJudgedAgain(t *testing.T) {
	for _, row := range []struct {
		again  permission.Behavior
		ran    string
		result string
	}{
		{permission.Allow, "read:a", "noted a"},
		{permission.Ask, "read:a read:b", "noted b"},
		{permission.Deny, "read:a", "on second thoughts"},
	} {
		synctest.Test(t, func(t *testing.T) {
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
			a, w := newAgent(t, Config{Eager: true, Toolkit: toolkit.Of(noting(&j, "read", reads), noting(&j, "read_denied", reads)), Policy: someAsked,
				Middleware: []Middleware{wavers},
				Approve: func(context.Context, event.Approval) (event.Confirm, error) {
					return event.Confirm{Allow: true, Input: json.RawMessage(`{"path":"b"}`)}, nil
				}}, whole(`c1 read {"path":"a"}`, `c2 read_denied {"path":"c"}`), says("done"))
			a.model = &paced{turnModel: w, pace: time.Millisecond}
			st := new(State)
			if _, err := play(t, a, st, Say("go")); err != nil {
				t.Fatal(err)
			}
			got := results(st)[0]
			if j.String() != row.ran || !strings.Contains(got, row.result) || row.result != "noted a" && strings.Contains(got, "noted a") {
				t.Errorf("%s: ran %q, result %q", row.again, j.String(), got)
			}
		})
	}
}

// TestEagerAsksWhenItCounts has an early call of a sub-agent ask a question with the outer
// agent's Elicit during the answer: the question is emitted when the answer
// is complete, and never if the answer breaks off.
func TestEagerAsksWhenItCounts(t *testing.T) {
	for _, breaks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newClock()
			asks := turn{chunks: append(whole(`s1 ask {}`).chunks[:1:1], &model.ThinkingDelta{Text: "hm"}, finish(model.FinishToolCalls))}
			turns := []turn{asks, says("helped")}
			want := "30ms asked"
			if breaks {
				turns = []turn{{chunks: asks.chunks[:2], err: &model.Error{Kind: model.KindConnection}}, whole(`s2 look {"path":"1ms"}`), says("helped")}
				want = "51ms look 1ms"
			}
			sub, w := newAgent(t, Config{Policy: bypass, Eager: true, Retry: middleware.RetryConfig{Retries: -1},
				Toolkit: toolkit.Of(asking("ask", yesOrNo, reads), timed(c, "look", tool.Options{}))}, turns...)
			sub.model = &paced{turnModel: w, pace: 10 * time.Millisecond}
			helper, err := AsTool[string, string](sub, "helper", "Helps.", nil)
			if err != nil {
				t.Fatal(err)
			}
			a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(helper), Elicit: func(context.Context, host.Elicitation) (host.Answer, error) {
				c.note("asked")
				return host.Answer{Action: host.ActionDecline}, nil
			}}, whole(`c1 helper {"task":"x"}`), says("done"))
			if _, err := play(t, a, new(State), Say("go")); err != nil {
				t.Fatal(err)
			}
			equal(t, "notes", c.String(), want)
		})
	}
}

// TestEagerLastAnswer: no call starts early in the final answer at a limit, in which the model must
// not call tools.
func TestEagerLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		a, w := newAgent(t, Config{Policy: bypass, Eager: true, Limits: Limits{Steps: 1}, Toolkit: toolkit.Of(noting(&j, "read", reads))},
			whole(`c1 read {"path":"a"}`), whole(`c2 read {"path":"b"}`))
		a.model = &paced{turnModel: w, pace: time.Millisecond}
		evs, err := play(t, a, new(State), Say("go"))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "end", endOf(t, evs).Reason, event.EndLimit)
		equal(t, "ran", j.String(), "read:a")
	})
}
