package agent

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbag-go/kitbag/agent/event"
	"github.com/kitbag-go/kitbag/permission"
	"github.com/kitbag-go/kitbag/tool"
	"github.com/kitbag-go/kitbag/toolkit"
)

// sleeper returns a tool that takes the given time, and notes how it ended.
func sleeper(j *journal, d time.Duration, o tool.Options) tool.Tool {
	return tool.Must(tool.New("sleep", "Sleeps.", func(ctx context.Context, in pathArg) (string, error) {
		select {
		case <-time.After(d):
			j.add("slept:" + in.Path)
			return "slept", nil
		case <-ctx.Done():
			j.add("stopped:" + in.Path)
			return "", ctx.Err()
		}
	}, o))
}

// TestNothingStartsAfterTheTime has an answer with several calls; the first is running when the time limit is reached.
func TestNothingStartsAfterTheTime(t *testing.T) {
	for name, row := range map[string]struct {
		cfg   Config
		tool  tool.Options
		want  string // of the tool
		after time.Duration
	}{
		"one by one":        {tool: tool.Options{}, want: "stopped:a", after: time.Minute},
		"one at a time":     {cfg: Config{MaxParallel: 1}, tool: tool.Options{Parallel: true}, want: "stopped:a", after: time.Minute},
		"two at a time":     {cfg: Config{MaxParallel: 2}, tool: tool.Options{Parallel: true}, want: "stopped:a stopped:b", after: time.Minute},
		"a slow person":     {cfg: Config{Policy: permission.Policy{}, Approve: slowly}, tool: tool.Options{}, want: "", after: 2 * time.Minute},
		"in the background": {cfg: Config{Background: time.Second}, tool: tool.Options{Parallel: true}, want: "stopped:a stopped:b stopped:c", after: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				cfg := row.cfg
				cfg.Toolkit, cfg.ToolTimeout = toolkit.Of(sleeper(&j, time.Hour, row.tool)), 2*time.Hour
				if cfg.Approve == nil {
					cfg.Policy = bypass
				}
				if cfg.Limits.Time == 0 {
					cfg.Limits.Time = time.Minute
				}
				a, _ := newAgent(t, cfg, calls(`a sleep {"path":"a"}`, `b sleep {"path":"b"}`, `c sleep {"path":"c"}`), says("the end"), says("the end"))
				start := time.Now()
				evs, err := play(t, a, new(State), Say("go"))
				got := strings.Fields(j.String())
				if err != nil || endOf(t, evs).Reason != event.EndLimit || len(got) != len(strings.Fields(row.want)) || time.Since(start) != row.after {
					t.Errorf("%q after %v: %+v, %v", got, time.Since(start), endOf(t, evs), err)
				}
				for _, stopped := range got {
					id := strings.TrimPrefix(stopped, "stopped:")
					if said := saidOf(evs, id); !strings.Contains(said, "the limit of 1m0s was reached") {
						t.Errorf("the result of call %s does not name the limit: %q", id, said)
					}
				}
				for _, ev := range evs {
					if began, ok := ev.(*event.ToolStart); ok && !strings.Contains(row.want, ":"+began.Call) {
						t.Errorf("call %s began", began.Call)
					}
				}
			})
		})
	}
}

// saidOf returns the text of the last result of a call, in the background too.
func saidOf(evs []event.Event, call string) (text string) {
	for _, ev := range evs {
		switch ev := ev.(type) {
		case *event.ToolResult:
			if ev.Call == call {
				text = ev.Text
			}
		case *event.Background:
			if ev.Call == call && ev.Result != nil {
				text = ev.Result.Text()
			}
		}
	}
	return text
}

func slowly(context.Context, event.Approval) (event.Confirm, error) {
	time.Sleep(2 * time.Minute)
	return event.Confirm{Allow: true}, nil
}

// TestTypedAnswerAfterTheTime: the last answer is the typed one, and the call that gives it runs.
func TestTypedAnswerAfterTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		a, _ := newAgent(t, Config{Policy: bypass, Toolkit: toolkit.Of(sleeper(&j, time.Hour, tool.Options{})), Limits: Limits{Time: time.Minute}},
			calls(`a sleep {"path":"a"}`), calls(`f final_answer {"path":"x"}`))
		got, err := ReplyAs[pathArg](t.Context(), a, new(State), Say("go"))
		if err != nil || got.Path != "x" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
