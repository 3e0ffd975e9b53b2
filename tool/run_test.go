package tool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call checks the arguments of a call, runs it and collects its result.
func call(ctx context.Context, t tool.Tool, input string, mw ...tool.Middleware) (*message.ToolResult, error) {
	args, err := tool.Arguments(t, json.RawMessage(input))
	if err != nil {
		return &message.ToolResult{Outcome: message.OutcomeError, Blocks: message.Blocks{&message.Text{Text: err.Error()}}}, nil
	}
	return run(ctx, t, tool.Call{ID: "1", Name: t.Info().Name, Input: args.JSON}, mw...)
}

// run runs a call and collects its result.
func run(ctx context.Context, t tool.Tool, c tool.Call, mw ...tool.Middleware) (*message.ToolResult, error) {
	col := tool.NewCollector(c)
	for ch, err := range tool.Run(ctx, t, c, mw...) {
		if err != nil {
			return nil, err
		}
		col.Add(ch)
	}
	return col.Result(), nil
}

// TestBadCalls has mistakes of a model and of a function: each bad call has
// an error result, the function does not run if the arguments are wrong,
// and the run continues.
func TestBadCalls(t *testing.T) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	type in struct {
		N    int    `json:"n" jsonschema_description:"how many"`
		Unit string `json:"unit" jsonschema:"enum=celsius,enum=fahrenheit"`
		Do   string `json:"do,omitempty"`
	}
	ran := false
	probe := tool.Must(tool.New("probe", "Probes.", func(_ context.Context, in in) (string, error) {
		ran = true
		switch in.Do {
		case "fail":
			return "", errors.New("disk full")
		case "panic":
			panic("index out of range")
		case "exit":
			runtime.Goexit()
		case "nothing":
			return "", errors.New("")
		case "nil pointer":
			return "", (*brokenError)(nil)
		}
		return "ok", nil
	}))
	for _, row := range []struct {
		name, input string
		runs        bool
		want        []string
	}{
		{"malformed JSON", `{"n" 1 "unit` + "\x00", false, []string{"cut off"}},
		{"not JSON at all", `weather in Berlin`, false, []string{"not valid JSON", `{"n": 1, "unit": "celsius"}`}},
		{"wrong type", `{"n":"three","unit":"celsius"}`, false, []string{`n: got a string "three", want an integer`}},
		{"missing required", `{"unit":"celsius"}`, false, []string{"n: missing (integer; how many)"}},
		{"enum violation", `{"n":1,"unit":"kelvin"}`, false, []string{`unit: got a string "kelvin", want one of "celsius", "fahrenheit"`}},
		{"misspelt field", `{"n":1,"units":"celsius"}`, false, []string{`units: no such field; did you mean "unit"?`, "unit: missing"}},
		{"all at once", `{"n":1.5,"unit":3,"x":1}`, false, []string{"- n: got 1.5, want an integer\n- unit: got 3, want", "- x: no such field; the fields are n, unit, do"}},
		{"a field twice", `{"n":1,"n":2,"unit":"celsius"}`, false, []string{`"n" is given twice`}},
		{"a number too large to compute", `{"n":1e999999999,"unit":"celsius"}`, false, []string{"out of range"}},
		{"too large for the Go type", `{"n":1e300,"unit":"celsius"}`, false, []string{"n:", "int"}},
		{"too deep", strings.Repeat(`{"n":`, 2000) + "1" + strings.Repeat("}", 2000), false, []string{"nested more than"}},
		{"a list", `[1,2]`, false, []string{"must be a JSON object, not an array"}},
		{"null", `null`, false, []string{"must be a JSON object, not null"}},
		{"tool returns error", `{"n":1,"unit":"celsius","do":"fail"}`, true, []string{"disk full"}},
		{"tool returns an empty error", `{"n":1,"unit":"celsius","do":"nothing"}`, true, []string{"without saying why"}},
		{"tool panics", `{"n":1,"unit":"celsius","do":"panic"}`, true, []string{"panic: index out of range"}},
		{"tool returns a nil pointer as its error", `{"n":1,"unit":"celsius","do":"nil pointer"}`, true, []string{"panic: ", "nil pointer"}},
		{"tool ends its goroutine", `{"n":1,"unit":"celsius","do":"exit"}`, true, []string{"ended its goroutine"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			ran = false
			res, err := call(t.Context(), probe, row.input)
			if err != nil {
				t.Fatal("the run ended:", err)
			}
			if res.Outcome != message.OutcomeError || ran != row.runs {
				t.Errorf("outcome %s, ran %v", res.Outcome, ran)
			}
			for _, w := range row.want {
				if !strings.Contains(res.Text(), w) {
					t.Errorf("%s\nlacks %s", res.Text(), w)
				}
			}
			if strings.Contains(res.Text(), ".go:") || len(res.Text()) > 700 {
				t.Errorf("a stack, or too long: %s", res.Text())
			}
		})
	}
}

// A brokenError is an error whose method Error panics for a nil pointer, as those of most packages do.
type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text }

// TestProgressThatIsNoNumber: JSON has no NaN, so neither an event nor an MCP message could report such progress.
func TestProgressThatIsNoNumber(t *testing.T) {
	zero := 0.0
	loads := tool.Must(tool.NewStream("loads", "Loads.", func(context.Context, struct{}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			_ = yield(tool.Chunk{Progress: &tool.Progress{Done: zero / zero}}, nil) &&
				yield(tool.Chunk{Progress: &tool.Progress{Done: 1, Total: 1 / zero}}, nil) &&
				yield(tool.Text("loaded"), nil)
		}
	}))
	for c, err := range tool.Run(t.Context(), loads, tool.Call{Name: "loads", Input: json.RawMessage(`{}`)}) {
		if err != nil || c.Progress != nil {
			t.Errorf("%+v, %v", c.Progress, err)
		}
	}
}

// TestIntegerWrittenWithAPoint: 3.0 is an integer for JSON Schema, and so for the function,
// although encoding/json refuses it.
func TestIntegerWrittenWithAPoint(t *testing.T) {
	double := tool.Must(tool.New("double", "Doubles.", func(_ context.Context, in struct {
		N int `json:"n"`
	}) (int, error) {
		return 2 * in.N, nil
	}))
	if res, err := call(t.Context(), double, `{"n":3.0}`); err != nil || res.Text() != "6" {
		t.Errorf("got %v, %v", res, err)
	}
}

// TestPanicStackIsLogged: the stack is for the log, not for the model.
func TestPanicStackIsLogged(t *testing.T) {
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(slog.New(slog.DiscardHandler))
	boom := tool.Must(tool.New("boom", "Fails.", func(context.Context, struct{}) (string, error) { panic("boom") }))
	if _, err := call(t.Context(), boom, ""); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "run_test.go") || !strings.Contains(log.String(), "tool=boom") {
		t.Errorf("the log lacks the stack: %s", log.String())
	}
}

func TestAbortEndsTheRun(t *testing.T) {
	quit := tool.Must(tool.New("quit", "Ends.", func(context.Context, struct{}) (string, error) {
		return "", fmt.Errorf("licence expired: %w", tool.ErrAbort)
	}))
	if _, err := call(t.Context(), quit, "{}"); !errors.Is(err, tool.ErrAbort) {
		t.Errorf("got %v", err)
	}
}

// TestConsumerPanicPasses: a panic of the loop's body is not recovered as one of the tool.
func TestConsumerPanicPasses(t *testing.T) {
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("recovered %v", r)
		}
	}()
	hi := tool.Must(tool.New("hi", "Greets.", func(context.Context, struct{}) (string, error) { return "hi", nil }))
	for range tool.Run(t.Context(), hi, tool.Call{Name: "hi", Input: json.RawMessage("{}")}) {
		panic("mine")
	}
}

// stream returns a tool that yields with seq.
func stream(seq func(ctx context.Context, yield func(tool.Chunk, error) bool)) tool.Tool {
	return tool.Must(tool.NewStream("stream", "Streams.", func(ctx context.Context, _ struct{}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) { seq(ctx, yield) }
	}))
}

var empty = tool.Call{ID: "1", Name: "stream", Input: json.RawMessage("{}")}

// TestStreamTakesTurns: a tool does not run ahead of its consumer.
func TestStreamTakesTurns(t *testing.T) {
	at := 0
	s := stream(func(_ context.Context, yield func(tool.Chunk, error) bool) {
		for at = 1; yield(tool.Text("x"), nil); at++ {
		}
	})
	n := 0
	for range tool.Run(t.Context(), s, empty) {
		if n++; at != n {
			t.Fatalf("the tool is at %d while the consumer is at %d", at, n)
		}
		if n == 3 {
			break
		}
	}
	if at != 3 {
		t.Errorf("the tool continued to %d", at)
	}
}

// TestToolThatYieldsAfterTheEnd: yield returns false after the end of the call, in any goroutine,
// and never hangs.
func TestToolThatYieldsAfterTheEnd(t *testing.T) {
	finished := make(chan int)
	s := stream(func(_ context.Context, yield func(tool.Chunk, error) bool) {
		refused := 0
		for range 100 {
			if !yield(tool.Text("x"), nil) {
				refused++
			}
		}
		go func() { // and from another goroutine, long after the call
			for range 10 {
				if !yield(tool.Text("late"), nil) {
					refused++
				}
			}
			finished <- refused
		}()
	})
	for range tool.Run(t.Context(), s, empty) {
		break
	}
	if refused := <-finished; refused != 110 {
		t.Errorf("%d of 110 late chunks refused", refused)
	}
}

// TestCancelEndsToolsThatIgnoreIt: the call ends after the grace period with the context's cause,
// and an error that the tool may still be running.
func TestCancelEndsToolsThatIgnoreIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the user left")
		s := stream(func(_ context.Context, yield func(tool.Chunk, error) bool) {
			yield(tool.Text("begun"), nil)
			time.Sleep(time.Hour)
			yield(tool.Text("late"), nil)
		})
		time.AfterFunc(time.Minute, func() { cancel(gone) })
		start := time.Now()
		res, err := run(ctx, s, empty)
		if res != nil || !errors.Is(err, gone) || !strings.Contains(err.Error(), "may still be running") {
			t.Errorf("got %v, %v", res, err)
		}
		if d := time.Since(start) - time.Minute; d > 300*time.Millisecond {
			t.Errorf("ended %v after the cancellation", d)
		}
		time.Sleep(time.Hour) // for the abandoned goroutine
	})
}

// TestCancelLetsToolsFinishInTheirWords: the output of a tool within the grace period is its result.
func TestCancelLetsToolsFinishInTheirWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := stream(func(ctx context.Context, yield func(tool.Chunk, error) bool) {
			<-ctx.Done()
			yield(tool.Text("killed; so far: 42"), nil)
		})
		if res, err := run(ctx, s, empty); err != nil || res.Text() != "killed; so far: 42" {
			t.Errorf("got %v, %v", res, err)
		}
	})
}

func TestCancelledBeforeStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := stream(func(context.Context, func(tool.Chunk, error) bool) { t.Error("started") })
	if _, err := run(ctx, s, empty); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestErrorsAreSticky: an error ends the sequence, and the chunks before it are kept.
func TestErrorsAreSticky(t *testing.T) {
	s := stream(func(_ context.Context, yield func(tool.Chunk, error) bool) {
		_ = yield(tool.Text("half"), nil) && yield(tool.Chunk{}, errors.New("broken pipe")) && yield(tool.Text("more"), nil)
	})
	res, err := run(t.Context(), s, empty)
	if err != nil || res.Outcome != message.OutcomeError || res.Text() != "half\nbroken pipe" {
		t.Errorf("got %+v, %v", res, err)
	}
}

func TestMiddlewareOrder(t *testing.T) {
	var log []string
	mark := func(name string) tool.Middleware {
		return func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, tl tool.Tool, c tool.Call) iter.Seq2[tool.Chunk, error] {
				return func(yield func(tool.Chunk, error) bool) {
					log = append(log, name+"(")
					next(ctx, tl, c)(yield)
					log = append(log, ")"+name)
				}
			}
		}
	}
	hi := tool.Must(tool.New("hi", "Greets.", func(context.Context, struct{}) (string, error) {
		log = append(log, "hi")
		return "hi", nil
	}))
	if _, err := call(t.Context(), tool.With(hi, mark("c"), mark("d")), "{}", mark("a"), mark("b")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(log, ""); got != "a(b(c(d(hi)d)c)b)a" {
		t.Error(got)
	}
}

// TestBlocksThatNoResultMayHold has tools that yield invalid blocks, on which other code could panic. The
// result is an error for the model.
func TestBlocksThatNoResultMayHold(t *testing.T) {
	for name, b := range map[string]message.Block{
		"no text": (*message.Text)(nil), "no data": (*message.Data)(nil), "a call": &message.ToolCall{ID: "c", Name: "n"}, "no call": (*message.ToolCall)(nil),
	} {
		for _, one := range []tool.Tool{
			tool.Must(tool.New("one", "x", func(context.Context, struct{}) (message.Block, error) { return b, nil })),
			tool.Must(tool.New("one", "x", func(context.Context, struct{}) (*tool.Result, error) {
				return &tool.Result{ForUser: []message.Block{b}}, nil
			})),
			tool.Must(tool.NewStream("one", "x", func(context.Context, struct{}) iter.Seq2[tool.Chunk, error] {
				return func(yield func(tool.Chunk, error) bool) { yield(tool.Chunk{Block: b}, nil) }
			})),
		} {
			res, err := call(t.Context(), one, `{}`)
			if err != nil || res.Outcome != message.OutcomeError || !strings.Contains(res.Text(), "must be a *message.Text or *message.Data") {
				t.Errorf("%s: %v, %v", name, res, err)
			}
		}
	}
}

// TestMiddlewareFaultIsAResult: a panic of middleware is an error result and does not end the program.
func TestMiddlewareFaultIsAResult(t *testing.T) {
	hi := tool.Must(tool.New("hi", "Greets.", func(context.Context, struct{}) (string, error) { return "hi", nil }))
	saying := func(b message.Block) tool.Middleware {
		return func(tool.Handler) tool.Handler {
			return func(context.Context, tool.Tool, tool.Call) iter.Seq2[tool.Chunk, error] {
				return func(yield func(tool.Chunk, error) bool) { yield(tool.Chunk{Block: b}, nil) }
			}
		}
	}
	for how, bad := range map[string]tool.Middleware{
		"panics": func(tool.Handler) tool.Handler {
			return func(context.Context, tool.Tool, tool.Call) iter.Seq2[tool.Chunk, error] { panic("bad middleware") }
		},
		"panics at once":     func(tool.Handler) tool.Handler { panic("bad middleware") },
		"is nil":             nil,
		"returns nil":        func(tool.Handler) tool.Handler { return nil },
		"says a nil text":    saying((*message.Text)(nil)),
		"says a nil picture": saying((*message.Data)(nil)),
		"says a call":        saying(&message.ToolCall{ID: "c1", Name: "hi"}),
	} {
		res, err := call(t.Context(), hi, "{}", bad)
		if err != nil || res.Outcome != message.OutcomeError || res.Text() == "" {
			t.Errorf("%s: got %v, %v", how, res, err)
		}
	}
}

// TestMiddlewareThatContinues: chunks and panics after the consumer has stopped are dropped,
// and the consumer is not called again.
func TestMiddlewareThatContinues(t *testing.T) {
	hi := tool.Must(tool.New("hi", "Greets.", func(context.Context, struct{}) (string, error) { return "hi", nil }))
	for how, after := range map[string]func(yield func(tool.Chunk, error) bool){
		"yields": func(yield func(tool.Chunk, error) bool) {
			for range 3 {
				yield(tool.Failure("more"), nil)
			}
		},
		"panics": func(func(tool.Chunk, error) bool) { panic("too late") },
	} {
		stubborn := func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, tl tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
				return func(yield func(tool.Chunk, error) bool) {
					next(ctx, tl, call)(yield)
					after(yield)
				}
			}
		}
		n := 0
		for range tool.Run(t.Context(), hi, tool.Call{Name: "hi", Input: json.RawMessage("{}")}, stubborn) {
			n++
			break
		}
		if n != 1 {
			t.Errorf("%s: %d chunks came", how, n)
		}
	}
}
