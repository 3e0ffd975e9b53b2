package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/kitbag-go/kitbag/internal/seed"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// An actor is a model with late tools. It plays actions and checks the requests.
type actor struct {
	t       fataler
	st      *State
	actions []string // the remaining ones
	calls   int
	may     map[string]bool // by id of a call: its tool was in the request

	request string   // the last request of the conversation
	told    []string // the last answered request, in parts
	gen     int      // its generation
	changes int      // requests with a change of the tools
}

func (p *actor) Reveals() bool { return true }

// toldOf returns a request as a provider's cache sees it: the head, then the messages with the changes between them.
func toldOf(req *model.Request) []string {
	shown := req.Revealed()
	head := ""
	for _, t := range shown.Head {
		head += " " + t.Name
	}
	parts, changes := []string{"[" + strings.TrimSpace(head) + "]"}, shown.Changes
	for i := 0; i <= len(req.Messages); i++ {
		for ; len(changes) > 0 && changes[0].At == i; changes = changes[1:] {
			var list []string
			for _, t := range changes[0].Add {
				list = append(list, "+"+t.Name)
			}
			for _, name := range changes[0].Remove {
				list = append(list, "-"+name)
			}
			parts = append(parts, "{"+strings.Join(list, " ")+"}")
		}
		if i < len(req.Messages) {
			parts = append(parts, string(req.Messages[i].Role[0]))
		}
	}
	return parts
}

// mayCall returns the names of the tools that the model knows to be callable.
func mayCall(v *model.Reveal) []string {
	known := map[string]bool{}
	for _, t := range v.Head {
		known[t.Name] = true
	}
	for _, c := range v.Changes {
		for _, name := range c.Remove {
			delete(known, name)
		}
		for _, t := range c.Add {
			known[t.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(known))
}

func (p *actor) Generate(ctx context.Context, req *model.Request) iter.Seq2[model.Chunk, error] {
	tn := p.turn(req)
	return (&turnModel{turns: []turn{tn}}).Generate(ctx, req)
}

// turn checks the request and plays the next action.
func (p *actor) turn(req *model.Request) turn {
	v := req.Revealed()
	if req.Reveal != nil && v != req.Reveal {
		p.t.Fatalf("the Reveal does not say the same as Tools: %v", toldOf(req))
	}
	var names []string
	for _, t := range req.Tools {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	if got := mayCall(v); !slices.Equal(got, names) {
		p.t.Fatalf("by what it was told it may call %v, and it may call %v", got, names)
	}
	told := toldOf(req)
	n := len(p.st.Messages)
	whole := len(req.Messages) >= n && slices.Equal(req.Messages[:n], p.st.Messages)
	if whole && p.told != nil && p.gen == p.st.Generation && (len(told) < len(p.told) || !slices.Equal(told[:len(p.told)], p.told)) {
		p.t.Fatalf("%v does not repeat %v", told, p.told)
	}
	if strings.Contains(transcriptOf(req.Messages[len(req.Messages)-1:]), "become too long") {
		return says("They talked.")
	}
	if len(v.Changes) > 0 {
		p.changes++
	}
	p.request = strings.Join(told, " ")
	answered := func(tn turn) turn { p.told, p.gen = told, p.st.Generation; return tn }
	if len(p.actions) == 0 {
		return answered(says("done"))
	}
	action := p.actions[0]
	p.actions = p.actions[1:]
	p.calls++
	switch kind, arg, _ := strings.Cut(action, ":"); kind {
	case "open": // groups, each a digit
		var groups []string
		for _, g := range arg {
			groups = append(groups, fmt.Sprintf(`"g%c":true`, g))
		}
		return answered(calls(fmt.Sprintf("c%d reset_tools {%s}", p.calls, strings.Join(groups, ","))))
	case "call":
		p.may[fmt.Sprintf("c%d", p.calls)] = slices.Contains(names, arg)
		return answered(calls(fmt.Sprintf(`c%d %s {"path":"x"}`, p.calls, arg)))
	case "long":
		return turn{err: &model.Error{Kind: model.KindContextTooLong, Message: "maximum context length"}}
	case "fail":
		return turn{err: errors.New("no")}
	}
	return answered(says("yes"))
}

// revealKit has a basic tool, three groups, and a tool of a phase.
func revealKit(t fataler) *toolkit.Toolkit {
	t.Helper()
	var j journal
	cfg := toolkit.Config{Control: toolkit.ResetTools(nil), Basic: toolkit.Group{Tools: []tool.Tool{noting(&j, "note", tool.Options{})}}}
	for _, g := range "123" {
		cfg.Groups = append(cfg.Groups, toolkit.Group{Name: "g" + string(g), Description: "More.", Tools: []tool.Tool{
			noting(&j, "a"+string(g), tool.Options{}), noting(&j, "b"+string(g), tool.Options{})}})
	}
	tk, err := toolkit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

// act plays actions with a new State and returns the actor. Between runs a "resume" continues from what was saved,
// with a toolkit made anew, and "only:12" sets the ceiling.
func act(t fataler, actions ...string) *actor {
	t.Helper()
	p := &actor{t: t, st: new(State), may: map[string]bool{}}
	newAgent := func() *Agent {
		a, err := New(Config{Model: p, Toolkit: revealKit(t), Policy: bypass, Limits: Limits{Steps: 1000}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := newAgent()
	for len(actions) > 0 {
		n := slices.IndexFunc(actions, func(s string) bool { return s == "resume" || strings.HasPrefix(s, "only:") })
		if n < 0 {
			n = len(actions)
		}
		p.actions = slices.Clone(actions[:n])
		for len(p.actions) > 0 {
			var failure error
			for _, err := range a.Run(context.Background(), p.st, Say("go")) {
				failure = err
			}
			if failure != nil && failure.Error() != "no" && !strings.Contains(failure.Error(), "context_too_long") {
				t.Fatal(failure)
			}
		}
		p.checkCalls()
		if n == len(actions) {
			break
		}
		if only, ok := strings.CutPrefix(actions[n], "only:"); ok {
			var groups []string
			for _, g := range only {
				groups = append(groups, "g"+string(g))
			}
			p.told = nil // reset_tools has another definition
			p.st.Scope.SetCeiling(toolkit.Only(append(groups, "basic")...))
		} else {
			data, err := p.st.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			p.st = new(State)
			if err := p.st.UnmarshalJSON(data); err != nil {
				t.Fatal(err)
			}
			a = newAgent()
		}
		actions = actions[n+1:]
	}
	return p
}

// checkCalls checks that exactly the callable tools ran.
func (p *actor) checkCalls() {
	p.t.Helper()
	for _, m := range p.st.Messages {
		for _, r := range m.ToolResults() {
			if may, ok := p.may[r.ID]; ok && may != (r.Outcome == message.OutcomeSuccess) {
				p.t.Fatalf("%s may be called: %v; its result: %s", r.Name, may, r.Text())
			}
		}
	}
}

// TestReveal plays actions and compares what the model gets in the last request.
func TestReveal(t *testing.T) {
	const head = "[reset_tools note]"
	for actions, want := range map[string]string{
		"say":                          head + " u",
		"open:1 say":                   head + " u a t {+a1 +b1}",
		"open:1 call:a1 say":           head + " u a t {+a1 +b1} a t",
		"open:1 open:12 say":           head + " u a t {+a1 +b1} a t {+a2 +b2}",
		"open:1 open:2 say":            head + " u a t {+a1 +b1} a t {+a2 +b2 -a1 -b1}",
		"open:1 open: open:1 say":      head + " u a t {+a1 +b1} a t {-a1 -b1} a t {+a1 +b1}",
		"open:1 open: call:a1 say":     head + " u a t {+a1 +b1} a t {-a1 -b1} a t",
		"open:1 fail say":              head + " u a t u {+a1 +b1}",
		"open:1 say resume open:12":    head + " u a t {+a1 +b1} a u a t {+a2 +b2}",
		"open:1 open: say resume say":  head + " u a t {+a1 +b1} a t {-a1 -b1} a u",
		"open:1 say only:2 say":        head + " u a t a u", // another reset_tools
		"open:1 call:a1 long open say": "[reset_tools note a1 b1] u u a t {-a1 -b1}",
	} {
		if got := act(t, strings.Fields(actions)...).request; got != want {
			t.Errorf("%s: told %s, want %s", actions, got, want)
		}
	}
}

// TestRevealedHolds plays actions at random: the model knows exactly the callable tools, and a request
// starts with the last one that was answered, unless the conversation was made shorter.
func TestRevealedHolds(t *testing.T) {
	changes := 0
	rapid.Check(t, func(rt *rapid.T) {
		one := rapid.SampledFrom(strings.Fields("open:1 open:12 open:3 open:231 open: call:a1 call:b3 call:note say say fail long resume only:12"))
		changes += act(rt, rapid.SliceOfN(one, 1, 25).Draw(rt, "actions")...).changes
	})
	if changes < 20 { // with -short, too
		t.Errorf("%d requests told of changes", changes)
	}
}
