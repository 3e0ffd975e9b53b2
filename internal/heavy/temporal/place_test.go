package temporal_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbag-go/kitbag/agent"
	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/agent/session"
	"github.com/kitbag-go/kitbag/agent/temporal"
	"github.com/kitbag-go/kitbag/message"
	"github.com/kitbag-go/kitbag/model/scripted"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// render is a tool whose calls take until a file exists.
func render(file string, calls *atomic.Int64) tool.Tool {
	type in struct{ Size int }
	return tool.Must(tool.New("render", "Renders.", func(ctx context.Context, in in) (string, error) {
		calls.Add(1)
		switch {
		case in.Size < 0:
			return "", errors.New("the size is negative")
		case in.Size > 100:
			return strings.Repeat("x", in.Size), nil
		}
		for ctx.Err() == nil {
			if _, err := os.Stat(file); err == nil {
				return "rendered " + tool.CallFrom(ctx).Key, nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return "", ctx.Err()
	}))
}

// renderer has an agent that calls a placed tool once for each of the sizes.
func (h *host) renderer(t tool.Tool, sizes ...int) temporal.AgentFunc {
	return func(context.Context, *session.Session) (*agent.Agent, error) {
		var turns []scripted.Turn
		for _, size := range sizes {
			turns = append(turns, scripted.Call("render", map[string]int{"Size": size}))
		}
		return agent.New(agent.Config{Model: scripted.New(append(turns, scripted.Say("done"))...), Toolkit: toolkit.Of(t), Save: session.Save,
			Policy: permission.Policy{Mode: permission.ModeBypass}})
	}
}

// serve runs a process for placed tools. stop ends it.
func (h *host) serve(t *testing.T, queue string, tools ...tool.Tool) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := temporal.Serve(ctx, temporal.Config{Client: h.client, Queue: queue, Drain: time.Second}, tools...); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
}

func results(evs []event.Event) (list []*message.ToolResult) {
	for _, ev := range evs {
		if r, ok := ev.(*event.ToolResult); ok {
			list = append(list, r.Result)
		}
	}
	return list
}

// TestPlaced has a worker that waits for a placed call be replaced: the other worker finds the call, and the tool
// runs once.
func TestPlaced(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.Drain = 100 * time.Millisecond
	h := newHost(t, p)
	file := filepath.Join(t.TempDir(), "go")
	var calls atomic.Int64
	inner := render(file, &calls)
	h.serve(t, p.Queue+"-gpu", inner)
	agents := h.renderer(temporal.On(p.Queue+"-gpu", inner), 1)
	stop := h.work(t, agents)
	h.send(t, "a", "one", agent.Say("go"))
	for calls.Load() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	h.work(t, func(ctx context.Context, s *session.Session) (*agent.Agent, error) {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			return nil, err
		}
		return h.renderer(temporal.On(p.Queue+"-gpu", inner))(ctx, s) // its model says "done"
	})
	if end := h.ended(t, "a", 1); end.Reason != event.EndCompleted {
		t.Errorf("ended with %+v", end)
	}
	res := results(h.until(t, "a", func(ev event.Event) bool { _, end := ev.(*event.End); return end }))
	if n := calls.Load(); n != 1 || len(res) != 1 || res[0].Outcome != message.OutcomeSuccess || !strings.HasPrefix(res[0].Text(), "rendered ") {
		data, _ := json.Marshal(res)
		t.Errorf("%d calls, the results are %s", n, data)
	}
}

// TestPlacedErrors has placed calls fail in each way.
func TestPlacedErrors(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	h := newHost(t, p)
	var calls atomic.Int64
	inner := render("none", &calls)
	h.serve(t, p.Queue+"-gpu", inner)
	h.serve(t, p.Queue+"-empty")
	gpu, empty := temporal.On(p.Queue+"-gpu", inner), temporal.On(p.Queue+"-empty", inner)
	h.work(t, func(ctx context.Context, s *session.Session) (*agent.Agent, error) {
		if s.State.ID == "empty" {
			return h.renderer(empty, 1)(ctx, s)
		}
		return h.renderer(gpu, -1, 2_000_000, 1)(ctx, s)
	})
	h.send(t, "empty", "one", agent.Say("go"))
	h.ended(t, "empty", 1)
	h.send(t, "fails", "one", agent.Say("go"))
	for calls.Load() < 3 {
		time.Sleep(10 * time.Millisecond)
	}
	h.send(t, "fails", "two", agent.Interrupt{})
	h.ended(t, "fails", 1)
	isEnd := func(ev event.Event) bool { _, end := ev.(*event.End); return end }
	res := append(results(h.until(t, "empty", isEnd)), results(h.until(t, "fails", isEnd))...)
	want := []string{"does not serve the tool render", "the size is negative", "at most 1572864", "interrupted"}
	for i, r := range res {
		if r.Outcome == message.OutcomeSuccess || i >= len(want) || !strings.Contains(r.Text(), want[i]) {
			t.Errorf("result %d: %s %.300s, want %q", i, r.Outcome, r.Text(), want[i])
		}
	}
	if len(res) != len(want) {
		t.Errorf("%d results, want %d", len(res), len(want))
	}
	for _, err := range gpu.Call(t.Context(), tool.Call{ID: "c", Name: "render", Input: json.RawMessage(`{"Size":1}`)}) {
		if err == nil || !strings.Contains(err.Error(), "call it in a run of Engine.Work") {
			t.Errorf("outside of a run: %v", err)
		}
	}
}
