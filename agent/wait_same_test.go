package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/tool/host"
	"github.com/kitbag-go/kitbag/toolkit"
)

// A waitScript has the actions of a tool, of the middleware of its calls and of the consumer of a run. Each action
// takes a different time, so that no two happen at the same moment.
type waitScript struct {
	streams    bool
	tool       []string
	middleware []string
	limit      time.Duration // of a call
	whole      time.Duration // of the run
	leaves     string        // how the consumer stops,
	at         int           // at this event
}

func drawWaitScript(t *rapid.T) waitScript {
	s := waitScript{
		streams: rapid.Bool().Draw(t, "streams"),
		tool:    rapid.SliceOfN(rapid.SampledFrom([]string{"says", "asks", "asks elsewhere", "waits", "stays"}), 0, 4).Draw(t, "tool"),
		middleware: rapid.SliceOfN(rapid.SampledFrom([]string{"ranges", "wraps the context", "limits the time", "asks", "goes elsewhere",
			"tries twice", "tries two at a time", "leaves it behind", "never calls", "panics before", "panics after", "exits before", "exits after"}), 0, 2).Draw(t, "middleware"),
		limit:  rapid.SampledFrom([]time.Duration{-1, 50*time.Millisecond + 1, time.Minute}).Draw(t, "limit"),
		whole:  rapid.SampledFrom([]time.Duration{70*time.Millisecond + 20, time.Hour}).Draw(t, "whole"),
		leaves: rapid.SampledFrom([]string{"", "breaks", "panics", "exits"}).Draw(t, "leaves"),
		at:     rapid.IntRange(5, 20).Draw(t, "at"),
	}
	s.tool = append(s.tool, rapid.SampledFrom([]string{"returns", "fails", "panics", "exits", "aborts"}).Draw(t, "end"))
	return s
}

// ask asks the user a question, unless calls are abandoned or parallel: then the events would be random.
func (s waitScript) ask(ctx context.Context) {
	if !slices.Contains(s.middleware, "leaves it behind") && !slices.Contains(s.middleware, "tries two at a time") {
		_, _ = host.From(ctx).Elicit(ctx, yesOrNo)
	}
}

// play does the actions of the tool.
func (s waitScript) play(ctx context.Context, say func(string) bool) error {
	for i, act := range s.tool {
		select {
		case <-ctx.Done():
			return fmt.Errorf("asked to end: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
		switch act {
		case "says":
			if !say(fmt.Sprintf("%d ", i)) {
				return nil
			}
		case "asks":
			s.ask(ctx)
		case "asks elsewhere":
			var wg sync.WaitGroup
			wg.Go(func() { s.ask(ctx) })
			wg.Wait()
		case "waits":
			select {
			case <-ctx.Done():
			case <-time.After(40 * time.Millisecond):
			}
		case "stays":
			time.Sleep(400 * time.Millisecond)
		case "fails":
			return errors.New("no luck")
		case "panics":
			panic("ouch")
		case "exits":
			runtime.Goexit()
		case "aborts":
			return tool.ErrAbort
		}
	}
	return nil
}

func (s waitScript) scripted() tool.Tool {
	if s.streams {
		return tool.Must(tool.NewStream("odd", "Is odd.", func(ctx context.Context, _ struct{}) iter.Seq2[tool.Chunk, error] {
			return func(yield func(tool.Chunk, error) bool) {
				err := s.play(ctx, func(text string) bool { return yield(tool.Text(text), nil) })
				if err != nil {
					yield(tool.Chunk{}, err)
				}
			}
		}))
	}
	return tool.Must(tool.New("odd", "Is odd.", func(ctx context.Context, _ struct{}) (string, error) {
		var said strings.Builder
		err := s.play(ctx, func(text string) bool { said.WriteString(text); return true })
		return said.String(), err
	}))
}

// mediate does the actions of one middleware around next.
func (s waitScript) mediate(how string, ctx context.Context, next func(context.Context) iter.Seq2[tool.Chunk, error], yield func(tool.Chunk, error) bool) {
	time.Sleep(time.Millisecond)
	elsewhere := func(fn func()) (wait func()) {
		var wg sync.WaitGroup
		wg.Go(func() {
			defer func() { _ = recover() }() // of middleware below
			fn()
		})
		return wg.Wait
	}
	collect := func(ctx context.Context, into *[]func()) func() {
		return func() {
			for ch, err := range next(ctx) {
				*into = append(*into, func() { yield(ch, err) })
			}
		}
	}
	switch how {
	case "ranges":
		for ch, err := range next(ctx) {
			if !yield(ch, err) {
				return
			}
		}
	case "wraps the context", "limits the time":
		d := time.Hour
		if how == "limits the time" {
			d = 30*time.Millisecond + 300
		}
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		next(ctx)(yield)
	case "asks":
		s.ask(ctx)
		next(ctx)(yield)
	case "goes elsewhere":
		elsewhere(func() { next(ctx)(yield) })()
	case "tries twice":
		for range next(ctx) { // yields nothing
		}
		next(ctx)(yield)
	case "tries two at a time":
		var first, second []func()
		one, other := elsewhere(collect(ctx, &first)), elsewhere(collect(ctx, &second))
		one()
		other()
		for _, say := range first[:min(1, len(first))] {
			say()
		}
	case "leaves it behind":
		var said []func()
		elsewhere(collect(ctx, &said)) // usually with the context of the call itself
		time.Sleep(15*time.Millisecond + 4000)
		yield(tool.Text("left"), nil)
	case "panics before", "exits before", "never calls":
	default:
		next(ctx)(yield)
		time.Sleep(time.Millisecond)
	}
	switch {
	case strings.HasPrefix(how, "panics"):
		panic("ouch")
	case strings.HasPrefix(how, "exits"):
		runtime.Goexit()
	}
}

func (s waitScript) hooks() (mws []Middleware) {
	for _, how := range s.middleware {
		mws = append(mws, Middleware{Tool: func(next tool.Handler) tool.Handler {
			return func(ctx context.Context, t tool.Tool, call tool.Call) iter.Seq2[tool.Chunk, error] {
				return func(yield func(tool.Chunk, error) bool) {
					s.mediate(how, ctx, func(ctx context.Context) iter.Seq2[tool.Chunk, error] { return next(ctx, t, call) }, yield)
				}
			}
		}})
	}
	return mws
}

// follow ranges over a run as the consumer does, and records the events.
func (s waitScript) follow(events iter.Seq2[event.Event, error], leaves string) (told []string) {
	var loop sync.WaitGroup
	loop.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				told = append(told, fmt.Sprint("panic: ", v))
			}
		}()
		n := 0
		for ev, err := range events {
			data, _ := json.Marshal(ev)
			told = append(told, fmt.Sprint(string(data), " ", err))
			if n++; n != s.at {
				continue
			}
			switch leaves {
			case "breaks":
				return
			case "panics":
				panic("the consumer's")
			case "exits":
				runtime.Goexit()
			}
		}
	})
	loop.Wait()
	return told
}

// agent plays the script, with a user who answers after a millisecond.
func (s waitScript) agent(t *testing.T, cfg Config) *Agent {
	cfg.Policy, cfg.Middleware, cfg.Toolkit, cfg.ToolTimeout = bypass, s.hooks(), toolkit.Of(s.scripted()), s.limit
	cfg.Elicit = func(ctx context.Context, q host.Elicitation) (host.Answer, error) {
		select {
		case <-ctx.Done():
			return host.Answer{}, ctx.Err()
		case <-time.After(time.Millisecond):
			return accept(ctx, q)
		}
	}
	a, _ := newAgent(t, cfg, calls("c1 odd {}"), calls("c2 odd {}"), says("one"), says("two"), says("three"))
	return a
}

// run plays the script, and continues the conversation after the consumer has stopped.
func (s waitScript) run(t *testing.T, cfg Config) (told []string) {
	synctest.Test(t, func(t *testing.T) {
		a := s.agent(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), s.whole)
		defer cancel()
		st := new(State)
		told = s.follow(a.Run(ctx, st, Say("go")), s.leaves)
		for range 2 {
			time.Sleep(time.Hour) // abandoned calls end by themselves
			data, err := json.Marshal(st)
			told = append(told, fmt.Sprint(string(data), " ", err))
			told = append(told, s.follow(a.Run(t.Context(), st), "")...)
		}
		time.Sleep(time.Hour)
	})
	return told
}

// TestWaitIsTheSame checks that the events and their times, the State and the next run from it do not depend
// on whether a call may move to the background. TestRunMatchesReference checks their contents.
func TestWaitIsTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawWaitScript(rt)
		plain, background := s.run(t, Config{}), s.run(t, Config{Background: time.Hour})
		for i := range max(len(plain), len(background)) {
			if i >= len(plain) || i >= len(background) || plain[i] != background[i] {
				rt.Fatalf("%+v: from %d on:\n%s\nwith calls that may move to the background:\n%s", s, i,
					strings.Join(plain[min(i, len(plain)):], "\n"), strings.Join(background[min(i, len(background)):], "\n"))
			}
		}
	})
}

// parallel is a tool whose calls may run in parallel.
type parallel struct{ tool.Tool }

func (p parallel) Unwrap() tool.Tool { return p.Tool }

func (p parallel) Info() tool.Info {
	info := p.Tool.Info()
	info.Parallel, info.ReadOnly = true, true
	return info
}

// TestRunsEnd checks that every run ends with a complete State, whatever its parallel or background
// calls do, when the consumer stops and when a save fails. synctest finds deadlocks.
func TestRunsEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawWaitScript(rt)
		cfg := Config{Policy: bypass, Middleware: s.hooks(), Toolkit: toolkit.Of(parallel{s.scripted()}), ToolTimeout: s.limit, Elicit: accept,
			Background:  rapid.SampledFrom([]time.Duration{0, 25 * time.Millisecond}).Draw(rt, "background"),
			MaxParallel: rapid.IntRange(1, 3).Draw(rt, "parallel")}
		failing := rapid.IntRange(0, 12).Draw(rt, "failing save")
		synctest.Test(t, func(t *testing.T) {
			saves := 0
			cfg.Save = func(context.Context, *State) error {
				time.Sleep(2 * time.Millisecond) // calls continue meanwhile
				if saves++; saves == failing {
					return errors.New("the disk is full")
				}
				return nil
			}
			a, _ := newAgent(t, cfg, calls("c1 odd {}", "c2 odd {}", "c3 odd {}"), calls("c4 odd {}"), says("one"), says("two"), says("three"), says("four"))
			ctx, cancel := context.WithTimeout(t.Context(), s.whole)
			defer cancel()
			st := new(State)
			s.follow(a.Run(ctx, st, Say("go")), s.leaves)
			s.follow(a.Run(t.Context(), st), "")
			checkState(t, st)
			if st.busy.Load() {
				t.Error("the State is in use after the run")
			}
			time.Sleep(time.Hour) // abandoned calls end by themselves
		})
		if t.Failed() {
			rt.Fatalf("%+v", s)
		}
	})
}
