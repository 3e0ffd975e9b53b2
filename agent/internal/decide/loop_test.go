package decide

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
)

// TestCallsOfAnAnswer applies the rules to the calls of one answer, with random outcomes. The calls always
// end, each starts at most once, a refused one does not start, no more run together than allowed, an
// exclusive one runs alone, one that changes groups starts last, the run waits for a user only when nothing
// runs, and the results are in call order.
func TestCallsOfAnAnswer(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pick := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(rt, label) }
		s, in := new(State), Situation{Messages: []*message.Message{{Role: message.RoleAssistant}}, Parallel: 1 + pick("parallel", 3)}
		for i := range 1 + pick("calls", 6) {
			s.AddCall(&Call{ID: fmt.Sprint(i), Name: "t", Tool: "t", Status: New, Parallel: pick("alone", 3) > 0, ChangesGroups: pick("groups", 5) == 0},
				Opening{CutOff: pick("cut off", 10) == 0})
		}
		all := append([]*Call(nil), s.Open...)
		started, refused, ended := map[string]bool{}, map[string]bool{}, map[string]int{}
		end := func(c *Call, end func()) {
			if end(); c.Status != Done || c.Result == nil {
				rt.Fatalf("call %s has not ended", c.ID)
			}
			ended[c.ID]++
		}
		for range 100 {
			next := Next(s, in)
			running := s.count(Running)
			switch next.Action {
			case Judge:
				for _, c := range next.Calls {
					if c.Status != New {
						continue
					}
					d := permission.Decision{Behavior: []permission.Behavior{permission.Allow, permission.Allow, permission.Ask, permission.Deny}[pick("decision", 4)]}
					switch s.ApplyDecision(c, d) {
					case permission.Ask:
						s.Ask(c, "", time.Time{})
					case permission.Deny:
						refused[c.ID] = true
						end(c, func() { c.endWithText(message.OutcomeDenied, "r") })
					}
				}
			case Start:
				for _, c := range next.Calls {
					alone := !c.Parallel || c.ChangesGroups
					if started[c.ID] || refused[c.ID] || running >= in.Parallel || alone && running > 0 {
						rt.Fatalf("call %s starts while %d others run", c.ID, running)
					}
					for _, other := range all {
						if c.ChangesGroups && !other.ChangesGroups && other.Status != Done {
							rt.Fatalf("call %s changes groups and starts before %s has ended", c.ID, other.ID)
						}
					}
					started[c.ID] = true
					c.Status = Running
					running++
				}
			case Receive:
				if running == 0 {
					rt.Fatal("the run waits for a report, but nothing runs")
				}
				n := pick("which", running)
				for _, c := range s.Open {
					if c.Status != Running {
						continue
					}
					if n--; n >= 0 {
						continue
					}
					if pick("leaves", 4) == 0 && len(s.InBackground()) < in.Parallel {
						end(c, func() { s.MoveToBackground(c) })
					} else {
						end(c, func() { c.endWithText(message.OutcomeSuccess, "r") })
					}
					break
				}
			case Wait:
				if running > 0 {
					rt.Fatal("the run waits for the user while calls run")
				}
				for _, c := range s.Open {
					if c.Status == Asking {
						if pick("answer", 3) == 0 {
							refused[c.ID] = true
							end(c, func() { s.Refuse(c, "refused") })
						} else {
							s.Allow(c, "the user", nil)
						}
						break
					}
				}
			case Close:
				m, succeeded := s.Close()
				for i, res := range m.ToolResults() {
					if c := all[i]; res.ID != c.ID || ended[c.ID] != 1 && (started[c.ID] || refused[c.ID]) {
						rt.Fatalf("result %d is of call %s, which ended %d times", i, res.ID, ended[c.ID])
					}
				}
				if len(m.Blocks) != len(all) || len(succeeded)+len(s.Background) > len(started) {
					rt.Fatalf("%d results for %d calls, %d succeeded", len(m.Blocks), len(all), len(succeeded))
				}
				return
			default:
				rt.Fatalf("action %d", next.Action)
			}
		}
		rt.Fatal("the calls do not end")
	})
}
