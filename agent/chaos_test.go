package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/event"
	_ "github.com/kitbag-go/kitbag/internal/seed"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/model/middleware"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/redact"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/toolstate"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestChaos plays random conversations with every kind of failure: bad
// model output, failing tools, cancelled and abandoned runs, crashes, partial
// answers, edits that become dangerous, refusals, sub-agents that share limits, calls
// in the background, streams that break off, answers from
// Approve, typed answers, sealed states and secrets. It checks that the history
// is valid, no call runs twice except an idempotent one after a crash, no denied call runs, nothing stays in
// the background, a run has one End, and no secret is saved or emitted. The long
// form is
//
// go test ./agent -run TestChaos -rapid.checks=50000
func TestChaos(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		(&chaos{rt: rt, ran: map[string]int{}, repeats: map[string]int{}}).play(t)
	})
}

type chaos struct {
	rt  *rapid.T
	on  *wires // nil for the chunks themselves
	mu  sync.Mutex
	ran map[string]int // by argument, which is unique for each call

	background time.Duration

	reading, readers int // running read-only calls, and their limit

	repeats map[string]int // of idempotent calls
	crashed bool

	ids, turns, edits int
}

func (c *chaos) pick(label string, n int) int { return rapid.IntRange(0, n-1).Draw(c.rt, label) }

func (c *chaos) toolkit() *toolkit.Toolkit {
	tools := make([]tool.Tool, 0, 8)
	add := func(name string, o tool.Options, fn func(context.Context, string) (string, error)) {
		tools = append(tools, judging{tool.Must(tool.New(name, "A tool.", func(ctx context.Context, in pathArg) (string, error) {
			c.mu.Lock()
			c.ran[in.Path]++
			c.mu.Unlock()
			return fn(ctx, in.Path)
		}, o))})
	}
	ok := func(_ context.Context, s string) (string, error) { return "did " + s, nil }
	add("together", tool.Options{Parallel: true}, ok)
	add("reads", reads, c.look)
	add("alone", tool.Options{}, ok)
	add("asked", tool.Options{Parallel: true}, ok)
	add("asked_alone", tool.Options{}, ok)
	add("again", tool.Options{Parallel: true, Idempotent: true}, func(ctx context.Context, s string) (string, error) {
		if tool.CallFrom(ctx).Key == "" {
			c.rt.Error("a call that may be made again has no key")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.repeats[s]++; c.repeats[s] == 2 && c.crashed {
			c.ran[s]--
		}
		return "did " + s, nil
	})
	add("fails", tool.Options{Parallel: true}, func(context.Context, string) (string, error) { return "", errors.New("no luck") })
	add("panics", tool.Options{}, func(context.Context, string) (string, error) { panic("ouch") })
	add("behind", tool.Options{}, ok)
	add("behind_long", tool.Options{}, func(ctx context.Context, s string) (string, error) {
		select {
		case <-time.After(200 * time.Microsecond):
		case <-ctx.Done():
		}
		return "did " + s, nil
	})
	for i, t := range tools {
		if strings.HasPrefix(t.Info().Name, "behind") {
			tools[i] = atOnce{t}
		}
	}
	tools = append(tools, c.helper(toolkit.Of(tools...)))
	for _, name := range []string{"external", "asked_external"} {
		tools = append(tools, external{tool.Must(tool.New(name, "Is run outside.", func(context.Context, pathArg) (string, error) {
			panic("an external tool was run")
		}))})
	}
	late := tool.Must(tool.New("late", "Is in a group.", func(context.Context, struct{}) (string, error) { return "", nil }))
	tk, err := toolkit.New(toolkit.Config{Basic: toolkit.Group{Tools: tools},
		Groups:  []toolkit.Group{{Name: "more", Description: "More.", Tools: []tool.Tool{late}}},
		Control: toolkit.ResetTools(nil)})
	if err != nil {
		c.rt.Fatal(err)
	}
	return tk
}

var noted = toolstate.NewKey[[]string]("noted")

// look is a read-only tool function that records its calls.
func (c *chaos) look(ctx context.Context, s string) (string, error) {
	c.mu.Lock()
	c.reading++
	if c.reading > c.readers {
		c.rt.Errorf("%d calls run at a time", c.reading)
	}
	c.mu.Unlock()
	select {
	case <-time.After(time.Duration(len(s)) * 10 * time.Microsecond):
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading--
	return "did " + s, noted.Update(ctx, func(all *[]string) error {
		*all = append(*all, s)
		return nil
	})
}

// helper returns a sub-agent that makes one call, of the tool that its task names.
func (c *chaos) helper(tk *toolkit.Toolkit) tool.Tool {
	limits := Limits{ToolCalls: c.pick("sub limit", 3)}
	a, err := New(Config{Toolkit: tk, Policy: chaosPolicy, Background: c.background, Limits: limits, Retry: middleware.RetryConfig{Retries: -1}, Model: turnFunc(func(req *model.Request) turn {
		last := req.Messages[len(req.Messages)-1]
		name, path, ok := strings.Cut(last.Text(), " ")
		if last.Role != message.RoleUser || !ok {
			return says("helped")
		}
		return calls(fmt.Sprintf(`s1 %s {"path":"%s"}`, name, path))
	})})
	if err != nil {
		c.rt.Fatal(err)
	}
	t, err := AsTool[string, string](a, "helper", "Helps.", nil)
	if err != nil {
		c.rt.Fatal(err)
	}
	return t
}

var chaosPolicy = permission.Policy{Rules: []permission.Rule{{Tool: "*", Behavior: permission.Allow}, {Tool: "asked*", Behavior: permission.Ask}}}

// turn draws an answer of the model.
func (c *chaos) turn() turn {
	c.turns++
	kind := c.pick("answer", 10)
	text := &model.TextDelta{Text: fmt.Sprintf("text %d", c.turns)}
	switch {
	case kind == 0:
		return turn{chunks: []model.Chunk{text, finish("stop")}}
	case kind == 1:
		return turn{chunks: []model.Chunk{text}, err: &model.Error{Kind: model.KindConnection, Message: "reset"}}
	case kind == 2:
		return turn{chunks: []model.Chunk{finish("stop")}}
	case kind == 3:
		return turn{chunks: []model.Chunk{text, &model.ToolCallDelta{Name: "alone", Args: `{"pa`}}, err: &model.Error{Kind: model.KindInvalidRequest}}
	}
	var tn turn
	names := []string{"reads", "reads", "reads", "together", "again", "alone", "asked", "asked", "asked_alone", "fails", "panics", "behind", "behind_long",
		"together", "behind", "background", "external", "asked_external", "helper", "helper", "reset_tools", "unknown", "late", finalName}
	for i := range 1 + c.pick("calls", 5) {
		d := &model.ToolCallDelta{Index: i, ID: fmt.Sprintf("c%d", c.pick("id", 12)), Name: names[c.pick("tool", len(names))]}
		switch c.pick("args", 12) {
		case 0:
			d.Args = `{"path":`
		case 1:
			d.Args = `{"nope":[]}`
		case 2:
			d.Args = ""
		default:
			d.Args = fmt.Sprintf(`{"path":"%d-%d"}`, c.turns, i)
		}
		switch d.Name {
		case backgroundName:
			d.Args = fmt.Sprintf(`{"call":"c%d","action":"%s"}`, c.pick("id", 12), []string{"look", "stop"}[c.pick("action", 2)])
		case "reset_tools":
			d.Args = fmt.Sprintf(`{"more":%v}`, c.pick("open", 2) == 0)
		case "helper":
			d.Args = fmt.Sprintf(`{"task":"%s %d-%d"}`, names[2+c.pick("sub tool", 11)], c.turns, i)
		case finalName:
			d.Args = `{"city":"Graz","score":4}`
		}
		tn.chunks = append(tn.chunks, d)
	}
	if c.pick("broken", 6) == 0 {
		tn.err = &model.Error{Kind: model.KindConnection, Message: "reset"}
	} else {
		tn.chunks = append(tn.chunks, finish("tool_calls"))
	}
	return tn
}

func (c *chaos) inputs(st *State) []Input {
	var in []Input
	for _, p := range st.Pending() {
		if c.pick("leave open", 4) == 0 {
			continue
		}
		switch p := p.(type) {
		case *event.External:
			in = append(in, event.Result{Call: p.Call, Failed: c.pick("failed", 2) == 0, Blocks: []message.Block{&message.Text{Text: "out"}}})
		case *event.Approval:
			in = append(in, c.answer(p))
		}
	}
	switch {
	case len(st.Pending()) > 0 && c.pick("interrupt", 8) == 0:
		return append(in, Interrupt{})
	case len(st.Pending()) == 0 && (len(st.Messages) == 0 || c.pick("say", 2) == 0):
		return append(in, Say("continue"))
	}
	return in
}

// answer draws a person's answer.
func (c *chaos) answer(q *event.Approval) event.Confirm {
	a := event.Confirm{Call: q.Call, Allow: c.pick("allow", 3) > 0}
	switch c.pick("extra", 5) {
	case 0:
		c.edits++
		kind := []string{"harmless", "danger", "forbidden"}[c.pick("edit", 3)]
		if q.Name != "helper" {
			a.Input = json.RawMessage(fmt.Sprintf(`{"path":"%s %d"}`, kind, c.edits))
		}
	case 1:
		a.Rules = q.Suggest
	case 2:
		a.Rules = []permission.Rule{{Tool: q.Name, Behavior: permission.Deny}}
	}
	return a
}

func (c *chaos) play(t *testing.T) {
	c.background = []time.Duration{0, time.Microsecond, time.Hour}[c.pick("background", 3)]
	c.readers = 1 << 10
	if c.background == 0 {
		c.readers = 3 // without those of sub-agents
	}
	tk := c.toolkit()
	st := new(State)
	var key []byte
	if c.pick("sealed", 3) == 0 {
		key = []byte("sixteen bytes ok")
	}
	var redactor *redact.Redactor
	if c.pick("redacted", 3) == 0 {
		var err error
		if redactor, err = redact.New(redact.Rule{Name: "x", Pattern: chaosSecrets.String()}); err != nil {
			c.rt.Fatal(err)
		}
	}
	for range 1 + c.pick("runs", 8) {
		ctx, cancel := context.WithCancel(context.Background())
		w := &turnModel{t: t}
		for range 12 {
			w.turns = append(w.turns, c.turn())
		}
		saved, err := json.Marshal(st)
		if err != nil {
			c.rt.Fatal(err)
		}
		saves, crashAt := 0, 1+c.pick("crash", 30)
		m := model.Model(w)
		if c.on != nil {
			m = c.on.model(w, c.pick("wire", len(c.on.models)), c.pick("cut", 600))
		}
		cfg := Config{Model: m, Toolkit: tk, MaxParallel: 3, Background: c.background, Retry: middleware.RetryConfig{Retries: -1},
			Limits: Limits{Steps: 3, ToolCalls: c.pick("limit", 2) * 6, Tokens: c.pick("token limit", 2) * 70},
			Key:    key, Policy: chaosPolicy, Redact: redactor}
		if key == nil && c.pick("no rules", 3) == 0 { // a seal holds for one policy
			cfg.Policy = permission.Policy{}
		}
		if c.pick("approve", 3) == 0 {
			cfg.Approve = func(_ context.Context, q event.Approval) (event.Confirm, error) { return c.answer(&q), nil }
		}
		if c.pick("small window", 2) == 0 {
			cfg.Window = Window{Tokens: 700}
		}
		cfg.NewID = func(prefix string) string { // also called by concurrent sub-agents
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ids++
			return fmt.Sprintf("%s_%d", prefix, c.ids)
		}
		cfg.Save = func(_ context.Context, st *State) error {
			if saves++; saves >= crashAt {
				return errCrash
			}
			data, err := json.Marshal(st)
			saved = data
			return err
		}
		a, err := New(cfg)
		if err != nil {
			c.rt.Fatal(err)
		}
		cancelAt, breakAt := 1+c.pick("cancel", 60), 1+c.pick("break", 60)
		n, ends := 0, 0
		var typed *finalAnswer
		if c.pick("typed", 4) == 0 {
			if typed, err = newFinal[verdict](); err != nil {
				c.rt.Fatal(err)
			}
		}
		for ev, err := range a.start(ctx, st, typed, c.inputs(st)) {
			if err != nil {
				if n == 0 { // the inputs and the state are valid
					c.rt.Fatal(err)
				}
				break
			}
			if n++; n == cancelAt {
				cancel()
			}
			if event.TypeOf(ev) == "end" {
				ends++
			}
			if redactor != nil {
				c.checkSecrets(json.Marshal(ev))
			}
			if n == breakAt {
				ends = 1
				break
			}
		}
		cancel()
		if n > 0 && ends != 1 {
			c.rt.Fatalf("%d ends", ends)
		}
		if saves < crashAt {
			c.checkBackground(st)
		} else { // the process crashed: continue from the last saved state
			c.crashed = true
			st = new(State)
			if err := json.Unmarshal(saved, st); err != nil {
				c.rt.Fatalf("%v\n%s", err, saved)
			}
		}
		if redactor != nil {
			c.checkSecrets(json.Marshal(st))
		}
		c.check(st)
	}
}

// chaosSecrets matches text of the model and some edited arguments.
var chaosSecrets = regexp.MustCompile(`text [0-9]+|(?:harmless|danger) [0-9]+`)

func (c *chaos) checkSecrets(data []byte, err error) {
	if found := chaosSecrets.Find(data); err != nil || found != nil {
		c.rt.Fatalf("%q is in %s, %v", found, data, err)
	}
}

var errCrash = errors.New("crash")

// checkBackground checks what a run that has ended leaves in the background: nothing,
// except results that the model gets when the waiting calls have ended.
func (c *chaos) checkBackground(st *State) {
	if len(st.loop.InBackground()) > 0 || len(st.loop.Background) > 0 && len(st.loop.Open) == 0 {
		c.rt.Fatalf("%d calls are in the background, %d of them run", len(st.loop.Background), len(st.loop.InBackground()))
	}
}

func (c *chaos) check(st *State) {
	if err := checkOpen(st.Messages, &st.loop); err != nil {
		c.rt.Fatal(err)
	}
	if len(st.Pending()) == 0 {
		for _, o := range st.loop.Open {
			if o.Status == statusAsking || o.Status == statusExternal {
				c.rt.Fatalf("call %s waits but is not pending", o.ID)
			}
		}
	}
	for arg, n := range c.ran {
		if n > 1 {
			c.rt.Fatalf("the call with %q ran %d times", arg, n)
		}
		if strings.HasPrefix(arg, "forbidden") {
			c.rt.Fatalf("the call with %q ran", arg)
		}
	}
}
