package agent

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

var yesOrNo = host.Elicitation{Message: "Really?", Schema: json.RawMessage(`{"type":"object","properties":{}}`)}

func accept(context.Context, host.Elicitation) (host.Answer, error) {
	return host.Answer{Action: host.ActionAccept}, nil
}

// odd returns tools with unusual but allowed behavior while the run waits for them.
func odd() []tool.Tool {
	add := func(name string, fn func(ctx context.Context) (string, error)) tool.Tool {
		return tool.Must(tool.New(name, "Is odd.", func(ctx context.Context, _ struct{}) (string, error) { return fn(ctx) }))
	}
	elicit := func(ctx context.Context) (string, error) {
		a, err := host.From(ctx).Elicit(ctx, yesOrNo)
		return string(a.Action), err
	}
	return []tool.Tool{
		add("returns", func(context.Context) (string, error) { return "fine", nil }),
		add("fails", func(context.Context) (string, error) { return "", errors.New("no luck") }),
		add("panics", func(context.Context) (string, error) { panic("ouch") }),
		add("exits", func(context.Context) (string, error) { runtime.Goexit(); return "", nil }),
		add("aborts", func(context.Context) (string, error) { return "", tool.ErrAbort }),
		add("asks", elicit),
		add("asks_elsewhere", func(ctx context.Context) (string, error) {
			var said [3]string
			for i := range said {
				var wg sync.WaitGroup
				wg.Go(func() { said[i], _ = elicit(ctx) })
				wg.Wait()
			}
			return strings.Join(said[:], " "), nil
		}),
		add("asks_too_late", func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return elicit(ctx)
		}),
		add("stays", func(ctx context.Context) (string, error) {
			time.Sleep(time.Minute)
			return "", ctx.Err()
		}),
		// Work that it waits for itself must not use its caller's turns.
		add("calls_another", func(ctx context.Context) (string, error) {
			inner := add("inner", elicit)
			for ch, err := range tool.Run(ctx, inner, tool.Call{ID: "i", Name: "inner", Input: json.RawMessage(`{}`)}) {
				if err != nil {
					return "", err
				}
				return "inner: " + ch.Block.(*message.Text).Text, nil
			}
			return "", nil
		}),
		add("asks_beside_a_call", func(ctx context.Context) (string, error) {
			inner := add("inner", func(context.Context) (string, error) { return "fine", nil })
			var wg sync.WaitGroup
			wg.Go(func() {
				for range 20 {
					_, _ = elicit(ctx)
				}
			})
			for range 20 {
				for range tool.Run(ctx, inner, tool.Call{ID: "i", Name: "inner", Input: json.RawMessage(`{}`)}, mediators["passes"]) {
				}
			}
			wg.Wait()
			return "", nil
		}),
		add("samples", func(ctx context.Context) (string, error) {
			s, err := host.From(ctx).Sample(ctx, host.SampleRequest{Server: "shop", Messages: []*message.Message{message.User("?")}})
			return s.Text, err
		}),
	}
}

// mediators are middleware that forward the chunks and requests of a tool in
// different ways.
var mediators = map[string]tool.Middleware{
	"none":   nil,
	"passes": func(next tool.Handler) tool.Handler { return next },
	"ranges": func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				for ch, err := range next(ctx, t, call) {
					if !yield(ch, err) {
						return
					}
				}
			}
		}
	},
	"wraps the context": func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				next(ctx, t, call)(yield)
			}
		}
	},
	"limits the time": func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				next(ctx, t, call)(yield)
			}
		}
	},
	"asks itself": func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				if a, err := host.From(ctx).Elicit(ctx, yesOrNo); err != nil || a.Action != host.ActionAccept {
					yield(tool.Failure("not accepted"), nil)
					return
				}
				next(ctx, t, call)(yield)
			}
		}
	},
	"goes elsewhere": func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				var wg sync.WaitGroup
				wg.Go(func() { next(ctx, t, call)(yield) })
				wg.Wait()
			}
		}
	},
	"tries twice": func(next tool.Handler) tool.Handler {
		return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				if call.Name == "stays" || call.Name == "asks_too_late" || call.Name == "samples" {
					next(ctx, t, call)(yield)
					return
				}
				for range next(ctx, t, call) { // yields nothing
				}
				next(ctx, t, call)(yield)
			}
		}
	},
}

// TestWaitEventsAreTheSame checks that a run that makes a call on its own goroutine emits the
// same events as one that makes it in a worker.
func TestWaitEventsAreTheSame(t *testing.T) {
	for _, one := range odd() {
		name := one.Info().Name
		if name == "samples" { // a recorded run refuses it
			continue
		}
		t.Run(name, func(t *testing.T) {
			for how, mediator := range mediators {
				var told [2][]string
				for i, background := range []time.Duration{0, time.Hour} {
					synctest.Test(t, func(t *testing.T) {
						a, _ := newAgent(t, Config{Policy: bypass, Middleware: []Middleware{{Tool: mediator}}, Background: background, Toolkit: toolkit.Of(odd()...), ToolTimeout: time.Second,
							Elicit: accept},
							calls("c1 "+name+" {}"), says("one"), says("two"))
						var st State
						evs, err := play(t, a, &st, Say("go"))
						for _, ev := range evs {
							if start, ok := ev.(*event.ModelStart); ok { // only one of the agents has the tool background
								start.Same, start.Parts = 0, nil
							}
							data, err := json.Marshal(ev)
							if err != nil {
								t.Fatal(err)
							}
							told[i] = append(told[i], string(data))
						}
						if err != nil {
							told[i] = append(told[i], err.Error())
						}
						if name == "stays" {
							time.Sleep(time.Hour) // it ends by itself
						}
					})
				}
				if !reflect.DeepEqual(told[0], told[1]) {
					t.Errorf("%s, waited for by the run:\n%s\nby a worker:\n%s", how, strings.Join(told[0], "\n"), strings.Join(told[1], "\n"))
				}
			}
		})
	}
}

// TestMiddlewareAbandonsACall has middleware abandon a call, with the same context that it
// was given. The call is cancelled when that ends, even if it had no limit, and the next is
// stopped in time.
func TestMiddlewareAbandonsACall(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, -1} {
		var told [2][]string
		for i := range told {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var mu sync.Mutex
				note := func(what string) {
					mu.Lock()
					defer mu.Unlock()
					told[i] = append(told[i], time.Since(began).String()+" "+what)
				}
				leaves := func(next tool.Handler) tool.Handler {
					return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
						if call.ID != "c1" {
							return next(ctx, t, call)
						}
						return func(yield func(tool.Chunk, error) bool) {
							go func() {
								next(ctx, t, call)(func(_ tool.Chunk, err error) bool {
									note("left: " + err.Error())
									return false
								})
							}()
							time.Sleep(100 * time.Millisecond)
							yield(tool.Chunk{Block: &message.Text{Text: "fine"}}, nil)
						}
					}
				}
				cfg := Config{Policy: bypass, Middleware: []Middleware{{Tool: leaves}}, Toolkit: toolkit.Of(odd()...), ToolTimeout: limit}
				if i == 1 {
					cfg.Background = time.Hour
				}
				a, _ := newAgent(t, cfg, calls("c1 stays {}"), calls("c2 stays {}"), says("one"))
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				for ev, err := range a.Run(ctx, new(State), Say("go")) {
					if end, ok := ev.(*event.ToolResult); ok {
						note(end.Text)
					} else if err != nil {
						note(err.Error())
					}
				}
				time.Sleep(time.Hour) // they end by themselves
			})
		}
		if !reflect.DeepEqual(told[0], told[1]) || len(told[0]) != 3 {
			t.Errorf("limit %v, waited for by the run:\n%s\nby a worker:\n%s", limit, strings.Join(told[0], "\n"), strings.Join(told[1], "\n"))
		}
	}
}

// TestConsumerLeavesATurn is TestConsumerLeavesAnywhere for a call that the run
// waits for: the body of the loop runs in the middle of it.
func TestConsumerLeavesATurn(t *testing.T) {
	for how, leave := range map[string]func() (goOn bool){
		"breaks": func() bool { return false },
		"panics": func() bool { panic("the consumer's") },
		"exits":  func() bool { runtime.Goexit(); return false },
	} {
		for _, name := range []string{"returns", "asks", "asks_elsewhere", "calls_another", "samples"} {
			for _, mediator := range []string{"none", "ranges"} {
				for at := 1; ; at++ {
					a, _ := newAgent(t, Config{Policy: bypass, Middleware: []Middleware{{Tool: mediators[mediator]}}, Toolkit: toolkit.Of(odd()...)}, calls("c1 "+name+" {}"), says("one"), says("two"))
					st := new(State)
					n := 0
					var loop sync.WaitGroup
					loop.Go(func() {
						defer func() {
							if v := recover(); v != nil && v != "the consumer's" {
								t.Errorf("%s at event %d of %s: panic %v", how, at, name, v)
							}
						}()
						for range a.Run(t.Context(), st, Say("go")) {
							if n++; n == at && !leave() {
								break
							}
						}
					})
					loop.Wait()
					if n < at {
						break
					}
					if n > at {
						t.Errorf("%s at event %d of %s: %d events came", how, at, name, n)
					}
					if _, err := json.Marshal(st); err != nil || st.busy.Load() {
						t.Errorf("%s at event %d of %s: busy %v, %v", how, at, name, st.busy.Load(), err)
					}
				}
			}
		}
	} // goleak finds remaining goroutines
}

// TestTurnsAreTheRunsOwn has a tool leave a goroutine behind that waits with the call's
// context: events must still be yielded on the goroutine that ranges over them.
func TestTurnsAreTheRunsOwn(t *testing.T) {
	for _, how := range []string{"none", "passes", "ranges", "goes elsewhere"} {
		t.Run(how, func(t *testing.T) { turnsAreTheRunsOwn(t, mediators[how]) })
	}
}

func turnsAreTheRunsOwn(t *testing.T, mediator tool.Middleware) {
	began, release := make(chan struct{}), make(chan struct{})
	slow := tool.Must(tool.New("slow", "Is slow.", func(context.Context, struct{}) (string, error) {
		close(began)
		<-release
		return "", nil
	}))
	var left sync.WaitGroup
	leaves := tool.Must(tool.New("leaves", "Leaves a call behind.", func(ctx context.Context, _ struct{}) (string, error) {
		left.Go(func() {
			for range tool.Run(ctx, slow, tool.Call{ID: "i", Name: "slow", Input: json.RawMessage(`{}`)}) {
			}
		})
		<-began
		return "fine", nil
	}))
	// Often enough that a wrong goroutine would be detected.
	asks := tool.Must(tool.New("asks", "Asks.", func(ctx context.Context, _ struct{}) (string, error) {
		for range 50 {
			if _, err := host.From(ctx).Elicit(ctx, yesOrNo); err != nil {
				return "", err
			}
		}
		return "", nil
	}))
	a, _ := newAgent(t, Config{Policy: bypass, Middleware: []Middleware{{Tool: mediator}}, Toolkit: toolkit.Of(leaves, asks), Elicit: accept}, calls("c1 leaves {}"), calls("c2 asks {}"), says("one"))
	where := map[string]bool{}
	for _, err := range a.Run(t.Context(), new(State), Say("go")) {
		if err != nil {
			t.Fatal(err)
		}
		stack := make([]byte, 32)
		where[strings.Fields(string(stack[:runtime.Stack(stack, false)]))[1]] = true
	}
	close(release)
	left.Wait()
	if len(where) != 1 {
		t.Errorf("events came on %d goroutines", len(where))
	}
}

// TestTurnFails has the store fail in the middle of a call that the run waits for.
func TestTurnFails(t *testing.T) {
	full := errors.New("the disk is full")
	sampled := false
	a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(odd()...), Save: func(_ context.Context, st *State) error {
		if st.loop.Spent.SampleTokens > 0 {
			sampled = true
			return full
		}
		return nil
	}}, calls("c1 samples {}"), says("one"), says("two"))
	var st State
	if _, err := play(t, a, &st, Say("go")); !sampled || !errors.Is(err, full) {
		t.Errorf("sampled: %v, error %v, want %v", sampled, err, full)
	}
}
