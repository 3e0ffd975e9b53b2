package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// TestMiddlewareFaults has tool middleware break its contract. The call fails and the run continues, whether
// the call runs on the run's goroutine, in a worker, or could move to the background.
func TestMiddlewareFaults(t *testing.T) {
	for how, fault := range map[string]func(yield func(tool.Chunk, error) bool){
		"ends its goroutine":  func(func(tool.Chunk, error) bool) { runtime.Goexit() }, // as t.FailNow does
		"panics":              func(func(tool.Chunk, error) bool) { panic("ouch") },
		"says a nil text":     func(yield func(tool.Chunk, error) bool) { yield(tool.Chunk{Block: (*message.Text)(nil)}, nil) },
		"says a nil picture":  func(yield func(tool.Chunk, error) bool) { yield(tool.Chunk{Block: (*message.Data)(nil)}, nil) },
		"says what is a call": func(yield func(tool.Chunk, error) bool) { yield(tool.Chunk{Block: &message.ToolCall{}}, nil) },
	} {
		bad := func(tool.Handler) tool.Handler {
			return func(context.Context, tool.Tool, tool.Call) iter.Seq2[tool.Chunk, error] { return fault }
		}
		for who, cfg := range map[string]Config{"the run": {}, "workers": {}, "jobs": {Background: time.Minute}} {
			t.Run(how+" with "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg.Policy, cfg.Middleware = bypass, []Middleware{{Tool: bad}}
					cfg.Toolkit = toolkit.Of(noting(new(journal), "look", tool.Options{Parallel: true, ReadOnly: true}))
					specs := []string{`c1 look {"path":"a"}`, `c2 look {"path":"b"}`}
					if who == "the run" {
						specs = specs[:1]
					}
					a, _ := newAgent(t, cfg, calls(specs...), says("sorry"))
					ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
					defer cancel()
					st := new(State)
					evs, err := playCtx(t, ctx, a, st, Say("go"))
					if err != nil || endOf(t, evs).Reason != event.EndCompleted {
						t.Errorf("it ended with %+v, %v", endOf(t, evs), err)
					}
					for _, res := range results(st) {
						if !strings.Contains(res, " error: ") {
							t.Errorf("result %s", res)
						}
					}
				})
			})
		}
	}
}

// TestLateSample has a call end before the model answers its sampling request. Nothing
// waits for that answer, also not the next calls, which run in parallel and sample too.
func TestLateSample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sample := func(ctx context.Context) error {
			_, err := host.From(ctx).Sample(ctx, host.SampleRequest{Server: "shop", Messages: []*message.Message{message.User("?")}})
			return err
		}
		late := make(chan error, 1)
		var began time.Time
		tools := toolkit.Of(
			tool.Must(tool.New("leaves", "Leaves a sample behind.", func(ctx context.Context, _ struct{}) (string, error) {
				began = time.Now()
				go func() { late <- sample(ctx) }()
				time.Sleep(time.Second)
				return "fine", nil
			})),
			tool.Must(tool.New("samples", "Samples.", func(ctx context.Context, _ struct{}) (string, error) {
				return "fine", sample(ctx)
			}, tool.Options{Parallel: true})))
		n := 0
		words := turnFunc(func(req *model.Request) turn {
			if len(req.Tools) == 0 { // a sample
				time.Sleep(10 * time.Second) // even if the context ends
				return says("sampled")
			}
			n++
			return []turn{calls("c1 leaves {}"), calls("c2 samples {}", "c3 samples {}"), says("one")}[n-1]
		})
		a, err := New(Config{Model: words, Policy: bypass, Toolkit: tools})
		if err != nil {
			t.Fatal(err)
		}
		var st State
		if _, err := play(t, a, &st, Say("go")); err != nil {
			t.Error(err)
		}
		equal(t, "results", results(&st), []string{"c2 success: fine", "c3 success: fine"})
		if err := <-late; !errors.Is(err, ErrInterrupted) {
			t.Errorf("the late sample: %v", err)
		}
		if took := time.Since(began); took != 30*time.Second { // three samples, one after the other
			t.Errorf("it took %v", took)
		}
	})
}

// TestConsumerIsNotCalledAgain has tools send reports to the run after the consumer has panicked, or ended its
// goroutine like t.FailNow, in the middle of a call.
func TestConsumerIsNotCalledAgain(t *testing.T) {
	insists := tool.Must(tool.NewStream("insists", "Insists.", func(ctx context.Context, _ struct{}) iter.Seq2[tool.Chunk, error] {
		return func(yield func(tool.Chunk, error) bool) {
			for yield(tool.Chunk{Block: &message.Text{Text: "more"}}, nil) {
			}
			_, _ = host.From(ctx).Elicit(context.WithoutCancel(ctx), yesOrNo)
		}
	}))
	for how, leave := range map[string]func(){
		"panics": func() { panic("the consumer's") },
		"exits":  runtime.Goexit,
	} {
		for _, mediator := range []string{"none", "ranges"} {
			a, _ := newAgent(t, Config{Policy: bypass, Middleware: []Middleware{{Tool: mediators[mediator]}}, Toolkit: toolkit.Of(insists), Elicit: accept}, calls("c1 insists {}"), says("one"))
			var loop sync.WaitGroup
			loop.Go(func() {
				defer func() {
					if v := recover(); v != nil && v != "the consumer's" {
						t.Errorf("%s, mediator %s: panic %v", how, mediator, v)
					}
				}()
				for ev := range a.Run(t.Context(), new(State), Say("go")) {
					if _, ok := ev.(*event.ToolDelta); ok {
						leave()
					}
				}
			})
			loop.Wait()
		}
	}
}

// TestTurnFailsOnce has the store fail in the middle of a call, whose tool then stops because it is cancelled.
// That is no interrupt: the run ends with the store's error.
func TestTurnFailsOnce(t *testing.T) {
	full := errors.New("the disk is full")
	gives := tool.Must(tool.New("gives_up", "Gives up.", func(ctx context.Context, _ struct{}) (string, error) {
		_, _ = host.From(ctx).Sample(ctx, host.SampleRequest{Server: "shop", Messages: []*message.Message{message.User("?")}})
		<-ctx.Done()
		return "", fmt.Errorf("%w: %w", tool.ErrAbort, ctx.Err())
	}))
	for _, mediator := range []string{"none", "ranges"} {
		failed := false
		a, _ := newAgent(t, Config{Policy: bypass, Middleware: []Middleware{{Tool: mediators[mediator]}}, Toolkit: toolkit.Of(gives), Save: func(_ context.Context, st *State) error {
			if st.loop.Spent.SampleTokens > 0 && !failed {
				failed = true
				return full
			}
			return nil
		}}, calls("c1 gives_up {}"), says("one"), says("two"))
		evs, err := play(t, a, new(State), Say("go"))
		if !errors.Is(err, full) || endOf(t, evs).Reason != event.EndError {
			t.Errorf("mediator %s: it ended with %q, %v", mediator, endOf(t, evs).Reason, err)
		}
	}
}

// TestMiddlewareAsksBetweenStarts has the consumer stop, or the store fail, between the starts of two calls that
// run in parallel, while their middleware asks the user: the run must not wait for a call that waits for it.
func TestMiddlewareAsksBetweenStarts(t *testing.T) {
	for _, how := range []string{"breaks", "fails"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				saved := 0
				a, _ := newAgent(t, Config{Policy: bypass, Elicit: accept, Middleware: []Middleware{{Tool: mediators["asks itself"]}},
					Toolkit: toolkit.Of(noting(new(journal), "look", tool.Options{Parallel: true, ReadOnly: true})),
					Save: func(_ context.Context, st *State) error {
						time.Sleep(time.Second) // there is time to ask
						if len(st.loop.Open) > 0 && st.loop.Open[0].Status == statusRunning {
							if saved++; how == "fails" {
								return errors.New("the disk is full")
							}
						}
						return nil
					}}, calls(`c1 look {"path":"a"}`, `c2 look {"path":"b"}`), says("one"))
				for ev := range a.Run(t.Context(), new(State), Say("go")) {
					if _, ok := ev.(*event.ToolStart); ok && how == "breaks" {
						break
					}
				}
				if saved == 0 {
					t.Error("no call began")
				}
			})
		})
	}
}
