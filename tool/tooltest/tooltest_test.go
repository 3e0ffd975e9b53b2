package tooltest

import (
	"context"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
)

type weatherIn struct {
	City string    `json:"city" jsonschema:"minLength=1"`
	Days int       `json:"days,omitempty" jsonschema:"minimum=1,maximum=10"`
	From time.Time `json:"from,omitzero"`
}

// TestRunPassesGoodTools: a tool without a fault, and one that is not run here.
func TestRunPassesGoodTools(t *testing.T) {
	Run(t, tool.Must(tool.New("weather", "Tells the weather.", func(_ context.Context, in weatherIn) (map[string]int, error) {
		return map[string]int{in.City: in.Days}, nil
	})))
	Run(t, tool.Must(tool.External[weatherIn]("ask", "Asks a person.")), Options{Calls: 10})
}

// faulty is a tool with one fault.
type faulty struct {
	info func() tool.Info
	call func(ctx context.Context, input json.RawMessage, yield func(tool.Chunk, error) bool)
}

func (f faulty) Info() tool.Info { return f.info() }

func (f faulty) Call(ctx context.Context, call tool.Call) iter.Seq2[tool.Chunk, error] {
	return func(yield func(tool.Chunk, error) bool) { f.call(ctx, call.Input, yield) }
}

// gullible judges calls by a field that the schema does not require.
type gullible struct{ faulty }

func (gullible) Judge(c *permission.Call) {
	var in struct{ Path *string }
	_ = json.Unmarshal(c.Input, &in)
	c.ReadOnly = *in.Path == ""
}

// deferring uses the field only in Check.
type deferring struct{ faulty }

func (deferring) Judge(c *permission.Call) { c.Checker = deferred{input: c.Input} }

type deferred struct {
	permission.BaseChecker
	input json.RawMessage
}

func (d deferred) Check(*permission.Policy) permission.Verdict {
	gullible{}.Judge(&permission.Call{Input: d.input})
	return permission.Verdict{}
}

// TestRunFindsFaults has a tool for each fault. The first row has no fault.
func TestRunFindsFaults(t *testing.T) {
	good := tool.Info{Name: "probe", Description: "Probes.", Input: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)}
	info := func(change func(*tool.Info)) func() tool.Info {
		i := good
		change(&i)
		return func() tool.Info { return i }
	}
	same := info(func(*tool.Info) {})
	quiet := func(context.Context, json.RawMessage, func(tool.Chunk, error) bool) {}
	var names atomic.Int32
	for _, row := range []struct {
		fault string
		tool  tool.Tool
		want  string
	}{
		{"no fault", faulty{same, quiet}, ""},
		{"a name that is not legal", faulty{info(func(i *tool.Info) { i.Name = "a b" }), quiet}, "not allowed"},
		{"no description", faulty{info(func(i *tool.Info) { i.Description = "" }), quiet}, "no description"},
		{"a schema that is none", faulty{info(func(i *tool.Info) { i.Input = json.RawMessage(`{"type":"objekt"}`) }), quiet}, "schema"},
		{"a schema of an old draft", faulty{info(func(i *tool.Info) {
			i.Input = json.RawMessage(`{"properties":{"n":{"maximum":3,"exclusiveMaximum":true}}}`)
		}), quiet}, "input schema is not valid"},
		{"a schema that points elsewhere", faulty{info(func(i *tool.Info) { i.Input = json.RawMessage(`{"$ref":"file:///etc/passwd"}`) }), quiet}, "schema"},
		{"an inconstant description", faulty{func() tool.Info {
			i := good
			i.Title = strings.Repeat("x", int(names.Add(1)))
			return i
		}, quiet}, "second time"},
		{"a panic on some input", faulty{same, func(_ context.Context, in json.RawMessage, _ func(tool.Chunk, error) bool) {
			if strings.Contains(string(in), "-1") {
				panic("negative")
			}
		}}, "panicked"},
		{"a block that results do not hold", faulty{same, func(_ context.Context, _ json.RawMessage, yield func(tool.Chunk, error) bool) {
			yield(tool.Chunk{Block: &message.Hint{}}, nil)
		}}, "*message.Hint"},
		{"a result that does not fit", faulty{info(func(i *tool.Info) { i.Output = json.RawMessage(`{"type":"object"}`) }), func(_ context.Context, _ json.RawMessage, yield func(tool.Chunk, error) bool) {
			yield(tool.Chunk{Structured: json.RawMessage(`[]`)}, nil)
		}}, "output schema"},
		{"a capability that is not called", almost{faulty{same, quiet}}, "which is not called"},
		{"a judge that trusts its input", gullible{faulty{same, quiet}}, "capability panicked"},
		{"a checker that trusts its input", deferring{faulty{same, quiet}}, "capability panicked"},
	} {
		t.Run(row.fault, func(t *testing.T) {
			c := checker{tool: row.tool, info: row.tool.Info(), rng: rand.New(rand.NewPCG(1, 2)), ctx: t.Context(), calls: 100}
			problems := c.check()
			found := row.want == "" && len(problems) == 0
			for _, p := range problems {
				found = found || row.want != "" && strings.Contains(p.Error(), row.want)
			}
			if !found {
				t.Errorf("got %v, want %q", problems, row.want)
			}
		})
	}
}

func TestRunFindsToolsThatIgnoreCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stubborn := tool.Must(tool.New("stubborn", "Sleeps.", func(context.Context, struct{}) (string, error) {
			time.Sleep(time.Minute)
			return "", nil
		}))
		c := checker{tool: stubborn, info: stubborn.Info(), rng: rand.New(rand.NewPCG(1, 2)), ctx: t.Context(), calls: 1}
		c.checkCancellation([]json.RawMessage{json.RawMessage(`{}`)})
		if len(c.problems) != 1 || !strings.Contains(c.problems[0].Error(), "did not end") {
			t.Errorf("got %v", c.problems)
		}
		time.Sleep(time.Minute)
	})
}

// almost has a method that would be a capability with a context.
type almost struct{ faulty }

func (almost) Preview(json.RawMessage) (string, error) { return "", nil }
