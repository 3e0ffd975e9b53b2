package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestEagerHasTheSameEvents plays random conversations with and without Eager
// on a fake clock: bad calls, failing tools, streams that break off, refusals,
// new rules, and limits. Only the timing may differ: the events, the State with the
// tools' State, the last save, and the judgements of each call are the same.
func TestEagerHasTheSameEvents(t *testing.T) {
	early := 0
	rapid.Check(t, func(rt *rapid.T) {
		c := drawScript(rt)
		plain, eager := c.play(t, false), c.play(t, true)
		early += eager.early
		same(rt, "events", eager.events, plain.events)
		same(rt, "the state", bookkeeping.ReplaceAllString(eager.state, ""), bookkeeping.ReplaceAllString(plain.state, ""))
		same(rt, "the file", bookkeeping.ReplaceAllString(eager.saved, ""), bookkeeping.ReplaceAllString(plain.saved, ""))
		for arg, n := range plain.judged { // more than once if other calls end before this one starts
			if m := eager.judged[arg]; m < 1 || m > n {
				rt.Fatalf("the call with %q was judged %d times, %d without Eager", arg, m, n)
			}
		}
		for arg, n := range eager.ran {
			more := n - plain.ran[arg] // a call that was stopped or forgotten
			if more < 0 || more > 1 || more == 1 && !strings.Contains(arg, "read") {
				rt.Fatalf("the call with %q ran %d times, %d without Eager", arg, n, plain.ran[arg])
			}
		}
	})
	if early == 0 {
		t.Error("no call started early")
	}
}

// bookkeeping matches the members of a State that may differ: the number of ended calls at the last judgement of a call;
// whether skills were loaded, if none is open; and the seal, which covers both.
var bookkeeping = regexp.MustCompile(`,?"(judged":-?[0-9]+|skills":null|seal":"[^"]*")`)

// same fails with the first difference of two texts.
func same(rt *rapid.T, what, eager, plain string) {
	for i := range max(len(eager), len(plain)) {
		if i >= len(eager) || i >= len(plain) || eager[i] != plain[i] {
			rt.Fatalf("%s:\n…%.400s\nwithout Eager:\n…%.400s", what, eager[max(0, i-200):], plain[max(0, i-200):])
		}
	}
}

// A script is a conversation that can be played twice.
type script struct {
	turns  []turn
	cfg    Config
	redact bool
	pace   time.Duration
	asks   bool // answer questions with Approve
	saves  bool
}

// drawScript draws a conversation.
func drawScript(rt *rapid.T) *script {
	pick := func(label string, n int) int { return rapid.IntRange(0, n-1).Draw(rt, label) }
	c := &script{pace: time.Duration(pick("pace", 3)) * time.Millisecond, asks: pick("asks", 2) == 0, redact: pick("redact", 4) == 0, saves: pick("saves", 4) == 0}
	c.cfg = Config{MaxParallel: 1 + pick("together", 3), Policy: someAsked, Retry: middleware.RetryConfig{Retries: -1},
		Limits: Limits{Steps: 4, ToolCalls: []int{0, 3, 7}[pick("limit", 3)]}}
	if pick("sealed", 4) == 0 {
		c.cfg.Key = []byte("sixteen bytes ok")
	}
	names := []string{"read", "read", "read", "read", "read_fails", "read_panics", "read_asked", "read_denied", "write", "alone", "unknown", "steer"}
	for i := range 5 {
		var tn turn
		for k := range pick("calls", 6) {
			name := names[pick("tool", len(names))]
			args := fmt.Sprintf(`{"path":"%s-%d-%d","ms":%d}`, name, i, k, pick("ms", 6))
			switch pick("args", 20) {
			case 3, 4: // only this call of the tool needs approval
				args = strings.Replace(args, `":"`, `":"danger-`, 1)
			case 5:
				args = strings.Replace(args, `":"`, `":"forbidden-`, 1)
			case 0:
				args = `{"path":`
			case 1:
				args = `{"nope":1}`
			case 2:
				args = strings.Replace(args, "}", ",}", 1)
			}
			id := []string{fmt.Sprintf("c%d-%d", i, k), "c", ""}[max(0, pick("id", 12)-9)]
			cut := pick("cut", len(args))
			tn.chunks = append(tn.chunks, &model.ToolCallDelta{Index: k, ID: id, Name: name, Args: args[:cut]},
				&model.ToolCallDelta{Index: k, Args: args[cut:]})
		}
		if pick("text", 3) == 0 {
			at := pick("where", len(tn.chunks)+1)
			tn.chunks = slices.Insert(tn.chunks, at, model.Chunk(&model.TextDelta{Text: fmt.Sprintf("text %d ", i)}))
		}
		switch pick("end", 8) {
		case 0:
			tn.err = &model.Error{Kind: model.KindConnection, Message: "reset"}
		case 1: // without a finish
		case 2:
			tn.chunks = append(tn.chunks, finish(model.FinishLength))
		default:
			tn.chunks = append(tn.chunks, finish(model.FinishToolCalls))
		}
		c.turns = append(c.turns, tn)
	}
	return c
}

// played is the result of a script.
type played struct {
	events, state, saved string
	judged, ran          map[string]int // by argument, which is unique for each call
	early                int            // calls that started while the model was writing
}

var noted = toolstate.NewKey[[]string]("noted")

type msArg struct {
	Path string `json:"path"`
	MS   int    `json:"ms"`
}

// play runs the script to its end.
func (c *script) play(t *testing.T, eager bool) (out played) {
	out = played{judged: map[string]int{}, ran: map[string]int{}}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		m := &paced{pace: c.pace}
		add := func(name string, o tool.Options) tool.Tool {
			return judging{tool.Must(tool.New(name, "A tool.", func(ctx context.Context, in msArg) (string, error) {
				mu.Lock()
				out.ran[in.Path]++
				if m.writing.Load() {
					out.early++
				}
				mu.Unlock()
				time.Sleep(time.Duration(in.MS) * time.Millisecond)
				err := noted.Update(ctx, func(all *[]string) error {
					*all = append(*all, in.Path)
					slices.Sort(*all)
					return nil
				})
				switch name {
				case "read_fails":
					err = errors.New("no luck")
				case "read_panics":
					panic("ouch")
				}
				return "did " + in.Path, err
			}, o))}
		}
		cfg := c.cfg
		cfg.Eager = eager
		cfg.Toolkit = toolkit.Of(add("read", reads), add("read_fails", reads), add("read_panics", reads), add("read_asked", reads), add("read_denied", reads),
			add("write", tool.Options{Parallel: true}), add("alone", tool.Options{}), add("steer", tool.Options{Parallel: true, ReadOnly: true, Control: true}))
		cfg.Now = func() time.Time { return time.Time{} }
		cfg.Middleware = []Middleware{{Judge: func(next JudgeFunc) JudgeFunc {
			return func(ctx context.Context, p *permission.Policy, pc *permission.Call) permission.Decision {
				var in msArg
				if err := json.Unmarshal(pc.Input, &in); err != nil {
					t.Error(err)
				}
				mu.Lock()
				out.judged[in.Path]++
				mu.Unlock()
				return next(ctx, p, pc)
			}
		}}}
		if c.redact {
			r, err := redact.New(redact.Rule{Name: "x", Pattern: `text [0-9]+|read-[0-9]-[0-9]`})
			if err != nil {
				t.Fatal(err)
			}
			cfg.Redact = r
		}
		if c.asks {
			cfg.Approve = func(_ context.Context, q event.Approval) (event.Confirm, error) { return person(&q), nil }
		}
		if c.saves {
			cfg.Save = func(_ context.Context, st *State) error {
				data, err := json.Marshal(st)
				out.saved = string(data)
				return err
			}
		}
		a, w := newAgent(t, cfg, slices.Clone(c.turns)...)
		m.turnModel, a.model = w, m
		st := new(State)
		in := []Input{Say("go")}
		var lines []string
		for range 2 {
			evs, err := play(t, a, st, in...)
			lines = append(lines, timeless(evs)...)
			if err != nil {
				lines = append(lines, err.Error())
				break
			}
			in = nil
			for _, p := range st.Pending() {
				in = append(in, person(p.(*event.Approval)))
			}
			if len(in) == 0 {
				in = []Input{Say("continue")}
			}
		}
		out.events = strings.Join(lines, "\n")
		data, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		out.state = string(data)
	})
	return out
}

// person answers a question; the answer depends only on the arguments.
func person(q *event.Approval) event.Confirm {
	h := fnv.New32a()
	h.Write(q.Input)
	a := event.Confirm{Call: q.Call, Allow: h.Sum32()%3 > 0}
	switch h.Sum32() % 7 {
	case 0:
		a.Rules = []permission.Rule{{Tool: q.Name, Behavior: permission.Deny}}
	case 1:
		a.Rules = q.Suggest
	case 2:
		a.Input = json.RawMessage(strings.Replace(string(q.Input), "danger-", "edited-", 1))
	}
	return a
}

// timeless encodes events. Those of concurrent calls, whose order depends on
// timing, are in the order of the calls.
func timeless(evs []event.Event) []string {
	call := func(ev event.Event) string {
		switch ev := ev.(type) {
		case *event.ToolStart:
			return ev.Call
		case *event.ToolDelta:
			return ev.Call
		case *event.ToolResult:
			return ev.Call
		}
		return ""
	}
	var lines []string
	for i := 0; i < len(evs); {
		n := 1
		if call(evs[i]) != "" {
			for i+n < len(evs) && call(evs[i+n]) != "" {
				n++
			}
			slices.SortStableFunc(evs[i:i+n], func(a, b event.Event) int { return strings.Compare(call(a), call(b)) })
		}
		for _, ev := range evs[i : i+n] {
			data, err := json.Marshal(ev)
			if err != nil {
				return append(lines, err.Error())
			}
			var m map[string]any
			if err := json.Unmarshal(data, &m); err != nil {
				return append(lines, err.Error())
			}
			delete(m, "seq")
			data, err = json.Marshal(m)
			if err != nil {
				return append(lines, err.Error())
			}
			lines = append(lines, string(data))
		}
		i += n
	}
	return lines
}
