package agent

import (
	"context"
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

// TestStepThatRecovers has a Middleware.Step recover a panic of its step, with or without an error: the run ends, and
// so do its calls.
func TestStepThatRecovers(t *testing.T) {
	for name, recovered := range map[string]error{"with an error": errors.New("recovered"), "with none": nil} {
		for _, at := range []string{"began", "ended"} {
			t.Run(name+", "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var j journal
					panicked := false
					cfg := Config{Policy: bypass, Toolkit: toolkit.Of(sleeper(&j, time.Hour, tool.Options{Parallel: true}), noting(&j, "quick", tool.Options{Parallel: true}))}
					cfg.Save = func(_ context.Context, st *State) error {
						for _, c := range st.loop.Open {
							if c.Name == "quick" && (at == "ended" && c.Result != nil || at == "began" && c.Status == "running") && !panicked {
								panicked = true
								panic("the store is gone")
							}
						}
						return nil
					}
					cfg.Middleware = []Middleware{{Step: func(next StepFunc) StepFunc {
						return func(ctx context.Context) (err error) {
							defer func() {
								if recover() != nil {
									err = recovered
								}
							}()
							return next(ctx)
						}
					}}}
					a, _ := newAgent(t, cfg, calls(`a sleep {"path":"a"}`, `b quick {"path":"b"}`), says("never"))
					st := new(State)
					var reason event.EndReason
					var failure error
					for ev, err := range a.Run(t.Context(), st, Say("go")) {
						if end, ok := ev.(*event.End); ok {
							reason = end.Reason
							j.add("over")
						}
						failure = err
					}
					synctest.Wait()
					if reason != event.EndError || failure == nil || !strings.HasSuffix(j.String(), "over") {
						t.Errorf("%s, %v; %s", reason, failure, j.String())
					}
					if err := CheckHistory(st.Messages); err != nil || !panicked {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestSubagentThatWaitsTooLate has a sub-agent end waiting after the outer run has cancelled its call.
func TestSubagentThatWaitsTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stubborn := tool.Must(tool.New("stubborn", "Ignores cancellation.", func(context.Context, struct{}) (string, error) {
			time.Sleep(time.Hour)
			return "late", nil
		}, tool.Options{Parallel: true}))
		var j journal
		inner, _ := newAgent(t, Config{Policy: allowing("stubborn"), Background: time.Millisecond,
			Toolkit: toolkit.Of(stubborn, noting(&j, "ask", tool.Options{}))},
			calls(`d stubborn {}`), calls(`q ask {"path":"x"}`))
		sub, err := AsTool[string, string](inner, "helper", "Helps.", nil)
		if err != nil {
			t.Fatal(err)
		}
		outer, _ := newAgent(t, Config{Policy: allowing("helper", "stubborn"), Toolkit: toolkit.Of(sub)},
			calls(`h helper {"task":"t"}`), says("never"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		evs, err := playCtx(t, ctx, outer, new(State), Say("go"))
		if err != nil || endOf(t, evs).Reason != event.EndInterrupted {
			t.Errorf("%+v, %v", endOf(t, evs), err)
		}
		time.Sleep(2 * time.Hour) // until the tool has ended
	})
}

func allowing(tools ...string) (p permission.Policy) {
	for _, name := range tools {
		p.Rules = append(p.Rules, permission.Rule{Tool: name, Behavior: permission.Allow})
	}
	return p
}

// TestPanicLosesNoResult has Config.NewID panic for the message with the results of calls, or of a background
// call: the State still has them.
func TestPanicLosesNoResult(t *testing.T) {
	for at := 1; ; at++ {
		over := false
		synctest.Test(t, func(t *testing.T) {
			var j journal
			n := 0
			a, _ := newAgent(t, Config{Policy: bypass, Background: time.Second,
				Toolkit: toolkit.Of(sleeper(&j, time.Minute, tool.Options{Parallel: true}), noting(&j, "quick", tool.Options{Parallel: true}))},
				calls(`a sleep {"path":"a"}`, `b quick {"path":"b"}`), says("wait"), says("done"))
			own := a.cfg.NewID
			a.cfg.NewID = func(prefix string) string {
				if n++; n == at {
					panic("no id")
				}
				return own(prefix)
			}
			st := new(State)
			func() {
				defer func() { over = recover() == nil }()
				for range a.Run(t.Context(), st, Say("go")) {
				}
			}()
			n = at // fail only once
			if len(st.Messages) == 0 {
				return
			}
			evs, err := play(t, a, st, []Input{}...)
			for len(a.model.(*turnModel).turns) > 0 && err == nil { // an answer may have ended the run early
				evs, err = play(t, a, st, Say("and?"))
			}
			text := encoded(t, st)
			if err != nil || endOf(t, evs).Reason != event.EndCompleted || len(st.loop.Background) > 0 ||
				strings.Contains(text, "continues in the background, as a.") && !strings.Contains(text, "Call a of sleep") {
				t.Errorf("id %d: %v\n%s", at, err, text)
			}
		})
		if over {
			return
		}
	}
}
